//! The watches: streams of what happens to everything, from now on. They end by lag, drain or the client's leave.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use macp_engine::{Lifecycle, LifecycleEvent, Signal, WatchError};
use macp_ledger::{Filter, Head};
use macp_wire::v1::session_lifecycle_event::EventType;
use macp_wire::v1::{
    RootsChanged, SessionLifecycleEvent, SessionMetadata, WatchRootsResponse, WatchSessionsResponse,
    WatchSignalsResponse,
};
use tokio::sync::broadcast;
use tonic::Status;

use super::sessions::metadata;
use crate::access::Access;
use crate::context::Context;
use crate::outbound::{Outbound, Sink, produce_until_drained};
use crate::status;

/// Sessions read at once for a watch, and what is reserved for them. The summary of one may take 256 KiB; of a page that
/// takes more than is reserved, what fits is kept.
const PAGE_SESSIONS: usize = 32;
const PAGE_BYTES: usize = 512 * 1024;

/// How long after its start a session may be announced as created. The announcement follows the listing's source, the
/// commit, within one turn of a shard.
const ANNOUNCED_WITHIN_MS: i64 = 60_000;

pub(super) fn roots(ctx: &Context, access: &Access) -> Outbound<WatchRootsResponse> {
    let mut changes = ctx.watch_roots();
    let now = ctx.engine.now_ms();
    produce_until_drained(&ctx.drain, &access.memory.queued, |sink| async move {
        let changed = |observed_at_unix_ms| WatchRootsResponse { change: Some(RootsChanged { observed_at_unix_ms }) };
        sink.send(changed(now)).await?;
        loop {
            sink.send(changed(next(&mut changes).await?)).await?;
        }
    })
}

pub(super) fn signals(ctx: &Context, access: Access) -> Outbound<WatchSignalsResponse> {
    let mut signals = ctx.engine.watch_signals();
    let memory = Arc::clone(&access.memory.queued);
    produce_until_drained(&ctx.drain, &memory, |sink| async move {
        loop {
            let signal = event_of(&mut signals).await?;
            if !is_for(&access, &signal) {
                continue;
            }
            sink.send(WatchSignalsResponse {
                envelope: Some(signal.envelope.clone()),
                sender_authenticated: signal.sender_authenticated,
            })
            .await?;
        }
    })
}

/// Progress about a session is for those who may read it. The session was looked at when the Progress was sent: a look
/// of every watcher at every signal could fail, and a watch must not end by that.
fn is_for(access: &Access, signal: &Signal) -> bool {
    if signal.envelope.session_id.is_empty() || access.sees_all() {
        return true;
    }
    signal.about.as_ref().is_some_and(|session| access.check_read(session).is_ok())
}

/// Joins the live feed first and then tells of the open sessions, so that nothing falls between.
pub(super) fn sessions(ctx: &Arc<Context>, access: Access) -> Outbound<WatchSessionsResponse> {
    let live = ctx.engine.watch_lifecycle();
    let joined_at_ms = ctx.engine.now_ms();
    let drain = ctx.drain.clone();
    let ctx = Arc::clone(ctx);
    let memory = Arc::clone(&access.memory.queued);
    produce_until_drained(&drain, &memory, |sink| async move {
        let mut watch = Watch { access, sink, live, joined_at_ms, told: HashSet::new(), told_until_ms: None };
        watch.sync(&ctx).await?;
        watch.told_until_ms = Some(ctx.engine.now_ms().saturating_add(ANNOUNCED_WITHIN_MS));
        loop {
            let lifecycle = event_of(&mut watch.live).await?;
            watch.tell(&lifecycle).await?;
        }
    })
}

/// One who watches the sessions.
struct Watch {
    access: Access,
    sink: Sink<WatchSessionsResponse>,
    live: macp_engine::Watch<Lifecycle>,
    joined_at_ms: i64,
    /// Told of by the sync, and young enough to be announced on the live feed as well.
    told: HashSet<Arc<str>>,
    /// When nothing of that is announced any more; none during the sync, which may take long.
    told_until_ms: Option<i64>,
}

