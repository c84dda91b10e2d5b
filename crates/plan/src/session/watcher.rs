//! Watches sessions: those that are resolved may have a plan to start or a commitment to supersede, and those in which
//! runs are reported may be suspended, cancelled or expire.
//!
//! Nothing may be missed by a crash, nor by falling behind. So the watcher keeps a checkpoint, the time up to which it
//! has dealt with everything, and after a start or a gap goes through the index for sessions that may have been
//! resolved since: a session is resolved before its deadline, hence one whose deadline is before the checkpoint is
//! long done with. And it keeps a [mark], before which all sessions have ended and were dealt with, so that it need not
//! go through those again. That pass reads index rows alone, a page at a time; only candidates are looked at closer.
//! Events go on being dealt with between two pages: whoever lets them wait for the whole pass falls behind again. Doing
//! something twice is harmless, because admission and notes are idempotent.

mod mark;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use macp_engine::{Lifecycle, LifecycleEvent, Watch, WatchError};
use macp_ledger::{Failure, Store};
use macp_wire::v1::{SessionMetadata, SessionState};
use prost::Message;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::binding::{self, Resolved};
use super::execution::{MODE, session_id};
use super::extract;
use super::refusal::{Error, Reason, Refusal};
use super::settings::StartPolicy;
use super::start::StartFromSession;
use super::{SessionRuns, blocking};
use crate::executor::StartError;
use crate::store::{Commitment, StoreError};
use mark::Mark;

/// Events dealt with together.
const BATCH: usize = 256;

/// Committed plans started together.
const STARTS_AT_ONCE: usize = 16;

/// Index rows read at once, as many as a listing reads: a summary may be long.
const PAGE: usize = 32;

/// How often what failed is tried again and the checkpoint is looked at.
const TICK: Duration = Duration::from_secs(5);

/// How soon the index is gone through after events were lost; not at once, since more may be about to be.
const GAP_PAUSE: Duration = Duration::from_millis(250);

/// What the checkpoint stays behind the clock: an entry is accepted a while before those who watch hear of it, and
/// clocks are set back a little now and then.
const CHECKPOINT_LAG_MS: i64 = 60_000;

/// How far the clock moves before the checkpoint follows: a server with nothing to do must not write all the time.
const CHECKPOINT_EVERY_MS: u64 = 60_000;

pub(super) struct Watcher {
    session_runs: SessionRuns,
    events: Watch<Lifecycle>,
    /// Resolved sessions that could not be dealt with, to be tried again. While there are any, the checkpoint stays.
    waiting: BTreeMap<String, Resolved>,
    /// Runs that could not be told what their execution session asks for, to be tried again.
    unfollowed: BTreeSet<String>,
    /// Sessions may have been missed: the index must be gone through.
    behind: bool,
    /// Events were lost since the last tick.
    gap: bool,
    /// The checkpoint as it was last kept.
    checkpoint_ms: Option<i64>,
    mark: Mark,
}

impl Watcher {
    pub(super) fn new(session_runs: SessionRuns, events: Watch<Lifecycle>) -> Self {
        let mark = Mark::new(Arc::clone(session_runs.runs().ledger()));
        Self {
            session_runs,
            events,
            waiting: BTreeMap::new(),
            unfollowed: BTreeSet::new(),
            behind: true,
            gap: false,
            checkpoint_ms: None,
            mark,
        }
    }

