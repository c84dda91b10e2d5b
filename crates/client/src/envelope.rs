//! Writing envelopes: one function per message of the classic modes, and a [`Draft`] to change what they chose.
//!
//! A draft starts with a fresh message id and this machine's clock. To send a message again after an unknown outcome,
//! keep the envelope and send the same one: its message id makes that safe.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::modes::decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
use macp_wire::modes::multi_round::v1::ContributePayload;
use macp_wire::payload::{ClassicPayload, encode_json};
use macp_wire::v1::{CommitmentPayload, Envelope};
use prost::Message;

use crate::transport::PROTOCOL_VERSION;

/// What a session is started with; a default one is open to anyone for a minute.
pub type Start = SessionStartPayload;

/// An envelope being written.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    envelope: Envelope,
}

impl Draft {
    /// A message with an empty payload.
    pub fn new(session_id: &str, message_type: &str, sender: &str) -> Draft {
        Draft {
            envelope: Envelope {
                macp_version: PROTOCOL_VERSION.to_owned(),
                mode: String::new(),
                message_type: message_type.to_owned(),
                message_id: uuid::Uuid::new_v4().to_string(),
                session_id: session_id.to_owned(),
                sender: sender.to_owned(),
                timestamp_unix_ms: now_ms(),
                payload: Bytes::new(),
            },
        }
    }

    #[must_use]
    pub fn message_id(mut self, message_id: impl Into<String>) -> Draft {
        self.envelope.message_id = message_id.into();
        self
    }

    #[must_use]
    pub fn mode(mut self, mode: impl Into<String>) -> Draft {
        self.envelope.mode = mode.into();
        self
    }

    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Draft {
        self.envelope.timestamp_unix_ms = timestamp_ms;
        self
    }

    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Draft {
        self.envelope.payload = payload.into();
        self
    }

    pub fn build(self) -> Envelope {
        self.envelope
    }

    fn json<P: ClassicPayload>(self, payload: &P) -> Draft {
        let bytes = encode_json(payload).expect("only a number that is not finite cannot be written");
        self.payload(bytes)
    }
}

impl From<Draft> for Envelope {
    fn from(draft: Draft) -> Self {
        draft.envelope
    }
}

/// SessionStart of a classic session.
pub fn start(session_id: &str, mode: &str, sender: &str, start: Start) -> Draft {
    Draft::new(session_id, "SessionStart", sender).mode(mode).payload(start.encode_to_vec())
}

pub fn proposal(session_id: &str, sender: &str, proposal_id: &str, option: &str, rationale: &str) -> Draft {
    let payload = ProposalPayload {
        proposal_id: proposal_id.to_owned(),
        option: option.to_owned(),
        rationale: rationale.to_owned(),
        ..ProposalPayload::default()
    };
    Draft::new(session_id, "Proposal", sender).json(&payload)
}

/// An evaluation; a confidence that is not a number is written as 0.
pub fn evaluation(
    session_id: &str,
    sender: &str,
    proposal_id: &str,
    recommendation: &str,
    confidence: f64,
    reason: &str,
) -> Draft {
    let payload = EvaluationPayload {
        proposal_id: proposal_id.to_owned(),
        recommendation: recommendation.to_owned(),
        confidence: if confidence.is_finite() { confidence } else { 0.0 },
        reason: reason.to_owned(),
    };
    Draft::new(session_id, "Evaluation", sender).json(&payload)
}

pub fn objection(session_id: &str, sender: &str, proposal_id: &str, severity: &str, reason: &str) -> Draft {
    let payload = ObjectionPayload {
        proposal_id: proposal_id.to_owned(),
        reason: reason.to_owned(),
        severity: severity.to_owned(),
    };
    Draft::new(session_id, "Objection", sender).json(&payload)
}

pub fn vote(session_id: &str, sender: &str, proposal_id: &str, vote: &str, reason: &str) -> Draft {
    let payload = VotePayload { proposal_id: proposal_id.to_owned(), vote: vote.to_owned(), reason: reason.to_owned() };
    Draft::new(session_id, "Vote", sender).json(&payload)
}

pub fn commitment(session_id: &str, sender: &str, payload: &CommitmentPayload) -> Draft {
    Draft::new(session_id, "Commitment", sender).json(payload)
}

pub fn contribute(session_id: &str, sender: &str, value: &str) -> Draft {
    Draft::new(session_id, "Contribute", sender).json(&ContributePayload { value: value.to_owned() })
}

fn now_ms() -> i64 {
    // A clock before 1970 or beyond the year 292,000,000 is as good as none; 0 asks the server for its own.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_carry_what_a_classic_server_needs() {
        let envelope = vote("s1", "alice", "p1", "approve", "fine").message_id("m1").timestamp_ms(7).build();
        assert_eq!(envelope.macp_version, "1.0");
        assert_eq!((envelope.message_type.as_str(), envelope.message_id.as_str()), ("Vote", "m1"));
        assert_eq!((envelope.session_id.as_str(), envelope.sender.as_str()), ("s1", "alice"));
        assert_eq!(envelope.timestamp_unix_ms, 7);
        let payload: VotePayload = macp_wire::payload::decode(&envelope.payload).unwrap();
        assert_eq!((payload.proposal_id.as_str(), payload.vote.as_str()), ("p1", "approve"));
    }

    #[test]
    fn every_draft_has_a_message_id_of_its_own() {
        let [first, second] = [0, 1].map(|_| contribute("s1", "alice", "blue").build());
        assert_ne!(first.message_id, second.message_id);
        assert!(first.timestamp_unix_ms > 0);
    }

    #[test]
    fn a_confidence_without_a_number_does_not_panic() {
        for confidence in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let envelope = evaluation("s1", "alice", "p1", "APPROVE", confidence, "").build();
            let payload: EvaluationPayload = macp_wire::payload::decode(&envelope.payload).unwrap();
            assert_eq!(payload.confidence, 0.0);
        }
    }
}
