//! Plays a fixture through a driver and compares what comes of it.

use std::collections::BTreeSet;

use bytes::Bytes;
use macp_wire::v1::{Envelope, SessionStartPayload, SessionState};
use prost::Message as _;

use crate::driver::{Clock, Driver, SessionRef, Submission, Trouble, Verdict};
use crate::fixture::{Expectation, ExpectedEntry, Fixture, Message};
use crate::payload::{self, COMMITMENT};
use crate::{Level, Report, subset};

const PROTOCOL_VERSION: &str = "1.0";

/// Why a script with its own clock is not run against a runtime that has another.
const SKIPPED_CLOCKED: &str = "the fixture sets the runtime's clock, which a running server does not allow";

pub(crate) const UNCHECKED_MODE_STATE: &str = "mode state";
pub(crate) const UNCHECKED_REPLAY: &str = "replay equivalence";

/// Runs one fixture. Everything that is not as expected is reported, not the first thing only.
pub async fn run(name: &str, level: Level, fixture: &Fixture, driver: &mut impl Driver) -> Report {
    if fixture.is_clocked() && driver.clock() == Clock::Own {
        return Report::skipped(name, level, SKIPPED_CLOCKED);
    }
    let session = SessionRef { id: uuid::Uuid::new_v4().to_string(), initiator: fixture.initiator.clone() };
    let mut play = Play { fixture, driver, session, accepted: BTreeSet::new(), reasons: vec![], unchecked: vec![] };
    if let Err(trouble) = play.perform().await {
        play.reasons.push(trouble.to_string());
    }
    let Play { reasons, unchecked, .. } = play;
    Report { unchecked, ..Report::of(name, level, reasons) }
}

/// One fixture being played.
struct Play<'a, D> {
    fixture: &'a Fixture,
    driver: &'a mut D,
    session: SessionRef,
    /// Ids of the script's messages that became history.
    accepted: BTreeSet<String>,
    reasons: Vec<String>,
    unchecked: Vec<&'static str>,
}

