//! The policy registry over the wire, and what outlives a restart.

use std::sync::Arc;

use macp_ledger::SqliteStore;
use macp_wire::v1::*;
use tonic::{Code, Streaming};

use crate::common::*;
use crate::standard_common::*;

async fn register(edge: &Edge, policy: PolicyDescriptor) -> RegisterPolicyResponse {
    let request = RegisterPolicyRequest { policy_descriptor: Some(policy) };
    body(edge.runtime.clone().register_policy(authorized("admin", request)).await).expect("in band")
}

async fn unregister(edge: &Edge, id: &str) -> UnregisterPolicyResponse {
    let request = UnregisterPolicyRequest { policy_id: id.into() };
    body(edge.runtime.clone().unregister_policy(authorized("admin", request)).await).expect("in band")
}

async fn get(edge: &Edge, id: &str) -> Result<PolicyDescriptor, tonic::Status> {
    let request = authorized("alice", GetPolicyRequest { policy_id: id.into() });
    Ok(body(edge.runtime.clone().get_policy(request).await)?.policy_descriptor.expect("a descriptor"))
}

async fn list(edge: &Edge, mode: &str) -> Vec<String> {
    let request = authorized("alice", ListPoliciesRequest { mode: mode.into() });
    let listed = body(edge.runtime.clone().list_policies(request).await).expect("policies").descriptors;
    listed.into_iter().map(|policy| policy.policy_id).collect()
}

async fn watch(edge: &Edge) -> Streaming<WatchPoliciesResponse> {
    body(edge.runtime.clone().watch_policies(authorized("alice", WatchPoliciesRequest {})).await).expect("a watch")
}

const BUILT_IN: [&str; 4] =
    ["policy.default", "policy.std.majority", "policy.std.supermajority", "policy.std.unanimous"];

