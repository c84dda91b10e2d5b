//! The kernel as the runtime under test: nothing between the script and the rules, so everything can be seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use macp_kernel::policy::{self, Policy};
use macp_kernel::replay::{self, Replayer};
use macp_kernel::{Caller, Command, Input, Limits, Registered, SESSION_START, Session, Settled, SignatureCheck, step};
use macp_wire::history::v1::{Entry, entry};
use macp_wire::v1::{Envelope, PolicyDescriptor, SessionStartPayload, SessionState};
use prost::Message as _;
use serde_json::Value;

use crate::driver::{Clock, Driver, SessionRef, Submission, Trouble, Verdict};

/// Where the clock stands before a script that does not set it.
const BEGINNING_MS: i64 = 1_700_000_000_000;

/// Plays fixtures on the kernel.
#[derive(Debug)]
pub struct KernelDriver {
    limits: Limits,
    policies: BTreeMap<String, Arc<Policy>>,
    sessions: BTreeMap<String, Recorded>,
    clock_ms: i64,
}

/// A session with everything that was written down of it.
#[derive(Debug, Default)]
struct Recorded {
    slot: Option<Session>,
    history: Vec<Entry>,
}

impl KernelDriver {
    pub fn new(limits: Limits) -> KernelDriver {
        KernelDriver { limits, policies: BTreeMap::new(), sessions: BTreeMap::new(), clock_ms: BEGINNING_MS }
    }

    fn session(&self, session: &SessionRef) -> Result<(&Session, &[Entry]), Trouble> {
        let recorded = self.sessions.get(&session.id);
        let found = recorded.and_then(|recorded| Some((recorded.slot.as_ref()?, recorded.history.as_slice())));
        found.ok_or_else(|| Trouble::new("looking at the session", format!("there is no session {:?}", session.id)))
    }

    /// What a registry would find for an envelope. A payload that cannot be read names no policy; refusing it is not
    /// the registry's business.
    fn registered(&self, envelope: &Envelope) -> Registered {
        let policy = (envelope.message_type == SESSION_START)
            .then(|| SessionStartPayload::decode(envelope.payload.clone()).ok())
            .flatten()
            .and_then(|start| self.policies.get(&start.policy_version).cloned());
        Registered { policy, extension: None }
    }
}

impl Default for KernelDriver {
    fn default() -> Self {
        KernelDriver::new(Limits::default())
    }
}

impl Driver for KernelDriver {
    fn clock(&self) -> Clock {
        Clock::Controlled
    }

    fn now_ms(&self) -> i64 {
        self.clock_ms
    }

    async fn register(&mut self, policy: &PolicyDescriptor) -> Result<(), Trouble> {
        let registered = policy::validate(policy)
            .map_err(|error| Trouble::new(format!("policy {:?} is refused", policy.policy_id), error))?;
        self.policies.insert(policy.policy_id.clone(), Arc::new(registered));
        Ok(())
    }

    async fn send(&mut self, submission: Submission) -> Result<Verdict, Trouble> {
        let Submission { envelope, accepted_at_ms } = submission;
        let now = accepted_at_ms.unwrap_or_else(|| {
            self.clock_ms += 1;
            self.clock_ms
        });
        let registered = self.registered(&envelope);
        let session_id = envelope.session_id.clone();
        let command = Command {
            caller: Caller::identified(envelope.sender.as_str()),
            input: Input::Envelope { envelope, signature: SignatureCheck::Absent, registered },
        };
        let recorded = self.sessions.entry(session_id).or_default();
        let outcome = step(&mut recorded.slot, &command, now, &self.limits);
        recorded.history.extend(outcome.entries);
        Ok(match outcome.settled {
            Settled::Accepted { .. } => Verdict::Accepted,
            Settled::Duplicate { .. } | Settled::Unchanged => Verdict::Duplicate,
            Settled::Rejected(rejection) => {
                Verdict::Refused { code: rejection.code.to_string(), message: rejection.message }
            }
        })
    }

    async fn state(&mut self, session: &SessionRef) -> Result<SessionState, Trouble> {
        Ok(self.session(session)?.0.state().to_wire())
    }

    async fn history(&mut self, session: &SessionRef) -> Result<Vec<Envelope>, Trouble> {
        let (_, history) = self.session(session)?;
        Ok(history.iter().filter_map(envelope).cloned().collect())
    }

    async fn resolution(&mut self, session: &SessionRef) -> Result<Option<Bytes>, Trouble> {
        Ok(self.session(session)?.0.resolution().cloned())
    }

    async fn mode_state(&mut self, session: &SessionRef) -> Result<Option<Value>, Trouble> {
        Ok(Some(self.session(session)?.0.describe_mode()))
    }

