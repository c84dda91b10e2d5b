//! A fixture: the script of one session, and what must be true of it.

use macp_wire::v1::{PolicyDescriptor, SessionState};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::read::{Object, ReadError};

/// One session to play through.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixture {
    pub description: String,
    pub mode: String,
    pub initiator: String,
    pub participants: Vec<String>,
    pub mode_version: String,
    pub configuration_version: String,
    /// Empty stands for the default policy.
    pub policy_version: String,
    pub ttl_ms: i64,
    /// To be registered before the session starts.
    pub policy: Option<PolicyDescriptor>,
    pub messages: Vec<Message>,
    pub expected_final_state: FinalState,
    pub expect_resolution_present: Option<bool>,
    pub expected_resolution: Option<Value>,
    pub expected_mode_state: Option<Value>,
    /// The accepted envelopes after the start, no more and no fewer.
    pub expected_history: Option<Vec<ExpectedEntry>>,
    pub verify_replay_equivalence: bool,
}

/// One envelope to submit.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub sender: String,
    pub message_type: String,
    /// Full name of the protobuf message.
    pub payload_type: String,
    pub payload: Map<String, Value>,
    pub expect: Expectation,
    pub expected_error_code: Option<String>,
    pub envelope: Overrides,
    /// The runtime's clock when it decides on this one.
    pub accepted_at_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expectation {
    Accept,
    Reject,
}

/// Fields of the envelope that are not what the harness would choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub session_id: Option<String>,
    pub macp_version: Option<String>,
    pub mode: Option<String>,
    pub timestamp_unix_ms: Option<i64>,
    /// Not in the public schema: lets a script send a message again.
    pub message_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum FinalState {
    Open,
    Suspended,
    Resolved,
    Expired,
    Cancelled,
}

impl FinalState {
    pub fn to_wire(self) -> SessionState {
        match self {
            FinalState::Open => SessionState::Open,
            FinalState::Suspended => SessionState::Suspended,
            FinalState::Resolved => SessionState::Resolved,
            FinalState::Expired => SessionState::Expired,
            FinalState::Cancelled => SessionState::Cancelled,
        }
    }
}

/// An envelope of the accepted history.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedEntry {
    pub message_type: String,
    pub sender: String,
    pub payload: Option<Value>,
    /// The runtime wrote it; no message of the script did.
    pub synthetic: bool,
}

impl Fixture {
    pub fn parse(text: &str) -> Result<Fixture, ReadError> {
        let mut object = Object::parse(text)?;
        let fixture = Fixture {
            description: object.optional("description")?.unwrap_or_default(),
            mode: object.required("mode")?,
            initiator: object.required("initiator")?,
            participants: object.required("participants")?,
            mode_version: object.required("mode_version")?,
            configuration_version: object.required("configuration_version")?,
            policy_version: object.optional("policy_version")?.unwrap_or_default(),
            ttl_ms: object.required("ttl_ms")?,
            policy: object.object("policy")?.map(policy).transpose()?,
            messages: messages(&mut object)?,
            expected_final_state: object.required("expected_final_state")?,
            expect_resolution_present: object.optional("expect_resolution_present")?,
            expected_resolution: object.free("expected_resolution")?.map(Value::Object),
            expected_mode_state: object.free("expected_mode_state")?.map(Value::Object),
            expected_history: object
                .objects("expected_history")?
                .map(|entries| entries.into_iter().map(expected_entry).collect())
                .transpose()?,
            verify_replay_equivalence: object.optional("verify_replay_equivalence")?.unwrap_or(true),
        };
        object.end()?;
        Ok(fixture)
    }

    /// Whether the script says at which time each message is decided.
    pub fn is_clocked(&self) -> bool {
        self.messages.iter().any(|message| message.accepted_at_ms.is_some())
    }
}

fn messages(object: &mut Object) -> Result<Vec<Message>, ReadError> {
    let read = object.objects("messages")?.unwrap_or_default().into_iter().map(message);
    let messages: Vec<Message> = read.collect::<Result<_, _>>()?;
    if messages.is_empty() {
        return Err(object.invalid("messages", "a script has at least one message"));
    }
    let times: Vec<i64> = messages.iter().filter_map(|message| message.accepted_at_ms).collect();
    if !times.is_empty() && times.len() != messages.len() {
        return Err(object.invalid("messages", "`accepted_at_ms` stands in all of them or in none"));
    }
    if !times.is_sorted() {
        return Err(object.invalid("messages", "`accepted_at_ms` goes back in time"));
    }
    Ok(messages)
}

fn message(mut object: Object) -> Result<Message, ReadError> {
    let message = Message {
        sender: object.required("sender")?,
        message_type: object.required("message_type")?,
        payload_type: object.required("payload_type")?,
        payload: object.free_required("payload")?,
        expect: object.required("expect")?,
        expected_error_code: object.optional("expected_error_code")?,
        envelope: object.object("envelope")?.map(overrides).transpose()?.unwrap_or_default(),
        accepted_at_ms: object.optional("accepted_at_ms")?,
    };
    if message.expect == Expectation::Accept && message.expected_error_code.is_some() {
        return Err(object.invalid("expected_error_code", "a message to be accepted has none"));
    }
    if message.message_type == "SessionStart" && message.envelope.session_id.is_none() {
        return Err(object.invalid("envelope.session_id", "a SessionStart of the script opens another session"));
    }
    object.end()?;
    Ok(message)
}

