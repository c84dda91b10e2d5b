//! Reports a run in its execution session: opens it, follows the journal, says how it ended, commits.
//!
//! Everything it needs to know of earlier attempts is in the session, so it can stop anywhere and begin again. It never
//! disturbs the run: the only things it tells the executor are that the session was ended or suspended by someone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use macp_kernel::{Rejection, Settled, State};
use macp_plan_core::journal::{Body, RunFinished};
use macp_wire::v1::Envelope;
use serde_json::json;

use super::execution::{Batch, Messages, batches};
use super::notes::Report;
use super::refusal::Error;
use super::reported::{NotAReport, reported};
use super::{SessionRuns, Shared, blocking};
use crate::patience::Patience;
use crate::store::{Run, StoreError};

/// The longest wait between attempts to send.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What a payload needs beside its entries or its result.
const PAYLOAD_SLACK_BYTES: usize = 4 * 1024;

/// Why a report goes no further.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("the session was ended before the report was complete: it is {0:?}")]
    Ended(State),
    #[error("the session refuses a message: {0}")]
    Refused(Rejection),
    #[error("the session is not this run's: {0}")]
    Foreign(NotAReport),
    #[error("the session under the id of this run's was started by {0:?}")]
    Usurped(String),
    #[error("the session reports {reported} entries, and the journal has {journal}")]
    Ahead { reported: u64, journal: u64 },
    #[error("the journal is damaged: {0}")]
    Damaged(StoreError),
    #[error("there is no such run")]
    NoRun,
    /// Goes on after the next start.
    #[error("everything is shutting down")]
    ShuttingDown,
}

impl SessionRuns {
    /// Has a run reported, unless it is being reported.
    pub(super) fn report(&self, report: Report) {
        if !self.shared.reporting().insert(report.run_id.clone()) {
            return;
        }
        let session_runs = self.clone();
        let done = Done { shared: Arc::clone(&self.shared), run_id: report.run_id.clone() };
        self.shared.spawn(async move {
            let _done = done;
            session_runs.report_to_the_end(report).await;
        });
    }

    async fn report_to_the_end(&self, report: Report) {
        let run_id = report.run_id.clone();
        if !self.shared.settings.execution.enabled {
            // Without its session nobody else would let the run go on.
            insist(|| async { self.pause(&run_id, false).await.is_ok() }).await;
        } else {
            let Ok(_permit) = self.shared.permits.acquire().await else {
                return;
            };
            let reporter = Reporter { session_runs: self, report: &report };
            match reporter.run().await {
                Ok(()) => tracing::debug!(run = run_id, "the run is reported"),
                Err(Stopped::ShuttingDown) => return,
                Err(Stopped::Ended(state)) => reporter.ended_early(state).await,
                // Once the session can be read again, there is more to say in it.
                Err(Stopped::Foreign(NotAReport::History(error))) => {
                    tracing::error!(run = run_id, %error, "the run's report waits for the next start");
                    return;
                }
                Err(stopped) => {
                    tracing::error!(run = run_id, %stopped, "the run's report is given up, its journal stands")
                }
            }
        }
        if let Err(error) = self.shared.notes.drop_report(&run_id).await {
            // It is found again after the next start, and found complete.
            tracing::warn!(run = run_id, %error, "a report that is complete could not be ticked off");
        }
    }

    /// Takes up the reports that are not complete, and first creates the runs an earlier process did not come to.
    pub(super) async fn resume_reports(&self) -> Result<(), Error> {
        let mut after = None;
        loop {
            let (page, last) = self.shared.notes.reports(after).await?;
            if last.is_none() {
                return Ok(());
            }
            after = last;
            for report in page {
                let run_id = report.run_id.clone();
                match self.resume_report(report).await {
                    Err(error) if error.is_passing() => return Err(error),
                    // The others need not wait for what is damaged.
                    Err(error) => tracing::error!(run = run_id, %error, "the run is not reported"),
                    Ok(()) => {}
                }
            }
        }
    }

    async fn resume_report(&self, report: Report) -> Result<(), Error> {
        if self.runs().summary(&report.run_id).await?.is_none() {
            return self.create_missing(report).await;
        }
        let told = self.stop_if_superseded(&report.run_id, &report.session_id, &report.commitment_hash).await;
        self.report(report);
        // What took its place may have been put down without the run hearing of it.
        Ok(told?)
    }

