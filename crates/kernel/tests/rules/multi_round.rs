//! MODE-3 and MODE-4: classic Multi-Round sessions and their convergence strategies.

use macp_kernel::State;
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::codes::Code;
use macp_wire::modes::multi_round::v1::ContributePayload;
use prost::Message;
use serde_json::json;

use crate::world::{World, by, contribute, envelope, multi_round, participants, proposal, with_payload};

fn session(names: &[&str]) -> World {
    World::started(multi_round(&participants(names)))
}

fn choosing(names: &[&str], context: impl ToString) -> SessionStartPayload {
    SessionStartPayload { context: context.to_string().into(), ..participants(names) }
}

/// Plays contributions `sender=value` and returns the resolution, if the last one converged.
#[track_caller]
fn play(payload: &SessionStartPayload, contributions: &[&str]) -> Option<serde_json::Value> {
    let mut world = World::started(multi_round(payload));
    for (at, contribution) in contributions.iter().enumerate() {
        assert_eq!(world.session().state(), State::Open, "converged before {contribution}");
        let (sender, value) = contribution.split_once('=').expect("sender=value");
        world.expect(contribute(sender, &format!("m{at}"), value), "accepted");
    }
    let resolved = world.session().state() == State::Resolved;
    resolved.then(|| serde_json::from_slice(world.resolution()).expect("a resolution is JSON"))
}

#[test]
fn mode_3_participants_are_required() {
    let rejection = World::new().refused(multi_round(&SessionStartPayload::default()));
    assert_eq!(rejection.code, Code::InvalidEnvelope);
}

#[test]
fn mode_3_resolution() {
    let mut world = session(&["zoe", "adam"]);
    world.expect(contribute("zoe", "m1", "x"), "accepted");
    world.expect(contribute("adam", "m2", "y"), "accepted");
    world.expect(contribute("zoe", "m3", "y"), "accepted");
    assert_eq!(world.session().state(), State::Resolved);
    // Byte for byte: the keys of final_values are sorted, whatever the order of the roster.
    let expected = r#"{"converged_value":"y","round":3,"final_values":{"adam":"y","zoe":"y"}}"#;
    assert_eq!(world.resolution(), expected.as_bytes());
}

#[test]
fn mode_3_a_single_participant_converges_at_once() {
    let resolution = play(&participants(&["alice"]), &["alice=x"]).expect("converged");
    assert_eq!(resolution["round"], 1);
}

#[test]
fn mode_3_rounds_count_changes_only() {
    let mut world = session(&["alice", "bob"]);
    assert_eq!(world.mode_state()["round"], 0);
    for (at, (value, round)) in [("x", 1), ("x", 1), ("y", 2), ("x", 3), ("x", 3)].iter().enumerate() {
        world.expect(contribute("alice", &format!("m{at}"), value), "accepted");
        assert_eq!(world.mode_state()["round"], *round, "after contribution {at}");
    }
    // A repeated value is history all the same.
    assert_eq!(world.entries().len(), 6);
    assert_eq!(world.mode_state()["contributions"], json!({ "alice": "x" }));
}

#[test]
fn mode_3_other_messages_are_accepted_and_change_nothing() {
    let mut world = session(&["alice", "bob"]);
    let before = world.mode_state();
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(with_payload("Whatever", "m2", vec![0xff]), "accepted");
    world.expect(with_payload("Message", "m3", "resolve"), "accepted");
    assert_eq!(world.mode_state(), before);
    assert_eq!(world.session().state(), State::Open);
    assert_eq!(world.entries().len(), 4);
}

