//! AOS-107 for classic sessions: JSON payloads, plans in base64 or in the context, and an outcome nobody states.

use macp_kernel::commitment;
use macp_plan::session::{EXTENSION, Error, Reason, SessionSettings, StartFromSession};
use macp_wire::v1::CommitmentPayload;
use serde_json::json;

use crate::decision::Decision;
use crate::world::{World, frozen, plan, step, token};

async fn refused(world: &World, session_id: &str) -> Reason {
    match world.session_runs.bind(session_id).await {
        Err(Error::Refused(refusals)) => refusals[0].reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_a_proposal() {
    let world = World::memory(SessionSettings::default()).await;
    let plan = plan("p1", vec![step("s1")]);
    let mut decision = Decision::classic(&world.engine, "classic-1", Vec::new()).await;
    decision.propose_plan(&plan).await;
    // The same proposal_id again takes the place of the first, in the session; the digest still finds the plan.
    decision.propose("p1", b"something else").await.vote().await;
    decision.commit_json(&json!({"commitment_id": token(&plan), "action": "go", "reason": "agreed"})).await;
    let bound = world.session_runs.bind("classic-1").await.unwrap();
    assert_eq!(bound.plan.hash, frozen(&plan).hash);
    assert_eq!((bound.link.position, bound.coordinator.as_str()), (5, "alice"));
    // The same label and fields as in a standard session, what is missing at its default.
    let stated = CommitmentPayload {
        commitment_id: token(&plan),
        action: "go".to_owned(),
        reason: "agreed".to_owned(),
        ..CommitmentPayload::default()
    };
    assert_eq!(bound.link.commitment_hash, commitment::hash(&stated));
    let started = world.session_runs.start_from_session(StartFromSession::first("classic-1", "op")).await.unwrap();
    let result = world.executor.finished(&started.run_id).await.unwrap().unwrap();
    assert_eq!(result.session.unwrap(), bound.link);
    world.reported_to_the_end(&started.run_id).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_the_context() {
    let world = World::memory(SessionSettings::default()).await;
    let plan = plan("p1", vec![step("s1")]);
    let context = json!({EXTENSION: plan}).to_string().into_bytes();
    let mut decision = Decision::classic(&world.engine, "classic-2", context).await;
    decision.propose("p1", b"").await.vote().await;
    let reason = format!("agreed on {}", token(&plan));
    decision.commit_json(&json!({"commitment_id": "c", "reason": reason, "outcome_positive": true})).await;
    assert_eq!(world.session_runs.bind("classic-2").await.unwrap().plan.hash, frozen(&plan).hash);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes() {
    let world = World::memory(SessionSettings::default()).await;
    let plan = plan("p1", vec![step("s1")]);
    let mut negative = Decision::classic(&world.engine, "negative", Vec::new()).await;
    negative.propose_plan(&plan).await.vote().await;
    negative.commit_json(&json!({"commitment_id": token(&plan), "outcome_positive": false})).await;
    assert_eq!(refused(&world, "negative").await, Reason::OutcomeNotPositive);
    // Protobuf cannot leave it unsaid: what is not true is false.
    let mut unsaid = Decision::classic(&world.engine, "unsaid", Vec::new()).await;
    unsaid.propose_plan(&plan).await.vote().await;
    let token = token(&plan);
    unsaid.commit_with(|it| (it.commitment_id, it.outcome_positive) = (token, false)).await;
    assert_eq!(refused(&world, "unsaid").await, Reason::OutcomeNotPositive);
    // Clients of the first protocol version resolve without a Commitment.
    let mut legacy = Decision::classic(&world.engine, "legacy", Vec::new()).await;
    legacy.propose_plan(&plan).await;
    legacy.send("Message", "alice", b"resolve".to_vec()).await;
    assert_eq!(refused(&world, "legacy").await, Reason::NotACommitment);
    world.stop().await;
}