#[tokio::test]
async fn policies_are_registered_read_listed_and_forgotten() {
    let edge = Edge::start().await;
    assert_eq!(list(&edge, "").await, BUILT_IN);
    let before = now_ms();
    edge.register_policy(policy("b.quorum", "macp.mode.quorum.v1", "{}")).await;
    edge.register_policy(policy("a.any", "*", r#"{"commitment":{"authority":"any_participant"}}"#)).await;
    let registered = get(&edge, "a.any").await.expect("a policy");
    assert!(registered.registered_at_unix_ms >= before && registered.registered_at_unix_ms <= now_ms());
    let rules: serde_json::Value = serde_json::from_str(&registered.rules).expect("JSON");
    assert_eq!(rules["commitment"]["authority"], "any_participant");
    assert_eq!((registered.mode.as_str(), registered.schema_version), ("*", 1));

    let mut all = vec!["a.any", "b.quorum"];
    all.extend(BUILT_IN);
    assert_eq!(list(&edge, "").await, all);
    assert_eq!(list(&edge, "macp.mode.quorum.v1").await, ["a.any", "b.quorum", "policy.default"]);
    assert_eq!(list(&edge, "ext.unheard.of").await, ["a.any", "policy.default"]);
    for id in BUILT_IN {
        assert_eq!(get(&edge, id).await.expect("built in").policy_id, id);
    }

    assert!(unregister(&edge, "a.any").await.ok);
    refused(get(&edge, "a.any").await, Code::NotFound, "UNKNOWN_POLICY_VERSION");
    refused(get(&edge, "").await, Code::NotFound, "UNKNOWN_POLICY_VERSION");
    refused(get(&edge, &"x".repeat(100_000)).await, Code::NotFound, "UNKNOWN_POLICY_VERSION");
    for id in ["a.any", "", "policy.default", "policy.std.majority", "policy.std.unheard-of"] {
        let UnregisterPolicyResponse { ok, error } = unregister(&edge, id).await;
        assert!(!ok && !error.is_empty(), "{id}");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn std_pol_6_a_definition_that_is_no_good_is_told_so_in_the_answer() {
    let edge = Edge::start().await;
    let versioned = |version| PolicyDescriptor { schema_version: version, ..policy("p", "*", "{}") };
    for invalid in [
        policy(" ", "*", "{}"),
        policy("policy.default", "*", "{}"),
        versioned(0),
        versioned(4),
        versioned(u32::MAX),
        policy("p", "*", "not JSON"),
        policy("p", "*", "[]"),
        policy("p", DECISION, r#"{"unheard_of":{}}"#),
        policy("p", DECISION, r#"{"voting":{"algorithm":null}}"#),
        policy("p", DECISION, r#"{"voting":{"algorithm":"majority","threshold":2}}"#),
        policy("p", "*", r#"{"x-acme.rules":{}}"#),
        policy("p", "*", r#"{"commitment":{"authority":"designated_role"}}"#),
        policy("policy.std.mine", DECISION, "{}"),
        policy("policy.std.majority", DECISION, "{}"),
    ] {
        let RegisterPolicyResponse { ok, error } = register(&edge, invalid.clone()).await;
        assert!(!ok && error.starts_with("INVALID_POLICY_DEFINITION: "), "{invalid:?}: {error}");
    }
    assert_eq!(list(&edge, "").await, BUILT_IN);
    // The last step: what is there already, be it built in and to the letter.
    edge.register_policy(policy("p", "*", "")).await;
    let built_in = get(&edge, "policy.std.majority").await.expect("built in");
    for again in [policy("p", "*", "{}"), built_in] {
        let RegisterPolicyResponse { ok, error } = register(&edge, again).await;
        assert!(!ok && error.contains("already registered") && !error.contains("INVALID_POLICY"), "{error}");
    }
    edge.shut_down().await;
}

#[tokio::test]
async fn a_registry_that_is_read_only_says_so_once_it_knows_who_asks() {
    let edge = Edge::with(|settings| settings.policies_read_only = true).await;
    let mut client = edge.runtime.clone();
    let request = RegisterPolicyRequest { policy_descriptor: Some(policy("p", "*", "{}")) };
    refused(client.register_policy(request.clone()).await, Code::Unauthenticated, "UNAUTHENTICATED");
    let answer = client.register_policy(authorized("admin", request)).await;
    refused(answer, Code::FailedPrecondition, "REGISTRY_READ_ONLY");
    let answer = client.unregister_policy(authorized("admin", UnregisterPolicyRequest { policy_id: "p".into() })).await;
    refused(answer, Code::FailedPrecondition, "REGISTRY_READ_ONLY");
    let request = InitializeRequest { supported_protocol_versions: vec!["1.0".into()], ..Default::default() };
    let capabilities = body(client.initialize(request).await).expect("initialized").capabilities.expect("capabilities");
    assert!(!capabilities.policy_registry.expect("listed").register_policy);
    edge.shut_down().await;
}

#[tokio::test]
async fn watch_policies_tells_the_whole_list_now_and_after_every_change() {
    let edge = Edge::start().await;
    let mut watch = watch(&edge).await;
    let ids = |response: &WatchPoliciesResponse| -> Vec<String> {
        response.descriptors.iter().map(|policy| policy.policy_id.clone()).collect()
    };
    let first = next(&mut watch).await;
    assert_eq!(ids(&first), BUILT_IN);
    assert!(first.observed_at_unix_ms > 0);
    edge.register_policy(policy("a", "*", "{}")).await;
    let second = next(&mut watch).await;
    assert_eq!((ids(&second).len(), second.descriptors[0].policy_id.as_str()), (5, "a"));
    assert!(!register(&edge, policy("a", "*", "{}")).await.ok, "no change, no event");
    assert!(unregister(&edge, "a").await.ok);
    assert_eq!(ids(&next(&mut watch).await), BUILT_IN);
    edge.server.shut_down().await.expect("a clean shutdown");
    assert_eq!(end(&mut watch).await.expect("a status").code(), Code::Unavailable);
}

#[tokio::test]
async fn std_pol_4_policies_and_what_is_bound_to_them_outlive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store"));
    let edge = Edge::on(store(), |_| ()).await;
    edge.register_policy(policy("kept", "*", r#"{"commitment":{"authority":"any_participant"}}"#)).await;
    edge.register_policy(policy("gone", "*", r#"{"commitment":{"authority":"any_participant"}}"#)).await;
    let kept = get(&edge, "kept").await.expect("a policy");
    let governed = |id: &str| SessionStartPayload { policy_version: id.into(), ..start_payload() };
    edge.accept_as("alice", std_start(&sid(1), DECISION, &governed("gone"))).await;
    edge.accept_as("bob", propose(&sid(1), "p")).await;
    assert!(unregister(&edge, "gone").await.ok);
    // Another policy may have the id now; the session keeps the one it was bound to.
    edge.register_policy(policy("gone", "*", r#"{"commitment":{"authority":"initiator_only"}}"#)).await;
    assert!(unregister(&edge, "gone").await.ok);
    edge.refuse_as("alice", std_start(&sid(2), DECISION, &governed("gone")), "UNKNOWN_POLICY_VERSION").await;
    edge.shut_down().await;

    let edge = Edge::on(store(), |_| ()).await;
    assert_eq!(get(&edge, "kept").await.expect("kept"), kept);
    refused(get(&edge, "gone").await, Code::NotFound, "UNKNOWN_POLICY_VERSION");
    assert!(!register(&edge, policy("kept", "*", "{}")).await.ok);
    edge.accept_as("alice", std_start(&sid(3), DECISION, &governed("kept"))).await;
    assert_eq!(edge.session_as("bob", &sid(1)).await.expect("a session").policy_version, "gone");
    let bound = CommitmentPayload { policy_version: "gone".into(), ..commitment_payload() };
    let ack = edge.accept_as("bob", decision(&sid(1), "c", "Commitment", &bound)).await;
    assert_eq!(ack.session_state, RESOLVED, "any participant may commit under the bound policy");
    edge.shut_down().await;
}