    /// Creates a run that was admitted and never came to be, if its plan may still run.
    async fn create_missing(&self, report: Report) -> Result<(), Error> {
        let run_id = report.run_id.clone();
        if report.is_retry {
            return Ok(self.shared.notes.drop_report(&run_id).await?);
        }
        let superseded = self.shared.notes.superseded(&report.session_id, &report.commitment_hash).await?;
        let created = match (superseded, self.bind(&report.session_id).await) {
            (Some(_), _) => return Ok(self.shared.notes.drop_report(&run_id).await?),
            (None, Ok(bound)) => self.launch(bound, report).await.map(drop),
            (None, Err(error)) => Err(error),
        };
        if created.as_ref().is_err_and(|error| !error.refusals().is_empty()) {
            self.shared.notes.drop_report(&run_id).await?;
        }
        created
    }
}

/// Forgets that a run is being reported, however its task ends.
struct Done {
    shared: Arc<Shared>,
    run_id: String,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.shared.reporting().remove(&self.run_id);
    }
}

struct Reporter<'a> {
    session_runs: &'a SessionRuns,
    report: &'a Report,
}

impl Reporter<'_> {
    async fn run(&self) -> Result<(), Stopped> {
        let messages = self.messages();
        let Some(next_seq) = self.open(&messages).await? else {
            return Ok(());
        };
        let run = self.retrying(|| self.session_runs.runs().load(&self.report.run_id)).await?.ok_or(Stopped::NoRun)?;
        let journal = u64::try_from(run.entries.len()).unwrap_or(u64::MAX);
        if next_seq > journal {
            return Err(Stopped::Ahead { reported: next_seq, journal });
        }
        let mut steps = steps_finished(&run, next_seq);
        let total = run.summary.steps_total;
        let taxonomy_version = run.start().pins.taxonomy_version.clone();
        let mut finished = run.finish().cloned().filter(|_| next_seq == journal);
        drop(run);
        let mut seq = next_seq;
        while finished.is_none() {
            for (batch, end) in self.next_batches(&mut seq).await? {
                steps = steps.saturating_add(batch.steps_finished);
                self.send(messages.update(&batch, steps, total)).await?;
                finished = end;
            }
        }
        if let Some(finished) = finished {
            let result = self.result(&finished).await?;
            self.send(messages.outcome(&finished, result, &taxonomy_version)).await?;
            self.send(messages.commitment(&finished)).await?;
        }
        Ok(())
    }

    /// Opens the session, or finds it: the entry to report next, none if the report is complete.
    async fn open(&self, messages: &Messages<'_>) -> Result<Option<u64>, Stopped> {
        let id = messages.session_id();
        let found = self.retrying(|| {
            let id = id.clone();
            blocking(self.store(), move |store| {
                Ok::<_, StoreError>(match reported(store, &id) {
                    Err(NotAReport::History(macp_ledger::ReadError::Failure(failure))) => return Err(failure.into()),
                    other => other,
                })
            })
        });
        let next_seq = match found.await?.map_err(Stopped::Foreign)? {
            None => 0,
            Some(found) if found.initiator != messages.identity => return Err(Stopped::Usurped(found.initiator)),
            Some(found) => match State::from_wire(found.state.into()) {
                Some(State::Resolved) => return Ok(None),
                Some(state) if state.is_terminal() => return Err(Stopped::Ended(state)),
                _ => {
                    // It may have been suspended, or have gone on, without the run being told: the process went down.
                    self.follow().await;
                    found.next_seq
                }
            },
        };
        for envelope in [messages.start(), messages.request(), messages.accept()] {
            self.send(envelope).await?;
        }
        Ok(Some(next_seq))
    }

    /// The next entries, as updates; with the last of them, how the run ended.
    async fn next_batches(&self, seq: &mut u64) -> Result<Vec<(Batch, Option<RunFinished>)>, Stopped> {
        let run_id = &self.report.run_id;
        let page = self
            .retrying(|| async {
                match self.session_runs.runs().watch(run_id, *seq).await? {
                    Some(mut watch) => watch.next().await,
                    None => Ok(None),
                }
            })
            .await?
            .ok_or(Stopped::NoRun)?;
        let end = page.last().and_then(|last| match last.body() {
            Body::RunFinished(finished) => Some(finished.clone()),
            _ => None,
        });
        let bytes_max = self.session_runs.settings().execution.update_bytes_max.min(self.payload_bytes_max());
        let batches = batches(&page, bytes_max);
        *seq = batches.last().map_or(*seq, |batch| batch.last_seq + 1);
        let last = batches.len().saturating_sub(1);
        Ok(batches.into_iter().enumerate().map(|(at, batch)| (batch, end.clone().filter(|_| at == last))).collect())
    }

    /// The run's result as JSON, or what its last entry says where that is too long to be sent.
    async fn result(&self, finished: &RunFinished) -> Result<Bytes, Stopped> {
        let run_id = &self.report.run_id;
        let result = self.retrying(|| self.session_runs.shared.executor.result(run_id)).await?.ok_or(Stopped::NoRun)?;
        match serde_json::to_vec(&result) {
            Ok(text) if text.len() <= self.payload_bytes_max() => Ok(text.into()),
            _ => Ok(json!({"run_id": run_id, "run_finished": finished}).to_string().into_bytes().into()),
        }
    }

    /// Sends a message until there is a verdict on it. Sent before, it is found to be a duplicate, which is as good.
    async fn send(&self, envelope: Envelope) -> Result<(), Stopped> {
        let (messages, engine) = (self.messages(), &self.session_runs.shared.engine);
        let (mut patience, mut suspended) = (Patience::up_to(PAUSE_MAX), false);
        loop {
            match engine.submit(&envelope.session_id, messages.command(envelope.clone())).await {
                Ok(reply) => match (reply.settled, reply.state) {
                    (Settled::Accepted { .. } | Settled::Duplicate { .. } | Settled::Unchanged, _) => {
                        if suspended {
                            self.follow().await;
                        }
                        return Ok(());
                    }
                    // The run waits as well; the message is sent when the session goes on.
                    (Settled::Rejected(_), Some(State::Suspended)) => {
                        suspended = true;
                        self.follow().await;
                    }
                    (Settled::Rejected(_), Some(state)) if state.is_terminal() => return Err(Stopped::Ended(state)),
                    (Settled::Rejected(rejection), _) => return Err(Stopped::Refused(rejection)),
                },
                Err(macp_engine::Error::ShuttingDown) => return Err(Stopped::ShuttingDown),
                Err(error) => self.warn(&error),
            }
            patience.wait().await;
        }
    }

    /// Tries until something can be read.
    async fn retrying<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        mut read: impl FnMut() -> F,
    ) -> Result<T, Stopped> {
        let mut patience = Patience::up_to(PAUSE_MAX);
        loop {
            match read().await {
                Ok(value) => return Ok(value),
                Err(StoreError::Closed) => return Err(Stopped::ShuttingDown),
                Err(error @ (StoreError::Corruption(_) | StoreError::Damaged { .. })) => {
                    return Err(Stopped::Damaged(error));
                }
                Err(error) => self.warn(&error),
            }
            patience.wait().await;
        }
    }

    fn warn(&self, error: &dyn std::error::Error) {
        tracing::warn!(run = self.report.run_id, %error, "the run's report is held up and is tried again");
    }

    /// Someone ended the session: the run stops at the next boundary, and its journal stands (AOS-115).
    async fn ended_early(&self, state: State) {
        let id = self.messages().session_id();
        // Someone may have taken its id just before it was opened. What becomes of that session is no word to the run.
        if let Ok(Some(session)) = self.session_runs.shared.engine.session(&id).await
            && self.session_runs.run_reported_in(&session.metadata).is_none()
        {
            let initiator = session.metadata.initiator;
            tracing::error!(
                run = self.report.run_id,
                initiator,
                "the run's report is given up: its session's id is taken"
            );
            return;
        }
        let reason = format!("its execution session is {}", state.name());
        tracing::warn!(run = self.report.run_id, reason, "the run's report ends before the run");
        insist(|| async { self.session_runs.stop_with_session(&self.report.run_id, &id, &reason).await.is_ok() }).await;
    }

    /// Has the run wait or go on as its session does.
    async fn follow(&self) {
        insist(|| self.session_runs.follow_session_of(&self.report.run_id)).await;
    }

    fn messages(&self) -> Messages<'_> {
        Messages { report: self.report, identity: &self.session_runs.settings().execution.identity }
    }

    fn payload_bytes_max(&self) -> usize {
        let limit = usize::try_from(self.session_runs.shared.engine.limits().payload_bytes_max).unwrap_or(usize::MAX);
        limit.saturating_sub(PAYLOAD_SLACK_BYTES)
    }

    fn store(&self) -> &Arc<dyn macp_ledger::Store> {
        self.session_runs.shared.engine.store()
    }
}

/// Tries until a run has been told something.
async fn insist<F: Future<Output = bool>>(mut tell: impl FnMut() -> F) {
    let mut patience = Patience::up_to(PAUSE_MAX);
    while !tell().await {
        patience.wait().await;
    }
}

/// Steps that ended before an entry.
fn steps_finished(run: &Run, before_seq: u64) -> u32 {
    let finished =
        run.entries.iter().filter(|entry| entry.seq() < before_seq && matches!(entry.body(), Body::StepFinished(_)));
    u32::try_from(finished.count()).unwrap_or(u32::MAX)
}
