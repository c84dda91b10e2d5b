//! The ceiling: a server that decodes the same request and answers it at once, on the same runtime and allocator.

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

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'a>>;

fn refused<'a, T: 'a>() -> Answer<'a, T> {
    Box::pin(async { Err(Status::unimplemented("the echo server only echoes")) })
}

/// Every RPC but Send is out of scope here. Written out as the trait's own macro would, which does not look into ours.
macro_rules! refuse {
    ($($name:ident: $request:ident -> $response:ty;)*) => {
        $(fn $name<'a, 'b>(&'a self, _: Request<v1::$request>) -> Answer<'b, $response>
        where
            'a: 'b,
            Self: 'b,
        {
            refused()
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

    type StreamSessionStream = Streaming<macp_rpc::StreamFrame>;
    async fn stream_session(
        &self,
        _: Request<tonic::Streaming<v1::StreamSessionRequest>>,
    ) -> Result<Response<Self::StreamSessionStream>, Status> {
        Err(Status::unimplemented("the echo server only echoes"))
    }

    type WatchModeRegistryStream = Streaming<v1::WatchModeRegistryResponse>;
    type WatchRootsStream = Streaming<v1::WatchRootsResponse>;
    type WatchSignalsStream = Streaming<v1::WatchSignalsResponse>;
    type WatchSessionsStream = Streaming<v1::WatchSessionsResponse>;
    type WatchPoliciesStream = Streaming<v1::WatchPoliciesResponse>;

    refuse! {
        watch_mode_registry: WatchModeRegistryRequest -> Self::WatchModeRegistryStream;
        watch_roots: WatchRootsRequest -> Self::WatchRootsStream;
        watch_signals: WatchSignalsRequest -> Self::WatchSignalsStream;
        watch_sessions: WatchSessionsRequest -> Self::WatchSessionsStream;
        watch_policies: WatchPoliciesRequest -> Self::WatchPoliciesStream;
        initialize: InitializeRequest -> v1::InitializeResponse;
        get_session: GetSessionRequest -> v1::GetSessionResponse;
        cancel_session: CancelSessionRequest -> v1::CancelSessionResponse;
        suspend_session: SuspendSessionRequest -> v1::SuspendSessionResponse;
        resume_session: ResumeSessionRequest -> v1::ResumeSessionResponse;
        get_manifest: GetManifestRequest -> v1::GetManifestResponse;
        list_modes: ListModesRequest -> v1::ListModesResponse;
        list_roots: ListRootsRequest -> v1::ListRootsResponse;
        list_ext_modes: ListExtModesRequest -> v1::ListExtModesResponse;
        register_ext_mode: RegisterExtModeRequest -> v1::RegisterExtModeResponse;
        unregister_ext_mode: UnregisterExtModeRequest -> v1::UnregisterExtModeResponse;
        promote_mode: PromoteModeRequest -> v1::PromoteModeResponse;
        list_sessions: ListSessionsRequest -> v1::ListSessionsResponse;
        register_policy: RegisterPolicyRequest -> v1::RegisterPolicyResponse;
        unregister_policy: UnregisterPolicyRequest -> v1::UnregisterPolicyResponse;
        get_policy: GetPolicyRequest -> v1::GetPolicyResponse;
        list_policies: ListPoliciesRequest -> v1::ListPoliciesResponse;
        what_if_replay: WhatIfReplayRequest -> v1::WhatIfReplayResponse;
        get_decision_receipt: GetDecisionReceiptRequest -> v1::GetDecisionReceiptResponse;
        get_receipt_keys: GetReceiptKeysRequest -> v1::GetReceiptKeysResponse;
    }
}
