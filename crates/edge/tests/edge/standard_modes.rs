//! Extension modes: registered, used, promoted, forgotten, and there again after a restart.

use std::sync::Arc;

use macp_ledger::SqliteStore;
use macp_wire::v1::*;
use tonic::Code;

use crate::common::*;
use crate::standard_common::*;

const NOTES: &str = "ext.notes.v1";

async fn unregister(edge: &Edge, mode: &str) -> UnregisterExtModeResponse {
    let request = UnregisterExtModeRequest { mode: mode.into() };
    body(edge.runtime.clone().unregister_ext_mode(authorized("admin", request)).await).expect("in band")
}

async fn promote(edge: &Edge, mode: &str, name: &str) -> PromoteModeResponse {
    let request = PromoteModeRequest { mode: mode.into(), promoted_mode_name: name.into() };
    body(edge.runtime.clone().promote_mode(authorized("admin", request)).await).expect("in band")
}

async fn extensions(edge: &Edge) -> Vec<String> {
    let listed = body(edge.runtime.clone().list_ext_modes(ListExtModesRequest {}).await).expect("modes").modes;
    listed.into_iter().map(|mode| mode.mode).collect()
}

async fn standards(edge: &Edge) -> Vec<String> {
    let listed = body(edge.runtime.clone().list_modes(ListModesRequest {}).await).expect("modes").modes;
    listed.into_iter().map(|mode| mode.mode).collect()
}

async fn supported(edge: &Edge) -> Vec<String> {
    let request = InitializeRequest { supported_protocol_versions: vec!["1.0".into()], ..Default::default() };
    body(edge.runtime.clone().initialize(request).await).expect("initialized").supported_modes
}

/// A start that says nothing but how long it may take.
fn lax() -> SessionStartPayload {
    SessionStartPayload { ttl_ms: 60_000, ..Default::default() }
}

fn note(session_id: &str, message_id: &str) -> Envelope {
    Envelope { payload: vec![0xff, 0x00].into(), ..message(session_id, NOTES, message_id, "Note", &()) }
}

fn notes_commit(session_id: &str, configuration_version: &str) -> Envelope {
    let payload = CommitmentPayload {
        mode_version: "2.1".into(),
        configuration_version: configuration_version.into(),
        ..commitment_payload()
    };
    message(session_id, NOTES, "c", "Commitment", &payload)
}

#[tokio::test]
async fn std_ext_1_a_registered_mode_passes_messages_through() {
    let edge = Edge::start().await;
    edge.refuse_as("alice", std_start(&sid(1), NOTES, &lax()), "MODE_NOT_SUPPORTED").await;
    let registered = edge.register_mode(notes_mode(NOTES)).await;
    assert!(registered.ok && registered.error.is_empty());
    assert_eq!(extensions(&edge).await, ["ext.multi_round.v1", NOTES]);
    assert!(supported(&edge).await.is_sorted());
    assert!(supported(&edge).await.contains(&NOTES.to_owned()));
    assert_eq!(standards(&edge).await.len(), 6, "not standards-track");

    // STD-CORE-12: no roster and no versions needed, but a payload, its version and a ttl are.
    edge.refuse_as("alice", std_start(&sid(1), NOTES, &SessionStartPayload::default()), "INVALID_ENVELOPE").await;
    let other = SessionStartPayload { mode_version: "1.0.0".into(), ..lax() };
    edge.refuse_as("alice", std_start(&sid(1), NOTES, &other), "INVALID_ENVELOPE").await;
    edge.accept_as("alice", std_start(&sid(1), NOTES, &lax())).await;
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("a session").mode_version, "2.1", "the descriptor's");
    edge.accept_as("anyone", note(&sid(1), "n1")).await;
    edge.refuse_as("anyone", Envelope { message_type: "Gossip".into(), ..note(&sid(1), "n2") }, "INVALID_ENVELOPE")
        .await;
    edge.refuse_as("anyone", notes_commit(&sid(1), ""), "FORBIDDEN").await;
    let ack = edge.accept_as("alice", notes_commit(&sid(1), "")).await;
    assert_eq!(ack.session_state, RESOLVED);

    let roster = SessionStartPayload { participants: vec!["bob".into()], ..lax() };
    edge.accept_as("alice", std_start(&sid(2), NOTES, &roster)).await;
    edge.accept_as("bob", note(&sid(2), "n1")).await;
    edge.refuse_as("mallory", note(&sid(2), "n2"), "FORBIDDEN").await;

    // No receipt for what is none of the five.
    let request = GetDecisionReceiptRequest { session_id: sid(1) };
    let answer = edge.runtime.clone().get_decision_receipt(authorized("alice", request)).await;
    refused(answer, Code::FailedPrecondition, "RECEIPT_UNAVAILABLE");
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_12_a_descriptor_that_is_no_good_is_told_so_in_the_answer() {
    let edge = Edge::start().await;
    let with = |adjust: fn(&mut ModeDescriptor)| {
        let mut mode = notes_mode(NOTES);
        adjust(&mut mode);
        mode
    };
    for invalid in [
        ModeDescriptor::default(),
        with(|mode| mode.mode = " \t".into()),
        with(|mode| mode.mode = "macp.mode.notes.v1".into()),
        with(|mode| mode.mode = "x".repeat(100_000)),
        with(|mode| mode.message_types.clear()),
        with(|mode| mode.mode_version = "  ".into()),
        with(|mode| mode.terminal_message_types.clear()),
        with(|mode| mode.terminal_message_types = vec!["Note".into()]),
        with(|mode| mode.terminal_message_types.push("Note".into())),
        with(|mode| mode.message_types.retain(|kind| kind != "Commitment")),
        with(|mode| mode.mode = "ext.multi_round.v1".into()),
    ] {
        let RegisterExtModeResponse { ok, error } = edge.register_mode(invalid.clone()).await;
        assert!(!ok && !error.is_empty(), "{invalid:?}");
    }
    assert_eq!(extensions(&edge).await, ["ext.multi_round.v1"]);
    assert!(edge.register_mode(notes_mode(NOTES)).await.ok);
    assert!(!edge.register_mode(notes_mode(NOTES)).await.ok, "it is there already");
    for mode in ["", "ext.unheard.of", "ext.multi_round.v1", DECISION, "macp.mode.multi_round.v1"] {
        let UnregisterExtModeResponse { ok, error } = unregister(&edge, mode).await;
        assert!(!ok && !error.is_empty(), "{mode}");
        let PromoteModeResponse { ok, error, mode } = promote(&edge, mode, "").await;
        assert!(!ok && !error.is_empty() && mode.is_empty(), "{mode}");
    }
    for name in [" ", "macp.mode.notes.v1", DECISION, "ext.multi_round.v1"] {
        assert!(!promote(&edge, NOTES, name).await.ok, "STD-RPC-13: {name:?}");
    }
    assert_eq!(extensions(&edge).await, ["ext.multi_round.v1", NOTES]);
    edge.shut_down().await;
}

