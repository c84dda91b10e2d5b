//! `macp.v1.MACPRuntimeService`: which handler answers which call. One file per family of calls.

mod discovery;
mod send;
mod sessions;
mod stream;
mod watches;

use std::sync::Arc;

use macp_rpc::runtime::Service;
use macp_wire::v1::*;
use tonic::{Request, Response, Status, Streaming};

use crate::context::Context;
use crate::metrics::Rpc;
use crate::outbound::Outbound;
use crate::{identity, status};

pub(crate) use send::DECODE_SLACK_BYTES;
pub(crate) use sessions::page_size;

#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    ctx: Arc<Context>,
}

impl Runtime {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        Runtime { ctx }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Service for Runtime {
    type StreamSessionStream = Outbound<StreamSessionResponse>;
    type WatchModeRegistryStream = Outbound<WatchModeRegistryResponse>;
    type WatchRootsStream = Outbound<WatchRootsResponse>;
    type WatchSignalsStream = Outbound<WatchSignalsResponse>;
    type WatchSessionsStream = Outbound<WatchSessionsResponse>;
    type WatchPoliciesStream = Outbound<WatchPoliciesResponse>;

    async fn initialize(&self, request: Request<InitializeRequest>) -> Answer<InitializeResponse> {
        let _timer = self.ctx.metrics.time(Rpc::Initialize);
        discovery::initialize(&request.into_inner()).map(Response::new)
    }

    async fn send(&self, request: Request<SendRequest>) -> Answer<SendResponse> {
        let caller = identity::caller(request.metadata());
        send::send(&self.ctx, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn stream_session(
        &self,
        request: Request<Streaming<StreamSessionRequest>>,
    ) -> Answer<Self::StreamSessionStream> {
        let caller = identity::caller_or_status(request.metadata())?;
        Ok(Response::new(stream::open(&self.ctx, caller, request.into_inner())))
    }

    async fn get_session(&self, request: Request<GetSessionRequest>) -> Answer<GetSessionResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetSession);
        identity::caller_or_status(request.metadata())?;
        sessions::get(&self.ctx, request.get_ref()).await.map(Response::new)
    }

    async fn cancel_session(&self, request: Request<CancelSessionRequest>) -> Answer<CancelSessionResponse> {
        let _timer = self.ctx.metrics.time(Rpc::CancelSession);
        let caller = identity::caller_or_status(request.metadata())?;
        sessions::cancel(&self.ctx, caller, request.into_inner()).await.map(Response::new)
    }

    async fn list_sessions(&self, request: Request<ListSessionsRequest>) -> Answer<ListSessionsResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListSessions);
        identity::caller_or_status(request.metadata())?;
        sessions::list(&self.ctx, request.get_ref()).await.map(Response::new)
    }

    async fn get_manifest(&self, request: Request<GetManifestRequest>) -> Answer<GetManifestResponse> {
        let _timer = self.ctx.metrics.time(Rpc::GetManifest);
        discovery::manifest(&self.ctx.settings.runtime_id, request.get_ref()).map(Response::new)
    }

    async fn list_modes(&self, _request: Request<ListModesRequest>) -> Answer<ListModesResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListModes);
        Ok(Response::new(discovery::modes()))
    }

    async fn list_ext_modes(&self, _request: Request<ListExtModesRequest>) -> Answer<ListExtModesResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListExtModes);
        // No extension mode is built in, and none can be registered.
        Ok(Response::new(ListExtModesResponse::default()))
    }

    async fn list_roots(&self, _request: Request<ListRootsRequest>) -> Answer<ListRootsResponse> {
        let _timer = self.ctx.metrics.time(Rpc::ListRoots);
        Ok(Response::new(ListRootsResponse { roots: self.ctx.roots().to_vec() }))
    }

    async fn watch_mode_registry(
        &self,
        _request: Request<WatchModeRegistryRequest>,
    ) -> Answer<Self::WatchModeRegistryStream> {
        Ok(Response::new(watches::mode_registry(&self.ctx)))
    }

    async fn watch_roots(&self, _request: Request<WatchRootsRequest>) -> Answer<Self::WatchRootsStream> {
        Ok(Response::new(watches::roots(&self.ctx)))
    }

    async fn watch_signals(&self, request: Request<WatchSignalsRequest>) -> Answer<Self::WatchSignalsStream> {
        identity::caller_or_status(request.metadata())?;
        Ok(Response::new(watches::signals(&self.ctx)))
    }

    async fn watch_sessions(&self, request: Request<WatchSessionsRequest>) -> Answer<Self::WatchSessionsStream> {
        identity::caller_or_status(request.metadata())?;
        Ok(Response::new(watches::sessions(&self.ctx)))
    }

    async fn suspend_session(&self, _request: Request<SuspendSessionRequest>) -> Answer<SuspendSessionResponse> {
        Err(status::not_offered("SuspendSession"))
    }

    async fn resume_session(&self, _request: Request<ResumeSessionRequest>) -> Answer<ResumeSessionResponse> {
        Err(status::not_offered("ResumeSession"))
    }

    async fn register_ext_mode(&self, _request: Request<RegisterExtModeRequest>) -> Answer<RegisterExtModeResponse> {
        Err(status::not_offered("RegisterExtMode"))
    }

    async fn unregister_ext_mode(
        &self,
        _request: Request<UnregisterExtModeRequest>,
    ) -> Answer<UnregisterExtModeResponse> {
        Err(status::not_offered("UnregisterExtMode"))
    }

    async fn promote_mode(&self, _request: Request<PromoteModeRequest>) -> Answer<PromoteModeResponse> {
        Err(status::not_offered("PromoteMode"))
    }

    async fn register_policy(&self, _request: Request<RegisterPolicyRequest>) -> Answer<RegisterPolicyResponse> {
        Err(status::not_offered("RegisterPolicy"))
    }

    async fn unregister_policy(&self, _request: Request<UnregisterPolicyRequest>) -> Answer<UnregisterPolicyResponse> {
        Err(status::not_offered("UnregisterPolicy"))
    }

    async fn get_policy(&self, _request: Request<GetPolicyRequest>) -> Answer<GetPolicyResponse> {
        Err(status::not_offered("GetPolicy"))
    }

    async fn list_policies(&self, _request: Request<ListPoliciesRequest>) -> Answer<ListPoliciesResponse> {
        Err(status::not_offered("ListPolicies"))
    }

    async fn watch_policies(&self, _request: Request<WatchPoliciesRequest>) -> Answer<Self::WatchPoliciesStream> {
        Err(status::not_offered("WatchPolicies"))
    }

    async fn what_if_replay(&self, _request: Request<WhatIfReplayRequest>) -> Answer<WhatIfReplayResponse> {
        Err(status::not_offered("WhatIfReplay"))
    }

    async fn get_decision_receipt(
        &self,
        _request: Request<GetDecisionReceiptRequest>,
    ) -> Answer<GetDecisionReceiptResponse> {
        Err(status::not_offered("GetDecisionReceipt"))
    }

    async fn get_receipt_keys(&self, _request: Request<GetReceiptKeysRequest>) -> Answer<GetReceiptKeysResponse> {
        Err(status::not_offered("GetReceiptKeys"))
    }
}
