//! Streams of answers, with the protocol's refusals told apart from a broken stream.

use std::fmt;

use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::stream_session_response::Response;
use macp_wire::v1::{Envelope, SessionState, StreamSessionRequest, StreamSessionResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{Client, Error, Refusal};

/// Requests of a conversation that may wait for the network.
const REQUESTS_WAITING_MAX: usize = 256;

/// Messages of one kind arriving from a server.
pub struct Incoming<M, T> {
    messages: Streaming<M>,
    read: fn(M) -> Result<T, Error>,
}

impl<M, T> fmt::Debug for Incoming<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

impl<M, T> Incoming<M, T> {
    pub(crate) fn new(messages: Streaming<M>, read: fn(M) -> Result<T, Error>) -> Self {
        Incoming { messages, read }
    }

    /// The next message; none when the server has ended the stream.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        match self.messages.message().await? {
            Some(message) => (self.read)(message).map(Some),
            None => Ok(None),
        }
    }
}

/// A StreamSession call: envelopes both ways.
#[derive(Debug)]
pub struct Conversation {
    /// Kept open as long as the conversation lasts: a server may take its end for the end of the conversation.
    requests: mpsc::Sender<StreamSessionRequest>,
    answers: Incoming<StreamSessionResponse, Envelope>,
}

impl Conversation {
    /// Sends an envelope. False when the conversation has ended; [`Conversation::next`] tells why.
    pub async fn send(&self, envelope: impl Into<Envelope>) -> bool {
        self.request(StreamSessionRequest { envelope: Some(envelope.into()), ..StreamSessionRequest::default() }).await
    }

    /// Sends an envelope with a signature beside it.
    pub async fn send_signed(&self, envelope: Envelope, signature: EnvelopeSignature) -> bool {
        let request = StreamSessionRequest {
            envelope: Some(envelope),
            signature: Some(signature),
            ..StreamSessionRequest::default()
        };
        self.request(request).await
    }

    /// The next envelope; none when the server has ended the conversation. After [`Error::Refused`] it goes on.
    pub async fn next(&mut self) -> Result<Option<Envelope>, Error> {
        self.answers.next().await
    }

    async fn request(&self, request: StreamSessionRequest) -> bool {
        self.requests.send(request).await.is_ok()
    }
}

impl Client {
    /// Opens a conversation with an envelope.
    pub async fn converse(&self, first: impl Into<Envelope>) -> Result<Conversation, Error> {
        self.open(StreamSessionRequest { envelope: Some(first.into()), ..StreamSessionRequest::default() }).await
    }

    /// Follows a session: the accepted envelopes after the given position, then new ones as they are accepted.
    pub async fn subscribe(&self, session_id: &str, after: u64) -> Result<Conversation, Error> {
        let request = StreamSessionRequest {
            subscribe_session_id: session_id.to_owned(),
            after_sequence: after,
            ..StreamSessionRequest::default()
        };
        self.open(request).await
    }

    async fn open(&self, first: StreamSessionRequest) -> Result<Conversation, Error> {
        let (requests, receiver) = mpsc::channel(REQUESTS_WAITING_MAX);
        // The channel has room and its receiver is here, so this cannot fail.
        let sent = requests.try_send(first);
        debug_assert!(sent.is_ok());
        let answers = self.runtime.clone().stream_session(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Conversation { requests, answers: Incoming::new(answers, read) })
    }
}

fn read(message: StreamSessionResponse) -> Result<Envelope, Error> {
    match message.response {
        Some(Response::Envelope(envelope)) => Ok(envelope),
        Some(Response::Error(error)) => Err(Refusal::new(error, SessionState::Unspecified).into()),
        None => Err(Error::Incomplete("response")),
    }
}