    pub(super) async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let had_gap = self.gap;
            tokio::select! {
                event = self.events.recv() => match event {
                    Ok(event) => _ = self.take(event).await,
                    Err(WatchError::Lagged | WatchError::Closed) => self.lagged().await,
                },
                _ = ticks.tick() => self.tick().await,
            }
            if self.gap && !had_gap {
                ticks.reset_after(GAP_PAUSE);
            }
        }
    }

    /// Deals with the events that wait, but not with those that come meanwhile: there may be no end of them.
    async fn drain(&mut self) {
        let waiting = self.events.len();
        let mut taken = 0;
        while taken < waiting {
            match self.events.try_recv() {
                Ok(Some(event)) => taken += self.take(event).await,
                Ok(None) => return,
                Err(WatchError::Lagged | WatchError::Closed) => return self.lagged().await,
            }
        }
    }

    /// Deals with an event and with those that wait behind it, a batch at most; says how many they were.
    async fn take(&mut self, event: Arc<Lifecycle>) -> usize {
        let mut resolved = Vec::new();
        let mut next = Some(event);
        let mut taken = 0;
        while let Some(event) = next.take() {
            self.sort(&event, &mut resolved).await;
            taken += 1;
            if taken < BATCH {
                match self.events.try_recv() {
                    Ok(event) => next = event,
                    Err(WatchError::Lagged | WatchError::Closed) => self.lagged().await,
                }
            }
        }
        if resolved.is_empty() {
            return taken;
        }
        match self.look(resolved).await {
            Ok(found) => self.deal_with(found).await,
            Err(error) => {
                tracing::warn!(%error, "resolved sessions could not be read; they are looked for again");
                self.behind = true;
            }
        }
        taken
    }

    async fn sort(&mut self, event: &Lifecycle, resolved: &mut Vec<String>) {
        let session = &event.session;
        let run_id = self.session_runs.run_reported_in(session);
        match (event.event, run_id) {
            // The session may have gone on since: what it is by now is what the run does.
            (LifecycleEvent::Suspended | LifecycleEvent::Resumed, Some(run_id)) => self.follow(run_id).await,
            (LifecycleEvent::Cancelled | LifecycleEvent::Expired, Some(run_id)) => {
                let how = if event.event == LifecycleEvent::Cancelled { "cancelled" } else { "expired" };
                let reason = format!("its execution session was {how}");
                if self.session_runs.stop_with_session(run_id, &session.session_id, &reason).await.is_err() {
                    self.unfollowed.insert(run_id.to_owned());
                }
            }
            // Nearly every session has nothing to do with plans, and is not worth a read.
            (LifecycleEvent::Resolved, None) if event.resolved_by.as_deref().is_none_or(extract::concerns_plans) => {
                resolved.push(session.session_id.clone());
            }
            _ => {}
        }
    }

    async fn follow(&mut self, run_id: &str) {
        if !self.session_runs.follow_session_of(run_id).await {
            self.unfollowed.insert(run_id.to_owned());
        }
    }

    /// Goes through the past if need be, tries again what failed, and moves the checkpoint.
    async fn tick(&mut self) {
        self.gap = false;
        let now_ms = self.session_runs.shared.engine.now_ms();
        // What was told until here is dealt with before the checkpoint says so.
        self.drain().await;
        for run_id in std::mem::take(&mut self.unfollowed) {
            self.follow(&run_id).await;
        }
        let result = async {
            // What breaks off from here on sets it again, and then the checkpoint stays.
            if std::mem::take(&mut self.behind) {
                self.catch_up().await.inspect_err(|_| self.behind = true)?;
            }
            let waiting = std::mem::take(&mut self.waiting);
            self.deal_with(waiting.into_values().collect()).await;
            if self.behind || !self.waiting.is_empty() {
                return Ok::<_, StoreError>(());
            }
            self.keep_checkpoint(now_ms).await
        };
        if let Err(error) = result.await {
            tracing::warn!(%error, "watching sessions is held up and goes on in a while");
        }
    }

    /// Everything that was told before this time is dealt with.
    async fn keep_checkpoint(&mut self, now_ms: i64) -> Result<(), StoreError> {
        let at_ms = now_ms.saturating_sub(CHECKPOINT_LAG_MS);
        if self.checkpoint_ms.is_some_and(|last_ms| at_ms.abs_diff(last_ms) < CHECKPOINT_EVERY_MS) {
            return Ok(());
        }
        self.mark.keep(self.session_runs.shared.engine.store(), now_ms, CHECKPOINT_LAG_MS).await?;
        self.session_runs.shared.notes.set_checkpoint(at_ms).await?;
        self.checkpoint_ms = Some(at_ms);
        Ok(())
    }

    /// Deals with everything that was resolved since the checkpoint. Without one there is no past: plans that were
    /// committed to before anyone watched are an operator's to start.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let Some(since_ms) = self.session_runs.shared.notes.checkpoint().await? else {
            return Ok(());
        };
        let began = Instant::now();
        let mut after = self.mark.session_id().await?;
        let mut found = Vec::new();
        loop {
            let from = after.clone();
            let store = self.session_runs.shared.engine.store();
            let (page, last) =
                blocking(store, move |store| candidates(store, from.as_deref(), since_ms).map_err(StoreError::from))
                    .await?;
            found.extend(self.look(page).await?);
            self.drain().await;
            match last {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        tracing::debug!(found = found.len(), took = ?began.elapsed(), "went through the sessions resolved lately");
        // All together, since one may supersede another that was created before it.
        self.deal_with(found).await;
        Ok(())
    }

    async fn look(&self, session_ids: Vec<String>) -> Result<Vec<Resolved>, StoreError> {
        blocking(self.session_runs.shared.engine.store(), move |store| {
            let looks = session_ids.iter().map(|session_id| binding::look(store, session_id));
            let resolved = looks.filter_map(Result::transpose).collect::<Result<Vec<_>, Failure>>()?;
            Ok(resolved.into_iter().filter(|one| one.names_a_plan || one.supersedes.is_some()).collect())
        })
        .await
    }

    /// First what must not start any more, then what is to start.
    async fn deal_with(&mut self, found: Vec<Resolved>) {
        let mut ready = Vec::new();
        for resolved in found {
            match self.session_runs.supersede(&resolved).await {
                Ok(()) => ready.push(resolved),
                Err(error) => self.hold(resolved, &error),
            }
        }
        if self.session_runs.settings().start == StartPolicy::Manual {
            return;
        }
        let mut starts = JoinSet::new();
        let mut ready = ready.into_iter().filter(|resolved| resolved.names_a_plan);
        let mut has_room = true;
        loop {
            while has_room
                && starts.len() < STARTS_AT_ONCE
                && let Some(resolved) = ready.next()
            {
                let session_runs = self.session_runs.clone();
                starts.spawn(async move {
                    let failed = session_runs.start_by_itself(&resolved).await;
                    failed.map_err(|error| (resolved, error))
                });
            }
            match starts.join_next().await {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err((resolved, error)))) => {
                    has_room &= !matches!(error, Error::Executor(StartError::Overloaded { .. }));
                    self.hold(resolved, &error);
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "starting a committed plan broke off");
                    self.behind = true;
                }
            }
        }
        // As many runs are at work as may be: the others would be refused as well, each after a good many writes.
        self.waiting.extend(ready.map(|resolved| (resolved.session_id.clone(), resolved)));
    }

    fn hold(&mut self, resolved: Resolved, error: &dyn std::error::Error) {
        tracing::warn!(session = resolved.session_id, %error, "a committed plan is held up and is tried again");
        self.waiting.insert(resolved.session_id.clone(), resolved);
    }

    /// Some events are lost: what they said is read from where it is kept.
    ///
    /// The engine lets go of a watcher for which too many bytes wait, and so does not end before the watcher does:
    /// whatever broke off, it is watched anew, before anything is read.
    async fn lagged(&mut self) {
        tracing::info!("the watcher of sessions fell behind and goes through the index");
        self.events = self.session_runs.shared.engine.watch_lifecycle();
        (self.behind, self.gap) = (true, true);
        let runs: Vec<String> = self.session_runs.shared.reporting().iter().cloned().collect();
        for run_id in runs {
            self.follow(&run_id).await;
        }
    }
}