fn overrides(mut object: Object) -> Result<Overrides, ReadError> {
    let overrides = Overrides {
        session_id: object.optional("session_id")?,
        macp_version: object.optional("macp_version")?,
        mode: object.optional("mode")?,
        timestamp_unix_ms: object.optional("timestamp_unix_ms")?,
        message_id: object.optional("message_id")?,
    };
    object.end()?;
    Ok(overrides)
}

fn expected_entry(mut object: Object) -> Result<ExpectedEntry, ReadError> {
    let entry = ExpectedEntry {
        message_type: object.required("message_type")?,
        sender: object.required("sender")?,
        payload: object.free("payload")?.map(Value::Object),
        synthetic: object.optional("synthetic")?.unwrap_or(false),
    };
    object.end()?;
    Ok(entry)
}

/// The rules are handed on as they are: notes inside them are for the runtime to ignore.
fn policy(mut object: Object) -> Result<PolicyDescriptor, ReadError> {
    let descriptor = PolicyDescriptor {
        policy_id: object.required("policy_id")?,
        mode: object.required("mode")?,
        description: object.optional("description")?.unwrap_or_default(),
        rules: Value::Object(object.required("rules")?).to_string(),
        schema_version: object.required("schema_version")?,
        registered_at_unix_ms: 0,
    };
    object.end()?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Value {
        json!({
            "mode": "macp.mode.decision.v1", "initiator": "a", "participants": ["a"], "mode_version": "1.0.0",
            "configuration_version": "c", "ttl_ms": 1, "expected_final_state": "Open",
            "messages": [{
                "sender": "a", "message_type": "Vote", "payload_type": "t", "payload": {"_note": 1, "vote": "x"},
                "expect": "reject", "expected_error_code": "FORBIDDEN", "envelope": {"mode": "m"},
            }],
        })
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Value), text: &str) {
        let mut fixture = sample();
        change(&mut fixture);
        let error = Fixture::parse(&fixture.to_string()).expect_err("must be refused");
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn what_may_be_absent_has_its_default() {
        let fixture = Fixture::parse(&sample().to_string()).expect("a fixture");
        assert_eq!((fixture.policy_version.as_str(), fixture.policy), ("", None));
        assert!(fixture.verify_replay_equivalence);
        assert_eq!(fixture.expect_resolution_present, None);
        let message = &fixture.messages[0];
        assert_eq!(Value::Object(message.payload.clone()), json!({"vote": "x"}));
        assert_eq!(message.envelope, Overrides { mode: Some("m".into()), ..Overrides::default() });
    }

    #[test]
    fn unknown_members_are_refused_at_every_level() {
        refused(|fixture| fixture["expected_state"] = json!(1), "expected_state is not a member known here");
        refused(|fixture| fixture["messages"][0]["expct"] = json!(1), "messages[0].expct is not a member known here");
        let place = "messages[0].envelope.sender is not a member known here";
        refused(|fixture| fixture["messages"][0]["envelope"]["sender"] = json!("b"), place);
        let policy = json!({"policy_id": "p", "mode": "*", "schema_version": 3, "rules": {}, "rule": 1});
        refused(|fixture| fixture["policy"] = policy, "policy.rule is not a member known here");
        let history = json!([{"message_type": "Vote", "sender": "a", "syntetic": true}]);
        let place = "expected_history[0].syntetic is not a member known here";
        refused(|fixture| fixture["expected_history"] = history, place);
    }

    #[test]
    fn contradictions_are_refused() {
        refused(|fixture| fixture["messages"] = json!([]), "messages: a script has at least one message");
        refused(
            |fixture| fixture["messages"][0]["expect"] = json!("accept"),
            "messages[0].expected_error_code: a message to be accepted has none",
        );
        refused(
            |fixture| fixture["messages"][0]["message_type"] = json!("SessionStart"),
            "messages[0].envelope.session_id: a SessionStart of the script opens another session",
        );
        let two = |times: [Value; 2]| {
            move |fixture: &mut Value| {
                let mut messages = Vec::new();
                for time in times {
                    let mut message = fixture["messages"][0].clone();
                    if !time.is_null() {
                        message["accepted_at_ms"] = time;
                    }
                    messages.push(message);
                }
                fixture["messages"] = Value::Array(messages);
            }
        };
        let text = "messages: `accepted_at_ms` stands in all of them or in none";
        refused(two([json!(1), Value::Null]), text);
        refused(two([json!(2), json!(1)]), "messages: `accepted_at_ms` goes back in time");
    }

    #[test]
    fn notes_in_rules_are_left_to_the_runtime() {
        let mut fixture = sample();
        fixture["policy"] = json!({
            "_comment": "dropped", "policy_id": "p", "mode": "*", "schema_version": 3, "rules": {"_note": {"_deep": 1}},
        });
        let policy = Fixture::parse(&fixture.to_string()).expect("a fixture").policy.expect("a policy");
        assert_eq!(policy.rules, r#"{"_note":{"_deep":1}}"#);
    }
}
