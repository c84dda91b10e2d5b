//! The ceiling: a server that decodes the same request and answers it at once.

use std::pin::Pin;

use macp_rpc::runtime::{Server, Service};
use macp_wire::v1::{self, Ack, SendRequest, SendResponse, SessionState};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

#[derive(Debug)]
struct Echo;

/// Serves until killed; the first line says where.
pub async fn serve() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    let incoming = TcpListenerStream::new(listener).map(|socket| {
        socket.and_then(|socket| {
            socket.set_nodelay(true)?;
            Ok(socket)
        })
    });
    tonic::transport::Server::builder().add_service(Server::new(Echo)).serve_with_incoming(incoming).await?;
    Ok(())
}

type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Every RPC but Send is out of scope here.
macro_rules! refuse {
    ($($name:ident: $request:ident -> $response:ident;)*) => {
        $(async fn $name(&self, _: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
            Err(Status::unimplemented("the echo server only echoes"))
        })*
    };
}

macro_rules! refuse_stream {
    ($($name:ident, $stream:ident: $request:ident -> $response:ident;)*) => {
        $(type $stream = Streaming<v1::$response>;
        async fn $name(&self, _: Request<v1::$request>) -> Result<Response<Self::$stream>, Status> {
            Err(Status::unimplemented("the echo server only echoes"))
        })*
    };
}

#[tonic::async_trait]
impl Service for Echo {
    async fn send(&self, request: Request<SendRequest>) -> Result<Response<SendResponse>, Status> {
        let envelope = request.into_inner().envelope.unwrap_or_default();
        let ack = Ack {
            ok: true,
            message_id: envelope.message_id,
            session_id: envelope.session_id,
            accepted_at_unix_ms: envelope.timestamp_unix_ms,
            session_state: SessionState::Open.into(),
            ..Ack::default()
        };
        Ok(Response::new(SendResponse { ack: Some(ack) }))
    }

    type StreamSessionStream = Streaming<v1::StreamSessionResponse>;
    async fn stream_session(
        &self,
        _: Request<tonic::Streaming<v1::StreamSessionRequest>>,
    ) -> Result<Response<Self::StreamSessionStream>, Status> {
        Err(Status::unimplemented("the echo server only echoes"))
    }

    refuse! {
        initialize: InitializeRequest -> InitializeResponse;
        get_session: GetSessionRequest -> GetSessionResponse;
        cancel_session: CancelSessionRequest -> CancelSessionResponse;
        suspend_session: SuspendSessionRequest -> SuspendSessionResponse;
        resume_session: ResumeSessionRequest -> ResumeSessionResponse;
        get_manifest: GetManifestRequest -> GetManifestResponse;
        list_modes: ListModesRequest -> ListModesResponse;
        list_roots: ListRootsRequest -> ListRootsResponse;
        list_ext_modes: ListExtModesRequest -> ListExtModesResponse;
        register_ext_mode: RegisterExtModeRequest -> RegisterExtModeResponse;
        unregister_ext_mode: UnregisterExtModeRequest -> UnregisterExtModeResponse;
        promote_mode: PromoteModeRequest -> PromoteModeResponse;
        list_sessions: ListSessionsRequest -> ListSessionsResponse;
        register_policy: RegisterPolicyRequest -> RegisterPolicyResponse;
        unregister_policy: UnregisterPolicyRequest -> UnregisterPolicyResponse;
        get_policy: GetPolicyRequest -> GetPolicyResponse;
        list_policies: ListPoliciesRequest -> ListPoliciesResponse;
        what_if_replay: WhatIfReplayRequest -> WhatIfReplayResponse;
        get_decision_receipt: GetDecisionReceiptRequest -> GetDecisionReceiptResponse;
        get_receipt_keys: GetReceiptKeysRequest -> GetReceiptKeysResponse;
    }

    refuse_stream! {
        watch_mode_registry, WatchModeRegistryStream: WatchModeRegistryRequest -> WatchModeRegistryResponse;
        watch_roots, WatchRootsStream: WatchRootsRequest -> WatchRootsResponse;
        watch_signals, WatchSignalsStream: WatchSignalsRequest -> WatchSignalsResponse;
        watch_sessions, WatchSessionsStream: WatchSessionsRequest -> WatchSessionsResponse;
        watch_policies, WatchPoliciesStream: WatchPoliciesRequest -> WatchPoliciesResponse;
    }
}