impl SessionRuns {
    /// The run that is reported in a session, if that is what the session is for.
    pub(super) fn run_reported_in<'a>(&self, session: &'a SessionMetadata) -> Option<&'a str> {
        let run_id = session.context_id.as_str();
        let ours = session.mode == MODE
            && session.initiator == self.settings().execution.identity
            && session.session_id == session_id(run_id);
        ours.then_some(run_id)
    }

    /// Starts a committed plan without anybody asking. A refusal is final; anything else may pass.
    async fn start_by_itself(&self, resolved: &Resolved) -> Result<(), Error> {
        let (session_id, commitment_hash) = (&resolved.session_id, resolved.commitment_hash.clone());
        let commitment = Commitment { session_id: session_id.clone(), commitment_hash, epoch: 1 };
        // To be looked at again after a start is no reason to read the whole session again.
        if self.started(&commitment).await?.is_some() {
            return Ok(());
        }
        let request = StartFromSession::first(session_id, &self.settings().execution.identity);
        // Nobody asked, so that what was decided against or taken back is nobody's rejected run.
        match self.start(request, |refusal| !is_expected(refusal)).await {
            Ok(started) => {
                tracing::info!(
                    session = session_id,
                    run = started.run_id,
                    existing = started.existing,
                    "a committed plan runs"
                );
                Ok(())
            }
            Err(Error::Refused(refusals) | Error::Rejected { refusals, .. }) => {
                for refusal in refusals {
                    if is_expected(&refusal) {
                        tracing::info!(session = session_id, %refusal, "a plan does not run");
                    } else {
                        tracing::warn!(session = session_id, %refusal, "a committed plan does not run");
                    }
                }
                Ok(())
            }
            // The history will not get better, and the log has said what is wrong with it.
            Err(error @ Error::History(macp_ledger::ReadError::Corruption(_))) => {
                tracing::error!(session = session_id, %error, "a committed plan does not run");
                Ok(())
            }
            Err(Error::Executor(StartError::Stopping)) if self.shared.is_stopping() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Has a run do what the state of its session asks for; says whether it does. Whether a run is to wait is
    /// told here and nowhere else, so that of a suspension and its end the run never heeds the earlier one last.
    pub(super) async fn follow_session_of(&self, run_id: &str) -> bool {
        let _turn = self.shared.following.lock().await;
        let id = session_id(run_id);
        let state = match self.shared.engine.session(&id).await {
            Ok(Some(snapshot)) if self.run_reported_in(&snapshot.metadata) == Some(run_id) => snapshot.metadata.state(),
            Ok(_) => return true,
            Err(error) => {
                tracing::warn!(run = run_id, %error, "the state of an execution session is not known");
                return false;
            }
        };
        let told = match state {
            SessionState::Suspended => self.pause(run_id, true).await,
            SessionState::Open => self.pause(run_id, false).await,
            SessionState::Cancelled | SessionState::Expired => {
                self.stop_with_session(run_id, &id, "its execution session has ended").await
            }
            SessionState::Resolved | SessionState::Unspecified => Ok(()),
        };
        told.is_ok()
    }
}

/// A page of the index: sessions that were resolved, and not before a time; and where the next page begins, if this one
/// is full.
fn candidates(store: &dyn Store, after: Option<&str>, since_ms: i64) -> Result<(Vec<String>, Option<String>), Failure> {
    let heads = store.created(after, PAGE)?;
    let last = heads.last().filter(|_| heads.len() == PAGE).map(|head| head.session_id.to_string());
    let resolved = heads.into_iter().filter(|head| head.state == i32::from(SessionState::Resolved));
    let recent = resolved.filter(|head| {
        // A row that cannot be read rules nothing out.
        SessionMetadata::decode(head.summary.clone()).map_or(true, |session| session.expires_at_unix_ms >= since_ms)
    });
    Ok((recent.map(|head| head.session_id.to_string()).collect(), last))
}

/// Whether a plan that does not run is nothing to wonder about: it was decided against, or taken back.
fn is_expected(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::OutcomeNotPositive | Reason::Superseded)
}