#[tokio::test]
async fn std_rpc_13_promotion_makes_a_mode_standards_track_and_strict() {
    let edge = Edge::start().await;
    for name in [NOTES, "ext.a", "acme.b"] {
        assert!(edge.register_mode(notes_mode(name)).await.ok);
    }
    let promoted = promote(&edge, "ext.a", "").await;
    assert!(promoted.ok && promoted.error.is_empty());
    assert_eq!(promoted.mode, "ext.a");
    assert_eq!(promote(&edge, "acme.b", "acme.better").await.mode, "acme.better");
    assert_eq!(standards(&edge).await[6..], ["acme.better", "ext.a"], "after the others, by name");
    assert_eq!(extensions(&edge).await, ["ext.multi_round.v1", NOTES]);
    assert!(!supported(&edge).await.contains(&"acme.b".to_owned()));
    assert!(!promote(&edge, "ext.a", "").await.ok, "standards-track already");
    assert!(!unregister(&edge, "ext.a").await.ok, "standards-track");
    assert!(!promote(&edge, NOTES, "ext.a").await.ok, "the name is taken");

    edge.refuse_as("alice", std_start(&sid(1), "acme.b", &start_payload()), "MODE_NOT_SUPPORTED").await;
    edge.refuse_as("alice", std_start(&sid(1), "ext.a", &lax()), "INVALID_ENVELOPE").await;
    let strict = SessionStartPayload { mode_version: "2.1".into(), ..start_payload() };
    edge.accept_as("alice", std_start(&sid(1), "ext.a", &strict)).await;
    edge.shut_down().await;
}

#[tokio::test]
async fn std_ext_2_sessions_of_a_forgotten_mode_take_nothing_but_can_be_cancelled() {
    let edge = Edge::start().await;
    assert!(edge.register_mode(notes_mode(NOTES)).await.ok);
    for number in [1, 2] {
        edge.accept_as("alice", std_start(&sid(number), NOTES, &lax())).await;
        edge.accept_as("alice", note(&sid(number), "n1")).await;
    }
    assert!(unregister(&edge, NOTES).await.ok);
    let ack = edge.refuse_as("alice", note(&sid(1), "n2"), "MODE_NOT_SUPPORTED").await;
    assert_eq!(ack.session_state, OPEN);
    edge.duplicate_as("alice", note(&sid(1), "n1")).await;
    edge.refuse_as("alice", std_start(&sid(3), NOTES, &lax()), "MODE_NOT_SUPPORTED").await;
    assert_eq!(edge.session_as("alice", &sid(1)).await.expect("readable").mode, NOTES);
    assert_eq!(edge.cancel_as("alice", &sid(1)).await.expect("cancelled").session_state, CANCELLED);
    // Registered again, be it in another form: the session goes on in the one it was started in.
    let other =
        ModeDescriptor { mode_version: "3".into(), message_types: vec!["Commitment".into()], ..notes_mode(NOTES) };
    assert!(edge.register_mode(other).await.ok);
    edge.accept_as("alice", note(&sid(2), "n2")).await;
    assert_eq!(edge.accept_as("alice", notes_commit(&sid(2), "")).await.session_state, RESOLVED);
    edge.shut_down().await;
}

