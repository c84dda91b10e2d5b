//! `macp.v1.MACPRuntimeService`: which handler answers which call. One file per family of calls.

mod discovery;
mod modes;
mod page_token;
mod policies;
mod receipts;
mod relay;
mod send;
mod sessions;
mod standing;
mod stream;
mod watches;
mod what_if;

use std::sync::Arc;

use macp_kernel::{Input, Profile};
use macp_rpc::StreamFrame;
use macp_rpc::runtime::Service;
use macp_wire::v1::*;
use tonic::{Request, Response, Status, Streaming};

use crate::access::Access;
use crate::attached::Attached;
use crate::context::Context;
use crate::identity;
use crate::metrics::Rpc;
use crate::outbound::Outbound;
use crate::requests::MessageBytes;

pub(crate) use page_token::Sealer;
pub(crate) use send::DECODE_SLACK_BYTES;
pub(crate) use sessions::{page_size, readable};
pub(crate) use standing::may_read;

#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    ctx: Arc<Context>,
}

impl Runtime {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        Runtime { ctx }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.ctx
    }

    /// A Send, past the generated service.
    pub(crate) async fn send(&self, access: &Access, request: SendRequest) -> Result<SendResponse, Status> {
        send::send(&self.ctx, access, request).await
    }

    /// A stream, past the generated service.
    pub(crate) fn stream(
        &self,
        access: Access,
        requests: Streaming<StreamSessionRequest>,
        message: MessageBytes,
    ) -> Result<Attached<StreamFrame>, Status> {
        Ok(stream::open(&self.ctx, access.admitted()?, requests, message))
    }

    /// Insists on the right to change the registries, which are those of standard sessions.
    fn administering<T>(&self, request: &Request<T>) -> Result<(), Status> {
        self.access(request).administering()?;
        if discovery::offers(&self.ctx, Profile::Standard) {
            return Ok(());
        }
        Err(Status::unimplemented("modes and policies are registered for standard sessions, and profile is classic"))
    }

    fn access<T>(&self, request: &Request<T>) -> Access {
        identity::of_request(request.extensions())
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Service for Runtime {
    type StreamSessionStream = Attached<StreamFrame>;
    type WatchModeRegistryStream = Outbound<WatchModeRegistryResponse>;
    type WatchRootsStream = Outbound<WatchRootsResponse>;
    type WatchSignalsStream = Outbound<WatchSignalsResponse>;
    type WatchSessionsStream = Outbound<WatchSessionsResponse>;
    type WatchPoliciesStream = Outbound<WatchPoliciesResponse>;

    async fn initialize(&self, request: Request<InitializeRequest>) -> Answer<InitializeResponse> {
        let _timer = self.ctx.metrics.time(Rpc::Initialize);
        discovery::initialize(&self.ctx, &request.into_inner()).map(Response::new)
    }

    async fn send(&self, request: Request<SendRequest>) -> Answer<SendResponse> {
        let access = self.access(&request);
        Runtime::send(self, &access, request.into_inner()).await.map(Response::new)
    }

    async fn stream_session(
        &self,
        request: Request<Streaming<StreamSessionRequest>>,
    ) -> Answer<Self::StreamSessionStream> {
        let access = self.access(&request);
        let message = request.extensions().get::<MessageBytes>().cloned();
        let message = message.expect("calls reach a service through the front, which counts their bytes");
        self.stream(access, request.into_inner(), message).map(Response::new)
    }

    async fn get_session(&self, request: Request<GetSessionRequest>) -> Answer<GetSessionResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetSession);
        let access = self.access(&request).admitted()?;
        sessions::get(&self.ctx, &access, request.get_ref()).await.map(Response::new)
    }

    async fn cancel_session(&self, request: Request<CancelSessionRequest>) -> Answer<CancelSessionResponse> {
        let _timer = self.ctx.metrics.time(Rpc::CancelSession);
        let access = self.access(&request).admitted()?;
        let CancelSessionRequest { session_id, reason } = request.into_inner();
        let ack = sessions::control(&self.ctx, &access, session_id, Input::Cancel { reason }).await?;
        Ok(Response::new(CancelSessionResponse { ack }))
    }

    async fn suspend_session(&self, request: Request<SuspendSessionRequest>) -> Answer<SuspendSessionResponse> {
        let _timer = self.ctx.metrics.time(Rpc::SuspendSession);
        let access = self.access(&request).identified()?;
        let SuspendSessionRequest { session_id, reason } = request.into_inner();
        let ack = sessions::control(&self.ctx, &access, session_id, Input::Suspend { reason }).await?;
        Ok(Response::new(SuspendSessionResponse { ack }))
    }

    async fn resume_session(&self, request: Request<ResumeSessionRequest>) -> Answer<ResumeSessionResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ResumeSession);
        let access = self.access(&request).identified()?;
        let ResumeSessionRequest { session_id, reason } = request.into_inner();
        let ack = sessions::control(&self.ctx, &access, session_id, Input::Resume { reason }).await?;
        Ok(Response::new(ResumeSessionResponse { ack }))
    }

    async fn list_sessions(&self, request: Request<ListSessionsRequest>) -> Answer<ListSessionsResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListSessions);
        let access = self.access(&request).admitted()?;
        sessions::list(&self.ctx, &access, request.get_ref()).await.map(Response::new)
    }

    async fn get_manifest(&self, request: Request<GetManifestRequest>) -> Answer<GetManifestResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetManifest);
        discovery::manifest(&self.ctx, request.get_ref()).map(Response::new)
    }

    async fn list_modes(&self, _request: Request<ListModesRequest>) -> Answer<ListModesResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListModes);
        Ok(Response::new(discovery::modes(&self.ctx)))
    }

    async fn list_ext_modes(&self, _request: Request<ListExtModesRequest>) -> Answer<ListExtModesResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListExtModes);
        Ok(Response::new(discovery::extension_modes(&self.ctx)))
    }

    async fn list_roots(&self, _request: Request<ListRootsRequest>) -> Answer<ListRootsResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListRoots);
        Ok(Response::new(ListRootsResponse { roots: self.ctx.roots().to_vec() }))
    }

    async fn watch_mode_registry(
        &self,
        request: Request<WatchModeRegistryRequest>,
    ) -> Answer<Self::WatchModeRegistryStream> {
        Ok(Response::new(modes::watch(&self.ctx, &self.access(&request))))
    }

    async fn watch_roots(&self, request: Request<WatchRootsRequest>) -> Answer<Self::WatchRootsStream> {
        Ok(Response::new(watches::roots(&self.ctx, &self.access(&request))))
    }

    async fn watch_signals(&self, request: Request<WatchSignalsRequest>) -> Answer<Self::WatchSignalsStream> {
        let access = self.access(&request).admitted()?;
        Ok(Response::new(watches::signals(&self.ctx, access)))
    }

    async fn watch_sessions(&self, request: Request<WatchSessionsRequest>) -> Answer<Self::WatchSessionsStream> {
        let access = self.access(&request).admitted()?;
        Ok(Response::new(watches::sessions(&self.ctx, access)))
    }

    async fn watch_policies(&self, request: Request<WatchPoliciesRequest>) -> Answer<Self::WatchPoliciesStream> {
        let access = self.access(&request).identified()?;
        Ok(Response::new(policies::watch(&self.ctx, &access)))
    }

    async fn register_ext_mode(&self, request: Request<RegisterExtModeRequest>) -> Answer<RegisterExtModeResponse> {
        let _timer = self.ctx.metrics.time(Rpc::RegisterExtMode);
        self.administering(&request)?;
        modes::register(&self.ctx, request.into_inner()).await.map(Response::new)
    }

    async fn unregister_ext_mode(
        &self,
        request: Request<UnregisterExtModeRequest>,
    ) -> Answer<UnregisterExtModeResponse> {
        let _timer = self.ctx.metrics.time(Rpc::UnregisterExtMode);
        self.administering(&request)?;
        modes::unregister(&self.ctx, request.into_inner().mode).await.map(Response::new)
    }

    async fn promote_mode(&self, request: Request<PromoteModeRequest>) -> Answer<PromoteModeResponse> {
        let _timer = self.ctx.metrics.time(Rpc::PromoteMode);
        self.administering(&request)?;
        modes::promote(&self.ctx, request.into_inner()).await.map(Response::new)
    }

    async fn register_policy(&self, request: Request<RegisterPolicyRequest>) -> Answer<RegisterPolicyResponse> {
        let _timer = self.ctx.metrics.time(Rpc::RegisterPolicy);
        self.administering(&request)?;
        policies::register(&self.ctx, request.into_inner()).await.map(Response::new)
    }

    async fn unregister_policy(&self, request: Request<UnregisterPolicyRequest>) -> Answer<UnregisterPolicyResponse> {
        let _timer = self.ctx.metrics.time(Rpc::UnregisterPolicy);
        self.administering(&request)?;
        policies::unregister(&self.ctx, request.into_inner().policy_id).await.map(Response::new)
    }

    async fn get_policy(&self, request: Request<GetPolicyRequest>) -> Answer<GetPolicyResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetPolicy);
        self.access(&request).identified()?;
        policies::get(&self.ctx, &request.get_ref().policy_id).map(Response::new)
    }

    async fn list_policies(&self, request: Request<ListPoliciesRequest>) -> Answer<ListPoliciesResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListPolicies);
        self.access(&request).identified()?;
        Ok(Response::new(policies::list(&self.ctx, &request.get_ref().mode)))
    }

    async fn what_if_replay(&self, request: Request<WhatIfReplayRequest>) -> Answer<WhatIfReplayResponse> {
        let _timer = self.ctx.metrics.time(Rpc::WhatIfReplay);
        let access = self.access(&request).identified()?;
        what_if::replay(&self.ctx, &access, request.into_inner()).await.map(Response::new)
    }

    async fn get_decision_receipt(
        &self,
        request: Request<GetDecisionReceiptRequest>,
    ) -> Answer<GetDecisionReceiptResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetDecisionReceipt);
        let access = self.access(&request).identified()?;
        let session_id = request.into_inner().session_id;
        receipts::receipt(&self.ctx, &access, session_id).await.map(Response::new)
    }

    async fn get_receipt_keys(&self, _request: Request<GetReceiptKeysRequest>) -> Answer<GetReceiptKeysResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetReceiptKeys);
        Ok(Response::new(receipts::keys(&self.ctx)))
    }
}
