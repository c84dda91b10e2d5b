//! A running server as the runtime under test, seen through its RPCs alone.
//!
//! It must believe bearer tokens to be identities, as a server in local development mode does: each envelope is sent
//! with its sender as the credential (STD-CONF-3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use macp_client::{Client, Error};
use macp_wire::v1::{Envelope, PolicyDescriptor, RegisterPolicyRequest, SessionState, UnregisterPolicyRequest};
use serde_json::Value;

use crate::driver::{Clock, Driver, SessionRef, Submission, Trouble, Verdict};

/// Who registers the policies of fixtures.
const REGISTRAR: &str = "macp-conformance";

/// Nothing arriving for this long means that a stored history was delivered whole.
const SILENCE: Duration = Duration::from_millis(250);

/// Most that a server may take to start answering a subscription.
const PATIENCE: Duration = Duration::from_secs(10);

/// Plays fixtures on a server.
#[derive(Clone, Debug)]
pub struct GrpcDriver {
    client: Client,
}

impl GrpcDriver {
    pub fn new(client: Client) -> GrpcDriver {
        GrpcDriver { client }
    }

    fn client_as(&self, identity: &str) -> Result<Client, Trouble> {
        let client = self.client.clone().with_token(identity);
        client.map_err(|error| Trouble::new(format!("{identity:?} cannot be a credential"), error))
    }

    /// Answers what the server says against a registration; none when it went well.
    async fn try_register(&self, policy: &PolicyDescriptor) -> Result<Option<String>, Trouble> {
        let request = RegisterPolicyRequest { policy_descriptor: Some(policy.clone()) };
        let (mut runtime, _) = self.client_as(REGISTRAR)?.stubs();
        let failed = |status| Trouble::new(format!("registering policy {:?}", policy.policy_id), Error::from(status));
        let answer = runtime.register_policy(request).await.map_err(failed)?.into_inner();
        Ok((!answer.ok).then_some(answer.error))
    }

    async fn unregister(&self, policy_id: &str) -> Result<(), Trouble> {
        let request = UnregisterPolicyRequest { policy_id: policy_id.to_owned() };
        let (mut runtime, _) = self.client_as(REGISTRAR)?.stubs();
        let failed = |status| Trouble::new(format!("unregistering policy {policy_id:?}"), Error::from(status));
        runtime.unregister_policy(request).await.map_err(failed)?;
        Ok(())
    }
}

impl Driver for GrpcDriver {
    fn clock(&self) -> Clock {
        Clock::Own
    }

    fn now_ms(&self) -> i64 {
        // A clock before 1970 gives no timestamp at all, which the protocol allows.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// A server may have the policy from an earlier run: then it is taken away first.
    async fn register(&mut self, policy: &PolicyDescriptor) -> Result<(), Trouble> {
        if self.try_register(policy).await?.is_none() {
            return Ok(());
        }
        self.unregister(&policy.policy_id).await?;
        match self.try_register(policy).await? {
            None => Ok(()),
            Some(error) => Err(Trouble::new(format!("the server refuses policy {:?}", policy.policy_id), error)),
        }
    }

    async fn send(&mut self, submission: Submission) -> Result<Verdict, Trouble> {
        let envelope = submission.envelope;
        let place = format!("sending {} {}", envelope.message_type, envelope.message_id);
        let client = self.client_as(&envelope.sender)?;
        match client.send(envelope).await {
            Ok(ack) if ack.ok => Ok(if ack.duplicate { Verdict::Duplicate } else { Verdict::Accepted }),
            Ok(ack) => {
                let error = ack.error.unwrap_or_default();
                Ok(Verdict::Refused { code: error.code, message: error.message })
            }
            // A refusal outside the Ack is unusual and still a refusal, if it names its code.
            Err(error) => match error.code() {
                Some(code) => Ok(Verdict::Refused { code: code.to_owned(), message: error.to_string() }),
                None => Err(Trouble::new(place, error)),
            },
        }
    }

    async fn state(&mut self, session: &SessionRef) -> Result<SessionState, Trouble> {
        let client = self.client_as(&session.initiator)?;
        let metadata = client.get_session(&session.id).await;
        Ok(metadata.map_err(|error| Trouble::new("reading the session", error))?.state())
    }

    async fn history(&mut self, session: &SessionRef) -> Result<Vec<Envelope>, Trouble> {
        let client = self.client_as(&session.initiator)?;
        let failed = |error: Error| Trouble::new("reading the history", error);
        let mut conversation = client.subscribe(&session.id, 0).await.map_err(failed)?;
        let mut history = Vec::new();
        loop {
            let patience = if history.is_empty() { PATIENCE } else { SILENCE };
            match tokio::time::timeout(patience, conversation.next()).await {
                Ok(Ok(Some(envelope))) => history.push(envelope),
                Ok(Err(error)) => return Err(failed(error)),
                Ok(Ok(None)) | Err(_) => return Ok(history),
            }
        }
    }

    /// No RPC shows a resolution: it is the payload of the last Commitment that became history.
    async fn resolution(&mut self, session: &SessionRef) -> Result<Option<Bytes>, Trouble> {
        let history = self.history(session).await?;
        let last = history.into_iter().rfind(|envelope| envelope.message_type == "Commitment");
        Ok(last.map(|envelope| envelope.payload))
    }

    async fn mode_state(&mut self, _session: &SessionRef) -> Result<Option<Value>, Trouble> {
        Ok(None)
    }

    async fn replay(&mut self, _session: &SessionRef) -> Result<Option<Vec<String>>, Trouble> {
        Ok(None)
    }
}