#[test]
fn mode_3_payloads_of_contribute() {
    let protobuf = ContributePayload { value: "x".into() }.encode_to_vec();
    let cases: [(Vec<u8>, &str); 9] = [
        (br#"{"value":"x"}"#.to_vec(), "accepted"),
        (br#"{"value":""}"#.to_vec(), "accepted"),
        (br#"{"value":"x","note":1}"#.to_vec(), "accepted"),
        (protobuf, "accepted"),
        (b"{}".to_vec(), "INVALID_ENVELOPE"),
        (br#"{"value":1}"#.to_vec(), "INVALID_ENVELOPE"),
        (br#"{"value":null}"#.to_vec(), "INVALID_ENVELOPE"),
        (br#"{"value":"x","value":"y"}"#.to_vec(), "INVALID_ENVELOPE"),
        (vec![0xff], "INVALID_ENVELOPE"),
    ];
    for (payload, expected) in cases {
        session(&["alice", "bob"]).expect(with_payload("Contribute", "m1", payload), expected);
    }
}

#[test]
fn mode_3_values_are_bounded() {
    for (length, expected) in [(65_536, "accepted"), (65_537, "INVALID_ENVELOPE")] {
        session(&["alice", "bob"]).expect(contribute("alice", "m1", &"x".repeat(length)), expected);
    }
}

#[test]
fn mode_3_outsiders_cannot_contribute() {
    let mut world = session(&["alice", "bob"]);
    assert_eq!(world.refused(contribute("carol", "m1", "x")).code, Code::InvalidEnvelope);
    assert_eq!(world.refused(by("carol", envelope("Message", "m1"))).code, Code::InvalidEnvelope);
}

#[test]
fn mode_4_all_equal_is_the_default() {
    let names = ["alice", "bob", "carol"];
    let contexts = [
        String::new(),
        "not JSON at all".into(),
        "[1, 2]".into(),
        "{}".into(),
        json!({ "other": { "convergence": 1 } }).to_string(),
        json!({ "convergence": { "strategy": "all_equal" } }).to_string(),
    ];
    for context in contexts {
        let payload = choosing(&names, &context);
        assert_eq!(play(&payload, &["alice=x", "bob=x"]), None, "{context}");
        assert_eq!(play(&payload, &["alice=x", "bob=x", "carol=y"]), None, "{context}");
        let resolution = play(&payload, &["alice=x", "bob=x", "carol=x"]).expect("converged");
        assert_eq!(resolution["converged_value"], "x");
    }
}

#[test]
fn mode_4_repeated_participants_count_once() {
    let payload =
        choosing(&["alice", "bob", "alice"], json!({ "convergence": { "strategy": "threshold", "threshold": 3 } }));
    assert_eq!(World::new().refused(multi_round(&payload)).code, Code::InvalidEnvelope);
    assert!(play(&participants(&["alice", "bob", "alice"]), &["alice=x", "bob=x"]).is_some());
}

#[test]
fn mode_4_majority() {
    let majority = json!({ "convergence": { "strategy": "majority" } });
    let four = choosing(&["a", "b", "c", "d"], &majority);
    assert_eq!(play(&four, &["a=x", "b=x"]), None);
    assert!(play(&four, &["a=x", "b=x", "c=x"]).is_some());
    // More than half of those listed, whoever has spoken; what one held before counts no more.
    let three = choosing(&["a", "b", "c"], &majority);
    let resolution = play(&three, &["a=x", "b=y", "a=y"]).expect("converged");
    assert_eq!(resolution, json!({ "converged_value": "y", "round": 3, "final_values": { "a": "y", "b": "y" } }));
    assert_eq!(play(&three, &["a=x", "b=y", "c=z", "a=w", "b=x"]), None);
}

#[test]
fn mode_4_threshold() {
    let threshold = |needed: u64| {
        choosing(&["a", "b", "c"], json!({ "convergence": { "strategy": "threshold", "threshold": needed } }))
    };
    assert!(play(&threshold(1), &["a=x"]).is_some());
    assert_eq!(play(&threshold(2), &["a=x", "b=y"]), None);
    assert!(play(&threshold(2), &["a=x", "b=y", "c=x"]).is_some());
    assert!(play(&threshold(3), &["a=x", "b=x", "c=x"]).is_some());
}

#[test]
fn mode_4_weighted() {
    let weighted = |choice: serde_json::Value| {
        let mut choice = choice;
        choice["strategy"] = json!("weighted");
        choosing(&["a", "b", "c"], json!({ "convergence": choice }))
    };
    // Without weights, everyone weighs one, and more than half of the total is needed.
    assert_eq!(play(&weighted(json!({})), &["a=x"]), None);
    assert!(play(&weighted(json!({})), &["a=x", "b=x"]).is_some());
    // a weighs 2 of 4: not more than half.
    let payload = weighted(json!({ "weights": { "a": 2 } }));
    assert_eq!(play(&payload, &["a=x"]), None);
    assert!(play(&payload, &["a=x", "b=x"]).is_some());
    assert_eq!(play(&payload, &["b=x", "c=x"]), None);
    // The threshold is inclusive.
    let payload = weighted(json!({ "weights": { "a": 2 }, "threshold": 2 }));
    assert!(play(&payload, &["a=x"]).is_some());
    assert!(play(&payload, &["b=x", "c=x"]).is_some());
    // Who weighs nothing decides nothing, and may still change its mind.
    let payload = weighted(json!({ "weights": { "a": 0, "b": 0 } }));
    assert_eq!(play(&payload, &["a=x", "b=x", "a=y", "a=x"]), None);
    let resolution = play(&payload, &["a=x", "c=y"]).expect("converged");
    assert_eq!(resolution["final_values"], json!({ "a": "x", "c": "y" }));
    // Weight moves with its holder.
    let payload = weighted(json!({ "weights": { "a": 3, "b": 3 }, "threshold": 6 }));
    assert_eq!(play(&payload, &["a=x", "a=y", "b=x"]), None);
    assert!(play(&payload, &["a=x", "a=y", "b=x", "a=x"]).is_some());
}

#[test]
fn mode_4_the_largest_weights_that_add_up() {
    let most = u64::MAX - 1;
    let payload = choosing(
        &["a", "b"],
        json!({ "convergence": { "strategy": "weighted", "weights": { "a": most, "b": 1 }, "threshold": u64::MAX } }),
    );
    assert!(play(&payload, &["a=x", "b=x"]).is_some());
}

/// Everything in a convergence that is not one of the documented forms is refused.
#[test]
fn mode_4_invalid_convergence() {
    let cases = [
        json!(null),
        json!("majority"),
        json!(1),
        json!([]),
        json!(["majority"]),
        json!(["threshold", 2, null]),
        json!({}),
        json!({ "strategy": null }),
        json!({ "strategy": "" }),
        json!({ "strategy": "unanimous" }),
        json!({ "strategy": "Majority" }),
        json!({ "strategy": { "majority": null } }),
        json!({ "strategy": ["majority"] }),
        json!({ "strategy": "majority", "extra": 1 }),
        json!({ "strategy": "majority", "threshold": 2 }),
        json!({ "strategy": "majority", "threshold": null }),
        json!({ "strategy": "majority", "weights": { "alice": 1 } }),
        json!({ "strategy": "all_equal", "threshold": 2 }),
        json!({ "strategy": "all_equal", "weights": null }),
        json!({ "strategy": "threshold" }),
        json!({ "strategy": "threshold", "threshold": 0 }),
        json!({ "strategy": "threshold", "threshold": 3 }),
        json!({ "strategy": "threshold", "threshold": -1 }),
        json!({ "strategy": "threshold", "threshold": 1.5 }),
        json!({ "strategy": "threshold", "threshold": "2" }),
        json!({ "strategy": "threshold", "threshold": null }),
        json!({ "strategy": "threshold", "threshold": 2, "weights": { "alice": 1 } }),
        json!({ "strategy": "weighted", "weights": { "stranger": 1 } }),
        json!({ "strategy": "weighted", "weights": { "alice": -1 } }),
        json!({ "strategy": "weighted", "weights": { "alice": 1.5 } }),
        json!({ "strategy": "weighted", "weights": { "alice": "1" } }),
        json!({ "strategy": "weighted", "weights": { "alice": null } }),
        json!({ "strategy": "weighted", "weights": ["alice"] }),
        json!({ "strategy": "weighted", "weights": null }),
        json!({ "strategy": "weighted", "weights": { "alice": 0, "bob": 0 } }),
        json!({ "strategy": "weighted", "weights": { "alice": u64::MAX, "bob": 1 } }),
        json!({ "strategy": "weighted", "threshold": 0 }),
        json!({ "strategy": "weighted", "threshold": 3 }),
        json!({ "strategy": "weighted", "threshold": null }),
    ];
    for convergence in cases {
        let payload = choosing(&["alice", "bob"], json!({ "convergence": convergence }));
        let rejection = World::new().refused(multi_round(&payload));
        assert_eq!(rejection.code, Code::InvalidEnvelope, "{convergence}");
        assert!(rejection.message.contains("convergence"), "{convergence}: {rejection}");
    }
}

#[test]
fn mode_4_the_context_of_a_decision_is_its_own_business() {
    let payload = choosing(&["alice"], json!({ "convergence": "whatever" }));
    let mut world = World::new();
    world.expect(crate::world::start_with(&payload), "accepted");
    let binding = world.entries()[0].binding.as_ref().expect("the first entry binds");
    assert_eq!(binding.context, payload.context);
}

#[test]
fn mode_4_the_strategy_shows_in_the_state() {
    for strategy in ["all_equal", "majority", "weighted"] {
        let payload = choosing(&["alice", "bob"], json!({ "convergence": { "strategy": strategy } }));
        let world = World::started(multi_round(&payload));
        assert_eq!(world.mode_state()["convergence_type"], strategy);
        assert_eq!(world.mode_state()["participants"], json!(["alice", "bob"]));
    }
}