impl Watch {
    /// One CREATED event for every session that has not ended, a page at a time. What happens meanwhile is told between
    /// the pages: on a busy server the live feed would not wait for the end.
    async fn sync(&mut self, ctx: &Context) -> Result<(), Status> {
        let mut after: Option<Arc<str>> = None;
        loop {
            let mut reserved = self.sink.reserve(PAGE_BYTES).await;
            let mut page = page(ctx, &self.access, after.clone()).await?;
            let is_full = page.len() == PAGE_SESSIONS;
            let is_cut = cut(&mut page);
            reserved.set(page.iter().map(|head| head.summary.len()).sum());
            for head in &mut page {
                let session = metadata(head);
                head.summary = Bytes::new();
                if !self.access.sees(&session) {
                    continue;
                }
                if session.started_at_unix_ms >= self.joined_at_ms.saturating_sub(ANNOUNCED_WITHIN_MS) {
                    self.told.insert(Arc::clone(&head.session_id));
                }
                self.sink.send_from(&mut reserved, created(session)).await?;
            }
            // What is sent below waits for room of its own.
            drop(reserved);
            let reached = page.last().filter(|_| is_full || is_cut).map(|last| Arc::clone(&last.session_id));
            self.tell_of_meanwhile(Stretch::new(after.as_deref(), &page, reached.as_deref())).await?;
            if reached.is_none() {
                return Ok(());
            }
            after = reached;
        }
    }

    /// What the live feed has by now.
    async fn tell_of_meanwhile(&mut self, mut stretch: Stretch<'_>) -> Result<(), Status> {
        loop {
            let Some(lifecycle) = self.live.try_recv().map_err(ended)? else {
                return Ok(());
            };
            match stretch.place(lifecycle.event, &lifecycle.session.session_id) {
                Told::Later => continue,
                Told::Never => self.announce(lifecycle.session.clone()).await?,
                Told::Already => {}
            }
            self.tell(&lifecycle).await?;
        }
    }

    /// One CREATED event.
    async fn announce(&self, session: SessionMetadata) -> Result<(), Status> {
        if !self.access.sees(&session) {
            return Ok(());
        }
        self.sink.send(created(session)).await
    }

    async fn tell(&mut self, lifecycle: &Lifecycle) -> Result<(), Status> {
        if self.told_until_ms.is_some_and(|until| lifecycle.observed_at_ms > until) {
            self.told = HashSet::new();
        }
        if !self.access.sees(&lifecycle.session) {
            return Ok(());
        }
        if lifecycle.event == LifecycleEvent::Created && self.told.remove(lifecycle.session.session_id.as_str()) {
            return Ok(());
        }
        self.sink.send(event(lifecycle)).await
    }
}

/// What of the sessions the sync has just told: those of a page, which is all that had not ended between two ids.
struct Stretch<'a> {
    /// The id before the first; none at the beginning.
    after: Option<&'a str>,
    page: &'a [Head],
    /// The id of the last; none at the end.
    reached: Option<&'a str>,
    /// Told of beside the page, because they were not in it.
    beside: HashSet<String>,
}

/// When the sync tells of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// It has, or the event itself does.
    Already,
    /// When it comes there, as the session stands then.
    Later,
    /// The session has ended, and is listed no more.
    Never,
}

impl<'a> Stretch<'a> {
    fn new(after: Option<&'a str>, page: &'a [Head], reached: Option<&'a str>) -> Self {
        Stretch { after, page, reached, beside: HashSet::new() }
    }

    fn place(&mut self, event: LifecycleEvent, session_id: &str) -> Told {
        let has_ended = match event {
            LifecycleEvent::Created | LifecycleEvent::Suspended | LifecycleEvent::Resumed => false,
            LifecycleEvent::Resolved | LifecycleEvent::Expired | LifecycleEvent::Cancelled => true,
        };
        if !has_ended && self.reached.is_some_and(|reached| session_id > reached) {
            return Told::Later;
        }
        let is_before = self.after.is_some_and(|after| session_id <= after);
        if is_before || self.page.iter().any(|head| *head.session_id == *session_id) {
            return Told::Already;
        }
        let is_new = self.beside.insert(session_id.to_owned());
        if is_new && event != LifecycleEvent::Created { Told::Never } else { Told::Already }
    }
}

/// Keeps as many sessions of a page as there is room for, and one at least. Returns whether there are fewer now.
fn cut(page: &mut Vec<Head>) -> bool {
    let mut bytes = 0;
    let fits = page.iter().take_while(|head| {
        bytes += head.summary.len();
        bytes <= PAGE_BYTES
    });
    let count = fits.count().max(1);
    let is_cut = count < page.len();
    page.truncate(count);
    is_cut
}

