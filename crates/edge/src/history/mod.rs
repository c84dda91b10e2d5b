//! `macp.history.v1.HistoryService`: reading, checking and taking away what was written down. Histories are read on
//! threads of their own, a few at a time, and show only what is durable. Whoever stops reading loses the place to
//! others.

mod export;
mod log;
mod replay;
mod verify;

use std::sync::Arc;

use macp_ledger::{Record, Store, record};
use macp_rpc::history::Service;
use macp_wire::codes::Code;
use macp_wire::history::v1::*;
use macp_wire::v1::SessionMetadata;
use prost::Message;
use tonic::{Request, Response, Status};

use crate::access::Access;
use crate::context::Context;
use crate::metrics::Rpc;
use crate::outbound::{BlockingSink, Outbound, produce_buffered};
use crate::rate::Kind;
use crate::{identity, status};

#[derive(Clone, Debug)]
pub(crate) struct History {
    ctx: Arc<Context>,
}

impl History {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        History { ctx }
    }

    /// A history is readable by whoever may read its session. Whose that is comes from the first entry, and the session
    /// is not loaded for it: a damaged history must stay readable, or nobody could tell where the damage is. Asking
    /// takes from the caller's share of requests.
    async fn readable<T>(&self, request: &Request<T>, session_id: &str) -> Result<Access, Status> {
        let access = identity::of_request(request.extensions()).admitted()?;
        self.ctx.take_share(&access, Kind::Message)?;
        let session_id = session_id.to_owned();
        let turn = self.ctx.state_readers.enter(&access).await?;
        let first = blocking(&self.ctx, move |store| {
            let _turn = turn;
            first_record(store, &session_id)
        })
        .await?;
        match owners(&first) {
            Some((profile, session)) => {
                access.check_read_of(profile, &session)?;
                Ok(access)
            }
            // Nobody can say whose it is.
            None if access.local || access.observer => Ok(access),
            None => Err(status::coded(Code::Forbidden, "the first entry is damaged: only observers may look")),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Service for History {
    type ReplaySessionStream = Outbound<ReplaySessionResponse>;
    type ExportSessionStream = Outbound<ExportSessionResponse>;

    async fn get_session_log(&self, request: Request<GetSessionLogRequest>) -> Answer<GetSessionLogResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetSessionLog);
        let access = self.readable(&request, &request.get_ref().session_id).await?;
        log::page(&self.ctx, &access, request.into_inner()).await.map(Response::new)
    }

    async fn replay_session(&self, request: Request<ReplaySessionRequest>) -> Answer<Self::ReplaySessionStream> {
        let access = self.readable(&request, &request.get_ref().session_id).await?;
        replay::replay(&self.ctx, &access, request.into_inner()).await.map(Response::new)
    }

    async fn verify_session(&self, request: Request<VerifySessionRequest>) -> Answer<VerifySessionResponse> {
        let _timer = self.ctx.metrics.time(Rpc::VerifySession);
        let access = self.readable(&request, &request.get_ref().session_id).await?;
        verify::verify(&self.ctx, &access, request.into_inner()).await.map(Response::new)
    }

    async fn export_session(&self, request: Request<ExportSessionRequest>) -> Answer<Self::ExportSessionStream> {
        let access = self.readable(&request, &request.get_ref().session_id).await?;
        export::export(&self.ctx, &access, request.into_inner()).await.map(Response::new)
    }
}

pub(crate) fn first_record(store: &dyn Store, session_id: &str) -> Result<Record, Status> {
    let first = store.read(session_id, 0, 1, 0).map_err(|failure| failed(&failure))?;
    first.into_iter().next().ok_or_else(|| status::session_not_found(session_id))
}

/// Whose a session is, by its first record; none if that is damaged.
pub(crate) fn owners(first: &Record) -> Option<(macp_kernel::Profile, SessionMetadata)> {
    let binding = record::open(&first.bytes).ok()?.binding?;
    let profile = match binding.profile() {
        Profile::Standard => macp_kernel::Profile::Standard,
        Profile::Classic | Profile::Unspecified => macp_kernel::Profile::Classic,
    };
    let Binding { initiator, participants, .. } = *binding;
    Some((profile, SessionMetadata { initiator, participants, ..SessionMetadata::default() }))
}

/// Runs something that blocks on the store.
pub(crate) async fn blocking<T: Send + 'static>(
    ctx: &Context,
    read: impl FnOnce(&dyn Store) -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let store = Arc::clone(ctx.engine.store());
    let reading = tokio::task::spawn_blocking(move || read(&*store));
    reading.await.unwrap_or_else(|panic| Err(status::internal(panic.to_string())))
}

/// Streams what a blocking reader makes, once it is known that the session exists: an unknown one must be refused by
/// the call and not by its stream.
async fn stream<T: Message + 'static>(
    ctx: &Arc<Context>,
    access: &Access,
    session_id: String,
    buffer: usize,
    read: impl FnOnce(&dyn Store, &str, &BlockingSink<T>) -> Result<(), Status> + Send + 'static,
) -> Result<Outbound<T>, Status> {
    let turn = ctx.history_readers.enter(access).await?;
    let session_id = blocking(ctx, move |store| {
        let head = store.head(&session_id).map_err(|failure| failed(&failure))?;
        head.map(|_| ()).ok_or_else(|| status::session_not_found(&session_id))?;
        Ok(session_id)
    })
    .await?;
    let ctx = Arc::clone(ctx);
    Ok(produce_buffered(buffer, &access.memory.queued, |sink| async move {
        let sink = sink.blocking(ctx.drain.clone(), ctx.settings.stalled_reader_timeout);
        blocking(&ctx, move |store| {
            let _turn = turn;
            read(store, &session_id, &sink)
        })
        .await
    }))
}

pub(crate) fn failed(error: &dyn std::error::Error) -> Status {
    status::internal(status::with_causes(error))
}