    async fn replay(&mut self, session: &SessionRef) -> Result<Option<Vec<String>>, Trouble> {
        let (live, history) = self.session(session)?;
        let mut replayer = Replayer::new(replay::Options::default());
        // Through the bytes that would be stored, so that nothing can come from anywhere else.
        for entry in history {
            let stored = Entry::decode(entry.encode_to_vec().as_slice())
                .map_err(|error| Trouble::new("reading the stored history", error))?;
            if let Err(stop) = replayer.feed(&stored) {
                return Ok(Some(vec![stop.to_string()]));
            }
        }
        Ok(Some(match replayer.session() {
            Some(replayed) => differences(live, replayed, history),
            None => vec!["the history gives no session".to_owned()],
        }))
    }
}

fn envelope(entry: &Entry) -> Option<&Envelope> {
    match &entry.input {
        Some(entry::Input::Envelope(envelope)) => Some(envelope),
        _ => None,
    }
}

/// What replay must reproduce (STD-REPL-13): state, resolution, mode state and the accepted ids; and whatever else a
/// session consists of.
fn differences(live: &Session, replayed: &Session, history: &[Entry]) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |what: &str, live: String, replayed: String| {
        if live != replayed {
            differences.push(format!("{what}: was {live}, came out as {replayed}"));
        }
    };
    compare("state", format!("{:?}", live.state()), format!("{:?}", replayed.state()));
    compare("resolution", format!("{:?}", live.resolution()), format!("{:?}", replayed.resolution()));
    compare("mode state", live.describe_mode().to_string(), replayed.describe_mode().to_string());
    for envelope in history.iter().filter_map(envelope) {
        let id = &envelope.message_id;
        let accepted_at = |session: &Session| format!("{:?}", session.accepted_at(id));
        compare(&format!("acceptance of {id:?}"), accepted_at(live), accepted_at(replayed));
    }
    if differences.is_empty() && live != replayed {
        differences.push(format!("the session: was {live:?}, came out as {replayed:?}"));
    }
    differences
}

#[cfg(test)]
mod tests {
    use macp_wire::modes::decision::v1::ProposalPayload;

    use super::*;

    fn submission(message_type: &str, message_id: &str, payload: Vec<u8>) -> Submission {
        let envelope = Envelope {
            macp_version: "1.0".to_owned(),
            mode: "macp.mode.decision.v1".to_owned(),
            message_type: message_type.to_owned(),
            message_id: message_id.to_owned(),
            session_id: "6f1c2a4e-8b3d-4c5e-9a7f-1b2c3d4e5f60".to_owned(),
            sender: "agent://a".to_owned(),
            timestamp_unix_ms: 0,
            payload: payload.into(),
        };
        Submission { envelope, accepted_at_ms: None }
    }

    /// A session with two proposals in it, and where to find it.
    async fn played() -> (KernelDriver, SessionRef) {
        let start = SessionStartPayload {
            participants: vec!["agent://a".to_owned()],
            mode_version: "1.0.0".to_owned(),
            configuration_version: "c".to_owned(),
            ttl_ms: 60_000,
            ..SessionStartPayload::default()
        };
        let proposal =
            |id: &str| ProposalPayload { proposal_id: id.to_owned(), option: "o".to_owned(), ..Default::default() };
        let mut driver = KernelDriver::default();
        let mut id = String::new();
        for submission in [
            submission("SessionStart", "m0", start.encode_to_vec()),
            submission("Proposal", "m1", proposal("p1").encode_to_vec()),
            submission("Proposal", "m2", proposal("p2").encode_to_vec()),
        ] {
            id.clone_from(&submission.envelope.session_id);
            assert_eq!(driver.send(submission).await.expect("an answer"), Verdict::Accepted);
        }
        (driver, SessionRef { id, initiator: "agent://a".to_owned() })
    }

    async fn replayed(tamper: impl FnOnce(&mut Vec<Entry>)) -> Vec<String> {
        let (mut driver, session) = played().await;
        tamper(&mut driver.sessions.get_mut(&session.id).expect("played").history);
        driver.replay(&session).await.expect("a replay").expect("this driver can replay")
    }

    #[tokio::test]
    async fn std_repl_13_a_history_that_gives_another_session_is_found() {
        assert_eq!(replayed(|_| ()).await, [""; 0]);
        let shortened = replayed(|history| drop(history.pop())).await;
        let [state] = shortened.as_slice() else { panic!("{shortened:?}") };
        assert!(state.starts_with("mode state: was ") && state.contains("p2"), "{state}");
        let tampered = replayed(|history| match &mut history[2].input {
            Some(entry::Input::Envelope(envelope)) => envelope.message_id = "m1".to_owned(),
            other => panic!("{other:?} is no envelope"),
        })
        .await;
        assert_eq!(tampered.len(), 1, "{tampered:?}");
        assert_eq!(replayed(Vec::clear).await, ["the history gives no session"]);
    }
}