/// Open sessions in the order of their ids. Few callers read at once, as in listings.
async fn page(ctx: &Context, access: &Access, after: Option<Arc<str>>) -> Result<Vec<Head>, Status> {
    let turn = ctx.brief_readers.enter(access).await?;
    let store = Arc::clone(ctx.engine.store());
    let listing = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        store.list(after.as_deref(), PAGE_SESSIONS, Filter::Open)
    });
    listing
        .await
        .map_err(|error| status::internal(error.to_string()))?
        .map_err(|failure| status::internal(status::with_causes(&failure)))
}

fn created(session: SessionMetadata) -> WatchSessionsResponse {
    let started_at_ms = session.started_at_unix_ms;
    response(EventType::Created, session, started_at_ms)
}

fn event(lifecycle: &Lifecycle) -> WatchSessionsResponse {
    let event_type = match lifecycle.event {
        LifecycleEvent::Created => EventType::Created,
        LifecycleEvent::Suspended => EventType::Suspended,
        LifecycleEvent::Resumed => EventType::Resumed,
        LifecycleEvent::Cancelled => EventType::Cancelled,
        LifecycleEvent::Resolved => EventType::Resolved,
        LifecycleEvent::Expired => EventType::Expired,
    };
    response(event_type, lifecycle.session.clone(), lifecycle.observed_at_ms)
}

fn response(event_type: EventType, session: SessionMetadata, observed_at_unix_ms: i64) -> WatchSessionsResponse {
    let event = SessionLifecycleEvent { event_type: event_type.into(), session: Some(session), observed_at_unix_ms };
    WatchSessionsResponse { event: Some(event) }
}

/// The next event of the engine, or the status that ends the watch.
async fn event_of<T>(watch: &mut macp_engine::Watch<T>) -> Result<Arc<T>, Status> {
    watch.recv().await.map_err(ended)
}

fn ended(error: WatchError) -> Status {
    match error {
        WatchError::Lagged => status::lagged(),
        WatchError::Closed => status::shutting_down(),
    }
}

/// The next change of a registry or of the roots, or the status that ends the watch.
pub(super) async fn next<T: Clone>(receiver: &mut broadcast::Receiver<T>) -> Result<T, Status> {
    receiver.recv().await.map_err(|error| match error {
        broadcast::error::RecvError::Lagged(_) => status::lagged(),
        broadcast::error::RecvError::Closed => status::shutting_down(),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use macp_ledger::Hash;

    use super::*;

    fn head(session_id: &str) -> Head {
        let hash = Hash::from_bytes([0; 32]);
        let summary = Bytes::new();
        Head { session_id: session_id.into(), sequence: 1, hash, open: true, deadline_ms: 0, state: 1, summary }
    }

    /// STD-RPC-14: whatever is told of a session, CREATED comes first, and once.
    #[test]
    fn every_session_is_told_of_before_what_becomes_of_it() {
        use LifecycleEvent::*;
        let page = [head("d"), head("f")];
        let mut stretch = Stretch::new(Some("c"), &page, Some("f"));
        for (event, session_id, told) in [
            (Suspended, "b", Told::Already),
            (Resolved, "b", Told::Already),
            (Created, "d", Told::Already),
            (Resolved, "d", Told::Already),
            // Ended before the page was read, or began after it was.
            (Expired, "e1", Told::Never),
            (Created, "e2", Told::Already),
            (Cancelled, "e2", Told::Already),
            // A turn and then the end, of one the page did not have any more.
            (Suspended, "e3", Told::Never),
            (Cancelled, "e3", Told::Already),
            (Created, "g", Told::Later),
            (Resumed, "g", Told::Later),
            (Resolved, "g", Told::Never),
        ] {
            assert_eq!(stretch.place(event, session_id), told, "{event:?} {session_id}");
        }
        let mut last = Stretch::new(Some("f"), &[], None);
        assert_eq!(last.place(Created, "z"), Told::Already);
        assert_eq!(last.place(Resolved, "z"), Told::Already);
        assert_eq!(last.place(Resolved, "y"), Told::Never);
    }
}
