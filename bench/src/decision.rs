//! A whole decision session, message by message: start, two proposals, evaluations, an objection, votes, commitment.

use macp_wire::v1::Envelope;

use crate::messages::{message, start};

const AGENTS: [&str; 3] = ["agent-planner", "agent-security", "agent-release"];

/// The messages of one session, in order.
pub fn session(id: &str) -> Vec<Envelope> {
    let [planner, security, release] = AGENTS;
    let proposal = |proposal: &str| {
        format!(r#"{{"proposal_id":"{proposal}","option":"roll out in stages","rationale":"staging has been quiet"}}"#)
    };
    let evaluation = |proposal: &str| {
        format!(r#"{{"proposal_id":"{proposal}","recommendation":"APPROVE","confidence":0.9,"reason":"tests pass"}}"#)
    };
    let vote = |proposal: &str| format!(r#"{{"proposal_id":"{proposal}","vote":"approve","reason":"agreed"}}"#);
    vec![
        start(id, &AGENTS),
        message(id, "Proposal", "p1", planner, &proposal("p1")),
        message(id, "Proposal", "p2", release, &proposal("p2")),
        message(id, "Evaluation", "e1", security, &evaluation("p1")),
        message(id, "Evaluation", "e2", release, &evaluation("p1")),
        message(id, "Objection", "o1", security, r#"{"proposal_id":"p2","reason":"too fast","severity":"high"}"#),
        message(id, "Vote", "v1", planner, &vote("p1")),
        message(id, "Vote", "v2", security, &vote("p1")),
        message(id, "Vote", "v3", release, &vote("p1")),
        message(
            id,
            "Commitment",
            "c1",
            planner,
            r#"{"commitment_id":"c1","action":"rollout.staged","authority_scope":"release","reason":"unanimous"}"#,
        ),
    ]
}
