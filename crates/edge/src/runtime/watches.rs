//! The watches: streams of what happens to everything, from now on. They end by lag, drain or the client's leave.

use std::collections::HashSet;
use std::sync::Arc;

use macp_engine::{Engine, Lifecycle, LifecycleEvent, Signal};
use macp_ledger::Filter;
use macp_wire::v1::session_lifecycle_event::EventType;
use macp_wire::v1::{
    RootsChanged, SessionLifecycleEvent, SessionMetadata, WatchRootsResponse, WatchSessionsResponse,
    WatchSignalsResponse,
};
use tokio::sync::broadcast;
use tonic::Status;

use super::sessions::{HEADS_AT_ONCE, metadata};
use crate::access::Access;
use crate::context::Context;
use crate::outbound::{Outbound, Sink, produce_until_drained};
use crate::status;

/// How long after the sync a session it told of may still be announced as created. The announcement follows the
/// listing's source, the commit, within one turn of a shard.
const ANNOUNCED_WITHIN_MS: i64 = 60_000;

pub(super) fn roots(ctx: &Context) -> Outbound<WatchRootsResponse> {
    let mut changes = ctx.watch_roots();
    let now = ctx.engine.now_ms();
    produce_until_drained(&ctx.drain, |sink| async move {
        let changed = |observed_at_unix_ms| WatchRootsResponse { change: Some(RootsChanged { observed_at_unix_ms }) };
        sink.send(changed(now)).await?;
        loop {
            sink.send(changed(next(&mut changes).await?)).await?;
        }
    })
}

pub(super) fn signals(ctx: &Context, access: Access) -> Outbound<WatchSignalsResponse> {
    let mut signals = ctx.engine.watch_signals();
    produce_until_drained(&ctx.drain, |sink| async move {
        loop {
            let signal = next(&mut signals).await?;
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
pub(super) fn sessions(ctx: &Context, access: Access) -> Outbound<WatchSessionsResponse> {
    let mut live = ctx.engine.watch_lifecycle();
    let engine = ctx.engine.clone();
    produce_until_drained(&ctx.drain, |sink| async move {
        let mut told = sync(&engine, &access, &sink).await?;
        let told_until_ms = engine.now_ms().saturating_add(ANNOUNCED_WITHIN_MS);
        loop {
            let lifecycle = next(&mut live).await?;
            if lifecycle.observed_at_ms > told_until_ms {
                told = HashSet::new();
            }
            let created = lifecycle.event == LifecycleEvent::Created;
            if !access.sees(&lifecycle.session) {
                continue;
            }
            if created && told.remove(lifecycle.session.session_id.as_str()) {
                continue;
            }
            sink.send(event(&lifecycle)).await?;
        }
    })
}

/// One CREATED event for every session that has not ended; returns their ids.
async fn sync(
    engine: &Engine,
    access: &Access,
    sink: &Sink<WatchSessionsResponse>,
) -> Result<HashSet<Arc<str>>, Status> {
    let mut told = HashSet::new();
    let mut after: Option<Arc<str>> = None;
    loop {
        let (store, from) = (Arc::clone(engine.store()), after.clone());
        let page = tokio::task::spawn_blocking(move || store.list(from.as_deref(), HEADS_AT_ONCE, Filter::Open))
            .await
            .map_err(|error| status::internal(error.to_string()))?
            .map_err(|failure| status::internal(status::with_causes(&failure)))?;
        for head in &page {
            let session = metadata(head);
            if !access.sees(&session) {
                continue;
            }
            let observed_at_ms = session.started_at_unix_ms;
            sink.send(response(EventType::Created, session, observed_at_ms)).await?;
            told.insert(Arc::clone(&head.session_id));
        }
        match page.last() {
            Some(last) if page.len() == HEADS_AT_ONCE => after = Some(Arc::clone(&last.session_id)),
            _ => return Ok(told),
        }
    }
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

/// The next live event, or the status that ends the watch.
pub(super) async fn next<T: Clone>(receiver: &mut broadcast::Receiver<T>) -> Result<T, Status> {
    receiver.recv().await.map_err(|error| match error {
        broadcast::error::RecvError::Lagged(_) => status::lagged(),
        broadcast::error::RecvError::Closed => status::shutting_down(),
    })
}
