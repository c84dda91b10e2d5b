//! A whole decision session, message by message: start, two proposals, evaluations, an objection, votes, commitment.

use macp_wire::modes::decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload};
use macp_wire::v1::{CommitmentPayload, Envelope};
use prost::Message;

use crate::messages::Profile;

const AGENTS: [&str; 3] = ["agent-planner", "agent-security", "agent-release"];

/// The messages of one session, in order.
pub fn session(profile: Profile, id: &str) -> Vec<Envelope> {
    let [planner, security, release] = AGENTS;
    let message =
        |message_type, message_id, sender, payload| profile.message(id, message_type, message_id, sender, payload);
    vec![
        profile.start(id, &AGENTS),
        message("Proposal", "p1", planner, proposal(profile, "p1")),
        message("Proposal", "p2", release, proposal(profile, "p2")),
        message("Evaluation", "e1", security, evaluation(profile, "p1")),
        message("Evaluation", "e2", release, evaluation(profile, "p1")),
        message("Objection", "o1", security, objection(profile, "p2")),
        message("Vote", "v1", planner, vote(profile, "p1")),
        message("Vote", "v2", security, vote(profile, "p1")),
        message("Vote", "v3", release, vote(profile, "p1")),
        message("Commitment", "c1", planner, commitment(profile)),
    ]
}

pub fn proposal(profile: Profile, proposal_id: &str) -> Vec<u8> {
    match profile {
        Profile::Classic => format!(
            r#"{{"proposal_id":"{proposal_id}","option":"roll out in stages","rationale":"staging has been quiet"}}"#
        )
        .into(),
        Profile::Standard => ProposalPayload {
            proposal_id: proposal_id.into(),
            option: "roll out in stages".into(),
            rationale: "staging has been quiet".into(),
            ..Default::default()
        }
        .encode_to_vec(),
    }
}

pub fn evaluation(profile: Profile, proposal_id: &str) -> Vec<u8> {
    match profile {
        Profile::Classic => format!(
            r#"{{"proposal_id":"{proposal_id}","recommendation":"APPROVE","confidence":0.9,"reason":"tests pass"}}"#
        )
        .into(),
        Profile::Standard => EvaluationPayload {
            proposal_id: proposal_id.into(),
            recommendation: "APPROVE".into(),
            confidence: 0.9,
            reason: "tests pass".into(),
        }
        .encode_to_vec(),
    }
}

fn objection(profile: Profile, proposal_id: &str) -> Vec<u8> {
    match profile {
        Profile::Classic => {
            format!(r#"{{"proposal_id":"{proposal_id}","reason":"too fast","severity":"high"}}"#).into()
        }
        Profile::Standard => {
            ObjectionPayload { proposal_id: proposal_id.into(), reason: "too fast".into(), severity: "high".into() }
                .encode_to_vec()
        }
    }
}

fn vote(profile: Profile, proposal_id: &str) -> Vec<u8> {
    match profile {
        Profile::Classic => format!(r#"{{"proposal_id":"{proposal_id}","vote":"approve","reason":"agreed"}}"#).into(),
        Profile::Standard => {
            VotePayload { proposal_id: proposal_id.into(), vote: "APPROVE".into(), reason: "agreed".into() }
                .encode_to_vec()
        }
    }
}

fn commitment(profile: Profile) -> Vec<u8> {
    match profile {
        Profile::Classic => {
            r#"{"commitment_id":"c1","action":"rollout.staged","authority_scope":"release","reason":"unanimous"}"#
                .into()
        }
        Profile::Standard => CommitmentPayload {
            commitment_id: "c1".into(),
            action: "rollout.selected".into(),
            authority_scope: "release".into(),
            reason: "unanimous".into(),
            mode_version: "1.0.0".into(),
            configuration_version: "bench-1".into(),
            outcome_positive: true,
            ..Default::default()
        }
        .encode_to_vec(),
    }
}
