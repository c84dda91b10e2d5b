//! WhatIfReplay.

use macp_wire::v1::what_if_entry_outcome::Kind;
use macp_wire::v1::*;
use prost::Message;
use tonic::{Code, Status};

use crate::common::*;
use crate::standard_common::*;

async fn ask(
    edge: &Edge,
    identity: &str,
    session_id: &str,
    candidate: PolicyDescriptor,
) -> Result<WhatIfReplayResponse, Status> {
    let request = WhatIfReplayRequest { session_id: session_id.into(), candidate: Some(candidate) };
    body(edge.runtime.clone().what_if_replay(authorized(identity, request)).await)
}

fn majority() -> PolicyDescriptor {
    let rules = r#"{"voting":{"algorithm":"majority","quorum":{"type":"count","value":1}},"commitment":{"require_vote_quorum":true}}"#;
    policy("what.if.majority", DECISION, rules)
}

#[tokio::test]
async fn std_pol_34_a_candidate_that_would_have_refused_shows_where_and_why() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.suspend_as("alice", &sid(1)).await.expect("suspended");
    edge.resume_as("alice", &sid(1)).await.expect("resumed");
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    edge.accept_as("alice", commit(&sid(1), "c")).await;

    let answer = ask(&edge, "bob", &sid(1), majority()).await.expect("an answer");
    assert_eq!(
        (answer.candidate_policy_id.as_str(), answer.recorded_policy_id.as_str()),
        ("what.if.majority", "policy.default")
    );
    assert_eq!(answer.entries.len(), 3, "bookkeeping takes no place");
    for (index, (entry, message_type)) in
        answer.entries.iter().zip(["SessionStart", "Proposal", "Commitment"]).enumerate()
    {
        assert_eq!((entry.history_index, entry.message_type.as_str()), (index as u64, message_type));
        let recorded = entry.recorded.as_ref().expect("recorded");
        assert_eq!((recorded.kind(), recorded.state), (Kind::Applied, if index == 2 { RESOLVED } else { OPEN }));
    }
    let refused = answer.entries[2].candidate.as_ref().expect("imagined");
    assert_eq!((refused.kind(), refused.error_code.as_str()), (Kind::Refused, "POLICY_DENIED"));
    let details: serde_json::Value = serde_json::from_slice(&refused.details).expect("JSON");
    // STD-POL-13: every reason, in the order of evaluation.
    let codes: Vec<_> = details["denials"].as_array().expect("a list").iter().map(|denial| &denial["code"]).collect();
    assert_eq!(codes, ["quorum_not_met", "no_votes"]);
    assert_eq!(answer.first_divergence, Some(2));
    assert_eq!(answer.denials.len(), 1);
    assert_eq!((answer.denials[0].history_index, answer.denials[0].message_id.as_str()), (2, "c"));
    assert_eq!(answer.denials[0].details, refused.details);

    let recorded = answer.recorded.expect("recorded");
    assert_eq!((recorded.state, recorded.resolved_by_history_index), (RESOLVED, 2));
    assert_eq!(
        (recorded.resolved_by_message_id.as_str(), recorded.resolved_by_message_type.as_str()),
        ("c", "Commitment")
    );
    assert_eq!(recorded.resolution, commitment_payload().encode_to_vec());
    let candidate = answer.candidate.expect("imagined");
    assert_eq!((candidate.state, candidate.resolved_by_message_id.as_str()), (OPEN, ""));
    assert!(candidate.resolution.is_empty());
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("a session").state, RESOLVED, "nothing changed");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_pol_34_a_candidate_that_agrees_shows_no_divergence() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    edge.accept_as("bob", cast(&sid(1), "v1", "p", "APPROVE")).await;
    edge.accept_as("alice", cast(&sid(1), "v2", "p", "APPROVE")).await;
    edge.accept_as("alice", commit(&sid(1), "c")).await;
    // The candidate's id may be anything, even one that could not be registered.
    for id in ["what.if.majority", "policy.default", "policy.std.other", ""] {
        let answer = ask(&edge, "alice", &sid(1), PolicyDescriptor { policy_id: id.into(), ..majority() }).await;
        let answer = answer.expect("an answer");
        assert_eq!((answer.candidate_policy_id.as_str(), answer.first_divergence), (id, None));
        assert!(answer.denials.is_empty());
        assert_eq!(answer.recorded, answer.candidate);
        assert_eq!(answer.entries.len(), 5);
    }
    // One who may not commit under the candidate is forbidden, which is no denial.
    let rules = r#"{"commitment":{"authority":"designated_role","designated_roles":["bob"]}}"#;
    let answer = ask(&edge, "alice", &sid(1), policy("p", "*", rules)).await.expect("an answer");
    assert_eq!((answer.first_divergence, answer.denials.len()), (Some(4), 0));
    assert_eq!(answer.entries[4].candidate.as_ref().expect("imagined").error_code, "FORBIDDEN");
    edge.shut_down().await;
}

#[tokio::test]
async fn what_the_runtime_wrote_happens_under_both_policies() {
    let edge = Edge::start().await;
    edge.decide(&sid(1)).await;
    edge.cancel_as("alice", &sid(1)).await.expect("cancelled");
    let answer = ask(&edge, "alice", &sid(1), majority()).await.expect("an answer");
    assert_eq!((answer.entries.len(), answer.first_divergence), (1, None));
    assert_eq!(answer.recorded.expect("recorded").state, CANCELLED);
    assert_eq!(answer.candidate.expect("imagined").state, CANCELLED);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_pol_32_the_first_rule_that_is_broken_decides() {
    let edge = Edge::with(|settings| settings.message_limit_per_minute = Some(20)).await;
    edge.decide(&sid(1)).await;
    let invalid = policy("p", DECISION, "not JSON");
    refused(ask(&edge, "mallory", "unknown", invalid.clone()).await, Code::NotFound, "SESSION_NOT_FOUND");
    refused(ask(&edge, "mallory", &sid(1), invalid.clone()).await, Code::PermissionDenied, "FORBIDDEN");
    let other_mode = "macp.mode.task.v1";
    for candidate in [
        invalid,
        PolicyDescriptor { schema_version: 0, ..majority() },
        PolicyDescriptor { schema_version: 4, ..majority() },
        policy("p", DECISION, "[]"),
        policy("p", DECISION, r#"{"unheard_of":{}}"#),
        policy("p", DECISION, r#"{"voting":{"algorithm":7}}"#),
        policy("p", DECISION, r#"{"voting":{"algorithm":"majority","threshold":0.1}}"#),
        policy("p", other_mode, "{}"),
    ] {
        let answer = ask(&edge, "alice", &sid(1), candidate).await;
        refused(answer, Code::InvalidArgument, "INVALID_POLICY_DEFINITION");
    }
    // The share is charged before the candidate is looked at.
    for _ in 0..12 {
        ask(&edge, "alice", &sid(1), majority()).await.expect("within the share");
    }
    let request = WhatIfReplayRequest { session_id: sid(1), candidate: None };
    let answer = edge.runtime.clone().what_if_replay(authorized("alice", request)).await;
    refused(answer, Code::ResourceExhausted, "RATE_LIMITED");
    edge.shut_down().await;
}