#[tokio::test]
async fn watch_mode_registry_tells_of_every_change() {
    let edge = Edge::start().await;
    let watch = edge.runtime.clone().watch_mode_registry(WatchModeRegistryRequest {}).await;
    let mut watch = body(watch).expect("a watch");
    let change = next(&mut watch).await.change.expect("a change");
    assert_eq!(change.registry, "modes");
    assert!(edge.register_mode(notes_mode("ext.a")).await.ok);
    assert!(!edge.register_mode(notes_mode("ext.a")).await.ok);
    assert!(edge.register_mode(notes_mode("ext.b")).await.ok);
    assert!(promote(&edge, "ext.a", "").await.ok);
    assert!(unregister(&edge, "ext.b").await.ok);
    let mut last = change.observed_at_unix_ms;
    for _ in 0..4 {
        let change = next(&mut watch).await.change.expect("a change");
        assert!(change.registry == "modes" && change.observed_at_unix_ms >= last);
        last = change.observed_at_unix_ms;
    }
    edge.server.shut_down().await.expect("a clean shutdown");
    assert_eq!(end(&mut watch).await.expect("a status").code(), Code::Unavailable, "and of nothing else");
}

#[tokio::test]
async fn modes_and_their_sessions_outlive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store"));
    let edge = Edge::on(store(), |_| ()).await;
    for name in [NOTES, "ext.promoted", "ext.renamed", "ext.gone"] {
        assert!(edge.register_mode(notes_mode(name)).await.ok);
    }
    assert!(promote(&edge, "ext.promoted", "").await.ok);
    assert!(promote(&edge, "ext.renamed", "acme.renamed").await.ok);
    assert!(unregister(&edge, "ext.gone").await.ok);
    edge.accept_as("alice", std_start(&sid(1), NOTES, &lax())).await;
    edge.accept_as("bob", note(&sid(1), "n1")).await;
    let (standard, extension) = (standards(&edge).await, extensions(&edge).await);
    edge.shut_down().await;

    let edge = Edge::on(store(), |_| ()).await;
    assert_eq!((standards(&edge).await, extensions(&edge).await), (standard.clone(), extension.clone()));
    assert_eq!(standard[6..], ["acme.renamed", "ext.promoted"]);
    assert_eq!(extension, ["ext.multi_round.v1", NOTES]);
    let listed = body(edge.runtime.clone().list_ext_modes(ListExtModesRequest {}).await).expect("modes").modes;
    assert_eq!(listed[1], notes_mode(NOTES), "to the letter");
    edge.duplicate_as("bob", note(&sid(1), "n1")).await;
    edge.accept_as("carol", note(&sid(1), "n2")).await;
    edge.refuse_as("alice", std_start(&sid(2), "ext.promoted", &lax()), "INVALID_ENVELOPE").await;
    edge.refuse_as("alice", std_start(&sid(2), "ext.gone", &lax()), "MODE_NOT_SUPPORTED").await;
    let activity = edge.session_as("alice", &sid(1)).await.expect("a session").participant_activity;
    let counts: Vec<_> = activity.iter().map(|one| (one.participant_id.as_str(), one.message_count)).collect();
    assert_eq!(counts, [("bob", 1), ("carol", 1)]);
    assert_eq!(edge.accept_as("alice", notes_commit(&sid(1), "")).await.session_state, RESOLVED);
    edge.shut_down().await;
}

#[tokio::test]
async fn multi_round_needs_no_registration() {
    let edge = Edge::start().await;
    let mode = "ext.multi_round.v1";
    edge.accept_as("alice", std_start(&sid(1), mode, &start_payload())).await;
    let contribute = |id: &str, value: &str| {
        let payload = macp_wire::modes::multi_round::v1::ContributePayload { value: value.into() };
        message(&sid(1), mode, id, "Contribute", &payload)
    };
    let commit = message(
        &sid(1),
        mode,
        "c",
        "Commitment",
        &CommitmentPayload { action: "multi_round.converged".into(), ..commitment_payload() },
    );
    edge.refuse_as("mallory", contribute("x", "a"), "FORBIDDEN").await;
    edge.accept_as("alice", contribute("1", "a")).await;
    edge.refuse_as("alice", commit.clone(), "INVALID_ENVELOPE").await;
    // STD-MR-4: the JSON form is taken too.
    let json = Envelope { payload: r#"{"value":"a"}"#.into(), ..contribute("2", "") };
    edge.accept_as("bob", json).await;
    edge.refuse_as("bob", contribute("3", "b"), "INVALID_ENVELOPE").await;
    edge.refuse_as("bob", commit.clone(), "FORBIDDEN").await;
    assert_eq!(edge.accept_as("alice", commit).await.session_state, RESOLVED);
    edge.shut_down().await;
}
