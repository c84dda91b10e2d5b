//! A stream of envelopes: each is answered, in order, by one envelope. A refusal does not end the stream.
//!
//! Envelopes are handed to the engine as they arrive, without waiting for earlier answers. An answer's future is
//! polled once when its envelope arrives, which is when the engine takes it: the order of arrival is the order of
//! submission.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use macp_kernel::{Caller, PROTOCOL_VERSION, State};
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::{Ack, Envelope, StreamSessionRequest, StreamSessionResponse};
use serde_json::json;
use tonic::{Status, Streaming};

use super::{Frame, delivered, invalid, next};
use crate::context::Context;
use crate::metrics::Rpc;
use crate::outbound::Sink;
use crate::runtime::send;
use crate::status;

/// Envelopes of one stream that may wait for their answers.
const PIPELINE_MAX: usize = 256;

/// Who answers.
const RUNTIME_SENDER: &str = "_runtime";

type Submitted = (Box<Envelope>, Option<EnvelopeSignature>);

/// An envelope on its way, or its answer.
enum Answer<'a> {
    Pending(Pin<Box<dyn Future<Output = Envelope> + Send + 'a>>),
    Ready(Envelope),
}

/// Why no more envelopes are taken.
enum End {
    HalfClosed,
    Failed(Status),
}

pub(super) async fn run(
    ctx: &Context,
    caller: &Caller,
    first: Submitted,
    mut inbound: Streaming<StreamSessionRequest>,
    sink: &Sink<StreamSessionResponse>,
) -> Result<(), Status> {
    let mut answers = VecDeque::new();
    answers.push_back(submit(ctx, caller, first).await);
    let end = loop {
        tokio::select! {
            // In this order, a stream that is always readable still gets its answers.
            biased;
            answer = front(&mut answers) => {
                answers.pop_front();
                sink.send(delivered(answer)).await?;
            }
            frame = next(&mut inbound), if answers.len() < PIPELINE_MAX => match frame {
                Ok(Some(Frame::Envelope(envelope, signature))) => {
                    answers.push_back(submit(ctx, caller, (envelope, signature)).await);
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
        sink.send(delivered(answer)).await?;
    }
    match end {
        End::HalfClosed => Ok(()),
        End::Failed(status) => Err(status),
    }
}

/// Gives the envelope to the engine before it returns.
async fn submit<'a>(ctx: &'a Context, caller: &'a Caller, (envelope, signature): Submitted) -> Answer<'a> {
    let mut answering: Pin<Box<dyn Future<Output = Envelope> + Send + 'a>> = Box::pin(async move {
        let _timer = ctx.metrics.time(Rpc::StreamSession);
        let mode = envelope.mode.clone();
        let ack = send::answer(ctx, caller, *envelope, signature).await;
        answer(mode, ack, ctx.engine.now_ms())
    });
    match poll_fn(|cx| Poll::Ready(answering.as_mut().poll(cx))).await {
        Poll::Ready(answer) => Answer::Ready(answer),
        Poll::Pending => Answer::Pending(answering),
    }
}

/// Waits for the oldest answer, and for ever while there is none. The answer stays in its place until it is popped, so
/// that giving up the wait loses nothing.
async fn front(answers: &mut VecDeque<Answer<'_>>) -> Envelope {
    poll_fn(|cx| {
        let Some(oldest) = answers.front_mut() else {
            return Poll::Pending;
        };
        match oldest {
            Answer::Ready(answer) => Poll::Ready(std::mem::take(answer)),
            Answer::Pending(answering) => answering.as_mut().poll(cx),
        }
    })
    .await
}

/// An Ack as the envelope that answers on a classic stream.
fn answer(mode: String, ack: Ack, now_ms: i64) -> Envelope {
    let (message_type, prefix, payload) = match &ack.error {
        None => {
            let state = State::from_wire(ack.session_state).map_or("", State::classic_name);
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