impl<D: Driver> Play<'_, D> {
    async fn perform(&mut self) -> Result<(), Trouble> {
        if let Some(policy) = &self.fixture.policy {
            self.driver.register(policy).await?;
        }
        if let Verdict::Refused { code, message } = self.driver.send(self.start()).await? {
            self.reasons.push(format!("the session does not start: {code}: {message}"));
            return Ok(());
        }
        for (at, message) in self.fixture.messages.iter().enumerate() {
            self.submit(at + 1, message).await?;
        }
        self.check_state().await?;
        self.check_resolution().await?;
        self.check_mode_state().await?;
        self.check_history().await?;
        self.check_replay().await
    }

    /// The start of the script's own session, which no message of it stands for.
    fn start(&self) -> Submission {
        let fixture = self.fixture;
        let payload = SessionStartPayload {
            intent: "conformance".to_owned(),
            participants: fixture.participants.clone(),
            mode_version: fixture.mode_version.clone(),
            configuration_version: fixture.configuration_version.clone(),
            policy_version: fixture.policy_version.clone(),
            ttl_ms: fixture.ttl_ms,
            ..SessionStartPayload::default()
        };
        let envelope = Envelope {
            macp_version: PROTOCOL_VERSION.to_owned(),
            mode: fixture.mode.clone(),
            message_type: "SessionStart".to_owned(),
            message_id: "m0".to_owned(),
            session_id: self.session.id.clone(),
            sender: fixture.initiator.clone(),
            timestamp_unix_ms: self.timestamp(),
            payload: payload.encode_to_vec().into(),
        };
        Submission { envelope, accepted_at_ms: fixture.is_clocked().then_some(0) }
    }

    fn timestamp(&self) -> i64 {
        if self.fixture.is_clocked() { 0 } else { self.driver.now_ms() }
    }

    async fn submit(&mut self, number: usize, message: &Message) -> Result<(), Trouble> {
        let place = format!("message {number} ({} of {})", message.message_type, message.sender);
        let payload = match payload::encode(&message.payload_type, &message.payload) {
            Ok(payload) => payload,
            Err(error) => return Err(Trouble::new(place, error)),
        };
        let envelope = self.envelope(number, message, payload);
        let message_id = envelope.message_id.clone();
        let is_own = envelope.session_id == self.session.id;
        let submission = Submission { envelope, accepted_at_ms: message.accepted_at_ms };
        let verdict = self.driver.send(submission).await?;
        if is_own && verdict == Verdict::Accepted {
            self.accepted.insert(message_id);
        }
        if let Some(reason) = judge(message, &verdict) {
            self.reasons.push(format!("{place}: {reason}"));
        }
        Ok(())
    }

    fn envelope(&self, number: usize, message: &Message, payload: Bytes) -> Envelope {
        let overrides = message.envelope.clone();
        Envelope {
            macp_version: overrides.macp_version.unwrap_or_else(|| PROTOCOL_VERSION.to_owned()),
            mode: overrides.mode.unwrap_or_else(|| self.fixture.mode.clone()),
            message_type: message.message_type.clone(),
            message_id: overrides.message_id.unwrap_or_else(|| format!("m{number}")),
            session_id: overrides.session_id.unwrap_or_else(|| self.session.id.clone()),
            sender: message.sender.clone(),
            timestamp_unix_ms: overrides.timestamp_unix_ms.unwrap_or_else(|| self.timestamp()),
            payload,
        }
    }

    async fn check_state(&mut self) -> Result<(), Trouble> {
        let found = self.driver.state(&self.session).await?;
        let expected = self.fixture.expected_final_state.to_wire();
        if found != expected {
            self.reasons.push(format!("final state: expected {}, found {}", state(expected), state(found)));
        }
        Ok(())
    }

    async fn check_resolution(&mut self) -> Result<(), Trouble> {
        let fixture = self.fixture;
        if fixture.expect_resolution_present.is_none() && fixture.expected_resolution.is_none() {
            return Ok(());
        }
        let resolution = self.driver.resolution(&self.session).await?;
        if let Some(expected) = fixture.expect_resolution_present
            && expected != resolution.is_some()
        {
            let word = |is_present| if is_present { "one" } else { "none" };
            let found = word(resolution.is_some());
            self.reasons.push(format!("resolution: expected {}, found {found}", word(expected)));
        }
        match (&fixture.expected_resolution, resolution) {
            (Some(expected), Some(resolution)) => self.compare("resolution", COMMITMENT, expected, &resolution),
            (Some(_), None) if fixture.expect_resolution_present.is_none() => {
                self.reasons.push("resolution: expected one, found none".to_owned());
            }
            _ => (),
        }
        Ok(())
    }

    async fn check_mode_state(&mut self) -> Result<(), Trouble> {
        let Some(expected) = &self.fixture.expected_mode_state else { return Ok(()) };
        match self.driver.mode_state(&self.session).await? {
            Some(found) => {
                let differences = subset(expected, &found);
                self.reasons.extend(differences.iter().map(|difference| format!("mode state: {difference}")));
            }
            None => self.unchecked.push(UNCHECKED_MODE_STATE),
        }
        Ok(())
    }

    async fn check_history(&mut self) -> Result<(), Trouble> {
        let Some(expected) = &self.fixture.expected_history else { return Ok(()) };
        let history = self.driver.history(&self.session).await?;
        let Some((first, found)) = history.split_first() else {
            self.reasons.push("history: it is empty".to_owned());
            return Ok(());
        };
        if first.message_type != "SessionStart" {
            self.reasons.push(format!("history: it starts with a {}", first.message_type));
        }
        if found.len() != expected.len() {
            let types: Vec<&str> = found.iter().map(|envelope| envelope.message_type.as_str()).collect();
            let (expected, found) = (expected.len(), found.len());
            self.reasons.push(format!(
                "history: expected {expected} envelopes after the start, found {found}: {}",
                types.join(", ")
            ));
        }
        for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
            self.compare_entry(&format!("history[{at}]"), expected, found);
        }
        Ok(())
    }

    fn compare_entry(&mut self, place: &str, expected: &ExpectedEntry, found: &Envelope) {
        let words = [
            ("message_type", &expected.message_type, &found.message_type),
            ("sender", &expected.sender, &found.sender),
        ];
        for (name, expected, found) in words.into_iter().filter(|(_, expected, found)| expected != found) {
            self.reasons.push(format!("{place}.{name}: expected {expected:?}, found {found:?}"));
        }
        let is_submitted = self.accepted.contains(&found.message_id);
        if expected.synthetic == is_submitted {
            let by = if is_submitted { "the script" } else { "the runtime" };
            self.reasons.push(format!("{place}: {:?} was written by {by}", found.message_id));
        }
        if let Some(expected) = &expected.payload {
            let type_name = payload::type_of(&self.fixture.mode, &found.message_type);
            self.compare(&format!("{place}.payload"), &type_name, expected, &found.payload);
        }
    }

    async fn check_replay(&mut self) -> Result<(), Trouble> {
        if !self.fixture.verify_replay_equivalence {
            return Ok(());
        }
        match self.driver.replay(&self.session).await? {
            Some(differences) => {
                self.reasons.extend(differences.iter().map(|difference| format!("replay: {difference}")));
            }
            None => self.unchecked.push(UNCHECKED_REPLAY),
        }
        Ok(())
    }

    /// Holds bytes against what a fixture expects to find in them.
    fn compare(&mut self, place: &str, type_name: &str, expected: &serde_json::Value, bytes: &[u8]) {
        let compared = payload::normalise(type_name, expected)
            .and_then(|expected| Ok(subset(&expected, &payload::decode(type_name, bytes)?)));
        match compared {
            Ok(differences) => {
                self.reasons.extend(differences.iter().map(|difference| format!("{place}: {difference}")));
            }
            Err(error) => self.reasons.push(format!("{place}: {error}")),
        }
    }
}

/// What is wrong with a verdict, if anything is. Only the code of a refusal counts, not its words.
fn judge(message: &Message, verdict: &Verdict) -> Option<String> {
    match (message.expect, verdict) {
        (Expectation::Accept, Verdict::Accepted | Verdict::Duplicate) => None,
        (Expectation::Accept, Verdict::Refused { code, message }) => {
            Some(format!("expected to be accepted, was refused with {code}: {message}"))
        }
        (Expectation::Reject, Verdict::Accepted | Verdict::Duplicate) => Some(match &message.expected_error_code {
            Some(code) => format!("expected to be refused with {code}, was accepted"),
            None => "expected to be refused, was accepted".to_owned(),
        }),
        (Expectation::Reject, Verdict::Refused { code, message: text }) => match &message.expected_error_code {
            Some(expected) if expected != code => Some(format!("expected {expected}, was refused with {code}: {text}")),
            _ => None,
        },
    }
}

fn state(state: SessionState) -> &'static str {
    state.as_str_name().trim_start_matches("SESSION_STATE_")
}
