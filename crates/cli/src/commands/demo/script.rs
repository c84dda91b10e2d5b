//! What the agents say.

use macp_client::{Client, envelope};
use macp_wire::v1::{CommitmentPayload, Envelope};

use super::stage::{Expected, Stage};

/// A life long enough for the slowest terminal.
const TTL_MS: i64 = 600_000;

fn cast() -> Vec<String> {
    ["ada", "ben", "cleo"].map(str::to_owned).to_vec()
}

/// A decision with everything in it: rival proposals, an objection, refusals, a retry. Returns a vote, to be sent once
/// more after the restart.
pub(super) async fn decide(stage: &mut Stage<'_>, client: &Client, session: &str) -> anyhow::Result<Envelope> {
    use Expected::{Accepted, Duplicate, Refused};

    let start = envelope::Start {
        intent: "How do we roll out version 2.1?".to_owned(),
        participants: cast(),
        ttl_ms: TTL_MS,
        ..envelope::Start::default()
    };
    let start = envelope::start(session, "decision", "ada", start).build();
    stage.send(client, start, "How do we roll out version 2.1? With ben and cleo.", Accepted).await?;

    let words = "p1: to everyone, on Friday evening";
    let message = envelope::proposal(session, "ada", "p1", "To everyone, on Friday evening", "The tests pass.");
    stage.send(client, message.build(), words, Accepted).await?;
    let reason = "Who is on call on Friday evening?";
    let message = envelope::evaluation(session, "ben", "p1", "REVIEW", 0.6, reason);
    stage.send(client, message.build(), "p1: needs review. Who is on call on Friday evening?", Accepted).await?;
    let message = envelope::objection(session, "cleo", "p1", "high", "The new login cannot be rolled back.");
    stage.send(client, message.build(), "p1: high severity, the new login cannot be rolled back", Accepted).await?;
    let option = "A canary for 5 %, everyone on Monday";
    let message = envelope::proposal(session, "ben", "p2", option, "Limits what can go wrong.");
    stage.send(client, message.build(), "p2: a canary for 5 %, everyone on Monday", Accepted).await?;

    let message = envelope::vote(session, "mallory", "p1", "approve", "");
    stage.send(client, message.build(), "p1: approve (nobody invited mallory)", Refused("INVALID_ENVELOPE")).await?;
    let message = commitment(session, "rollout-everyone");
    stage.send(client, message, "let us just do p1 (nobody has voted)", Refused("INVALID_ENVELOPE")).await?;

    let message = envelope::evaluation(session, "cleo", "p2", "APPROVE", 0.9, "A canary can be switched off.");
    stage.send(client, message.build(), "p2: approve, a canary can be switched off", Accepted).await?;
    let message = envelope::vote(session, "ben", "p2", "approve", "");
    stage.send(client, message.build(), "p2: approve", Accepted).await?;
    let vote = envelope::vote(session, "cleo", "p2", "approve", "").build();
    stage.send(client, vote.clone(), "p2: approve", Accepted).await?;
    stage.send(client, vote.clone(), "p2: approve (the same message again, as after a lost answer)", Duplicate).await?;
    let message = envelope::vote(session, "ada", "p2", "approve", "");
    stage.send(client, message.build(), "p2: approve, you convinced me", Accepted).await?;

    let message = commitment(session, "rollout-canary-5");
    stage.send(client, message, "we commit to p2: the canary starts now", Accepted).await?;
    let message = envelope::vote(session, "ben", "p1", "approve", "");
    stage.send(client, message.build(), "p1: approve after all (too late)", Refused("SESSION_NOT_OPEN")).await?;
    Ok(vote)
}

fn commitment(session: &str, action: &str) -> Envelope {
    let payload = CommitmentPayload {
        commitment_id: "c1".to_owned(),
        action: action.to_owned(),
        authority_scope: "release-team".to_owned(),
        reason: "Three approvals".to_owned(),
        outcome_positive: true,
        ..CommitmentPayload::default()
    };
    envelope::commitment(session, "ada", &payload).build()
}

/// A convergence that takes a few rounds.
pub(super) async fn converge(stage: &mut Stage<'_>, client: &Client, session: &str) -> anyhow::Result<()> {
    use Expected::{Accepted, Refused};

    let start = envelope::Start {
        intent: "How many hours may the rollout cost?".to_owned(),
        participants: cast(),
        ttl_ms: TTL_MS,
        ..envelope::Start::default()
    };
    let start = envelope::start(session, "multi_round", "ada", start).build();
    stage.send(client, start, "How many hours may the rollout cost?", Accepted).await?;
    let rounds = [
        ("ada", "40", "40 hours"),
        ("ben", "80", "80 hours"),
        ("cleo", "60", "60 hours"),
        ("ben", "60", "60 hours, then"),
        ("ada", "50", "50 at most"),
        ("ada", "60", "all right, 60"),
    ];
    for (sender, value, words) in rounds {
        let message = envelope::contribute(session, sender, value);
        stage.send(client, message.build(), words, Accepted).await?;
    }
    let message = envelope::contribute(session, "ben", "80");
    stage.send(client, message.build(), "80 after all (they have converged)", Refused("SESSION_NOT_OPEN")).await?;
    Ok(())
}
