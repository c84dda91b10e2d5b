//! A stream of envelopes: each is answered, in order, by one envelope. A refusal does not end the stream.
//!
//! Envelopes are handed to the engine as they arrive, without waiting for earlier answers.

use std::collections::VecDeque;

use macp_kernel::{PROTOCOL_VERSION, State};
use macp_rpc::StreamFrame;
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::stream_session_response::Response;
use macp_wire::v1::{Ack, Envelope};
use serde_json::json;
use tonic::Status;

use super::inbound::Inbound;
use super::pipeline::{Answer, front, submit};
use super::{Frame, invalid};
use crate::access::Access;
use crate::attached::Outlet;
use crate::context::Context;
use crate::metrics::Rpc;
use crate::runtime::send;
use crate::status;

/// Envelopes of one stream that may wait for their answers.
const PIPELINE_MAX: usize = 256;

/// Who answers.
const RUNTIME_SENDER: &str = "_runtime";

type Submitted = (Box<Envelope>, Option<EnvelopeSignature>);

/// Why no more envelopes are taken.
enum End {
    HalfClosed,
    Failed(Status),
}

pub(super) async fn run(
    ctx: &Context,
    access: &Access,
    first: Submitted,
    mut inbound: Inbound,
    outlet: &Outlet<StreamFrame>,
) -> Result<(), Status> {
    let mut answers = VecDeque::new();
    answers.push_back(hand_over(ctx, access, first).await);
    let end = loop {
        tokio::select! {
            // In this order, a stream that is always readable still gets its answers.
            biased;
            answer = front(&mut answers) => {
                answers.pop_front();
                outlet.send(Response::Envelope(answer).into()).await;
            }
            frame = inbound.next(), if answers.len() < PIPELINE_MAX => match frame {
                Ok(Some(Frame::Envelope(envelope, signature))) => {
                    answers.push_back(hand_over(ctx, access, (envelope, signature)).await);
                }
                Ok(Some(Frame::Subscribe { .. })) => {
                    break End::Failed(invalid("this stream carries envelopes; subscribe on another"));
                }
                Ok(None) => break End::HalfClosed,
                Err(status) => break End::Failed(status),
            },
            () = ctx.drain.begun() => break End::Failed(status::shutting_down()),
        }
    };
    while !answers.is_empty() {
        let answer = front(&mut answers).await;
        answers.pop_front();
        outlet.send(Response::Envelope(answer).into()).await;
    }
    match end {
        End::HalfClosed => Ok(()),
        End::Failed(status) => Err(status),
    }
}

/// Gives the envelope to the engine before it returns.
async fn hand_over<'a>(ctx: &'a Context, access: &'a Access, (envelope, signature): Submitted) -> Answer<'a, Envelope> {
    let received = send::receive(ctx, access, &envelope).await;
    submit(async move {
        let _timer = ctx.metrics.time(Rpc::StreamSession);
        let mode = envelope.mode.clone();
        let ack = send::answer(ctx, access, received, *envelope, signature).await.ack;
        answer(mode, ack, ctx.engine.now_ms())
    })
    .await
}

/// An Ack as the envelope that answers on a classic stream.
fn answer(mode: String, ack: Ack, now_ms: i64) -> Envelope {
    let (message_type, prefix, payload) = match &ack.error {
        None => {
            let state = State::from_wire(ack.session_state).map_or("", State::name);
            ("Ack", "ack", json!({"ok": ack.ok, "duplicate": ack.duplicate, "session_state": state}))
        }
        Some(error) => ("Error", "err", json!({"code": error.code, "message": error.message})),
    };
    Envelope {
        macp_version: PROTOCOL_VERSION.to_owned(),
        mode,
        message_type: message_type.to_owned(),
        message_id: format!("{prefix}-{}", ack.message_id),
        session_id: ack.session_id,
        sender: RUNTIME_SENDER.to_owned(),
        timestamp_unix_ms: now_ms,
        payload: payload.to_string().into(),
    }
}
