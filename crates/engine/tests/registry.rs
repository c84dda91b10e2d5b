//! The registries: what they take, what they keep, and what an envelope finds in them.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::Flaky;
use macp_engine::{Registry, RegistryError};
use macp_ledger::{MemoryStore, PutMode, SqliteStore, Store};
use macp_wire::v1::{Envelope, ModeDescriptor, PolicyDescriptor, SessionStartPayload};
use prost::Message;
use tokio::sync::broadcast::error::TryRecvError;

fn open(store: &Arc<dyn Store>) -> Registry {
    Registry::open(Arc::clone(store)).expect("a registry")
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn policy(id: &str, mode: &str) -> PolicyDescriptor {
    PolicyDescriptor {
        policy_id: id.into(),
        mode: mode.into(),
        rules: "{}".into(),
        schema_version: 1,
        ..PolicyDescriptor::default()
    }
}

fn mode(name: &str) -> ModeDescriptor {
    ModeDescriptor {
        mode: name.into(),
        mode_version: "1".into(),
        message_types: vec!["Note".into(), "Commitment".into()],
        terminal_message_types: vec!["Commitment".into()],
        ..ModeDescriptor::default()
    }
}

fn names(modes: &[ModeDescriptor]) -> Vec<&str> {
    modes.iter().map(|mode| mode.mode.as_str()).collect()
}

fn ids(policies: &[PolicyDescriptor]) -> Vec<&str> {
    policies.iter().map(|policy| policy.policy_id.as_str()).collect()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, RegistryError>) -> String {
    match result {
        Err(RegistryError::Refused(reason)) => reason,
        other => panic!("{other:?} is no refusal"),
    }
}

/// A start in a mode, under a policy.
fn start(mode: &str, policy_version: &str) -> Envelope {
    let payload = SessionStartPayload { policy_version: policy_version.into(), ..SessionStartPayload::default() };
    Envelope { mode: mode.into(), ..common::envelope("s", "SessionStart", "m", "alice", &payload.encode_to_vec()) }
}

#[test]
fn an_envelope_finds_what_it_names_and_nothing_else() {
    let registry = open(&memory());
    registry.register_policy(&policy("p", "*"), 1).expect("registered");
    registry.register_mode(&mode("ext.a"), 1).expect("registered");

    let found = registry.look_up(&start("ext.a", "p"));
    assert_eq!(found.policy.expect("a policy").id(), "p");
    assert_eq!(found.extension.expect("a mode").descriptor, mode("ext.a"));
    let found = registry.look_up(&start("ext.unheard-of", "q"));
    assert!(found.policy.is_none() && found.extension.is_none());
    let found = registry.look_up(&start("macp.mode.decision.v1", ""));
    assert!(found.policy.is_none() && found.extension.is_none(), "what is built in need not be looked up");

    // Only a start names a policy; any message names its mode.
    let message = Envelope { message_type: "Note".into(), ..start("ext.a", "p") };
    let found = registry.look_up(&message);
    assert!(found.policy.is_none() && found.extension.is_some());
    let undecodable = Envelope { payload: vec![0xff].into(), ..start("ext.a", "p") };
    assert!(registry.look_up(&undecodable).policy.is_none());
}

#[test]
fn what_was_looked_up_stays_as_it_was() {
    let registry = open(&memory());
    registry.register_policy(&policy("p", "*"), 1).expect("registered");
    registry.register_mode(&mode("ext.a"), 1).expect("registered");
    let before = registry.look_up(&start("ext.a", "p"));
    registry.unregister_policy("p", 2).expect("unregistered");
    registry.unregister_mode("ext.a", 2).expect("unregistered");
    assert_eq!(before.policy.expect("held").id(), "p", "STD-POL-4: a session keeps what it started under");
    assert_eq!(before.extension.expect("held").descriptor.mode, "ext.a");
    let after = registry.look_up(&start("ext.a", "p"));
    assert!(after.policy.is_none() && after.extension.is_none());
}

#[test]
fn policies_are_listed_by_id_with_those_built_in() {
    let registry = open(&memory());
    for (id, mode) in [("z", "*"), ("a", "macp.mode.task.v1")] {
        registry.register_policy(&policy(id, mode), 7).expect("registered");
    }
    let built_in = ["policy.default", "policy.std.majority", "policy.std.supermajority", "policy.std.unanimous"];
    assert_eq!(ids(&registry.policies("")), [&["a"][..], &built_in, &["z"]].concat());
    assert_eq!(ids(&registry.policies("macp.mode.task.v1")), ["a", "policy.default", "z"]);
    assert_eq!(registry.policy("a").expect("registered").descriptor.registered_at_unix_ms, 7);
    for id in built_in {
        assert!(registry.policy(id).is_some());
        assert!(refused(registry.unregister_policy(id, 8)).contains("built in"));
    }
    assert!(refused(registry.register_policy(&policy("a", "*"), 8)).contains("already registered"));
    assert!(refused(registry.register_policy(&policy(" ", "*"), 8)).starts_with("INVALID_POLICY_DEFINITION: "));
    assert!(refused(registry.unregister_policy("unheard-of", 8)).contains("no policy"));
}

#[test]
fn std_rpc_13_promotion_moves_a_mode_to_the_other_list_and_maybe_to_another_name() {
    let registry = open(&memory());
    for name in ["ext.c", "ext.a", "ext.b"] {
        registry.register_mode(&mode(name), 1).expect("registered");
    }
    assert_eq!(names(&registry.modes(false)), ["ext.a", "ext.b", "ext.c"]);
    assert_eq!(registry.promote_mode("ext.b", "", 2).expect("promoted"), "ext.b");
    assert_eq!(registry.promote_mode("ext.c", "ext.c", 2).expect("promoted"), "ext.c");
    assert_eq!(registry.promote_mode("ext.a", "acme.a", 2).expect("promoted"), "acme.a");
    assert_eq!(names(&registry.modes(true)), ["acme.a", "ext.b", "ext.c"]);
    assert!(registry.modes(false).is_empty());
    assert!(registry.look_up(&start("ext.a", "")).extension.is_none());
    assert!(registry.look_up(&start("acme.a", "")).extension.expect("promoted").promoted);
    refused(registry.promote_mode("acme.a", "", 3));
    refused(registry.unregister_mode("acme.a", 3));
    // The old name is free again.
    registry.register_mode(&mode("ext.a"), 3).expect("registered");
    for name in [" ", "macp.mode.a", "acme.a", "ext.multi_round.v1"] {
        refused(registry.promote_mode("ext.a", name, 4));
    }
    assert_eq!(names(&registry.modes(false)), ["ext.a"], "a refusal changes nothing");
}

#[test]
fn std_rpc_12_descriptors_are_held_to_their_rules() {
    let registry = open(&memory());
    let adjusted = |adjust: fn(&mut ModeDescriptor)| {
        let mut mode = mode("ext.a");
        adjust(&mut mode);
        mode
    };
    for invalid in [
        adjusted(|mode| mode.mode = "\t".into()),
        adjusted(|mode| mode.mode = "macp.mode.mine".into()),
        adjusted(|mode| mode.mode = "x".repeat(257)),
        adjusted(|mode| mode.mode = "ext.multi_round.v1".into()),
        adjusted(|mode| mode.mode_version = " ".into()),
        adjusted(|mode| mode.mode_version = "x".repeat(257)),
        adjusted(|mode| mode.message_types.clear()),
        adjusted(|mode| mode.message_types.extend((0..256).map(|number| format!("m{number}")))),
        adjusted(|mode| mode.message_types.push("x".repeat(257))),
        adjusted(|mode| mode.terminal_message_types.clear()),
        adjusted(|mode| mode.terminal_message_types = vec!["Note".into()]),
        adjusted(|mode| mode.message_types = vec!["Note".into()]),
    ] {
        refused(registry.register_mode(&invalid, 1));
    }
    registry.register_mode(&mode("ext.a"), 1).expect("registered");
    refused(registry.register_mode(&mode("ext.a"), 1));
    for name in ["", "ext.unheard-of", "macp.mode.decision.v1", "ext.multi_round.v1"] {
        refused(registry.unregister_mode(name, 2));
        refused(registry.promote_mode(name, "", 2));
    }
}

#[test]
fn watchers_hear_of_changes_and_of_nothing_else() {
    let registry = open(&memory());
    let (mut policies, mut modes) = (registry.watch_policies(), registry.watch_modes());
    registry.register_policy(&policy("p", "*"), 1).expect("registered");
    refused(registry.register_policy(&policy("p", "*"), 2));
    registry.unregister_policy("p", 3).expect("unregistered");
    registry.register_mode(&mode("ext.a"), 4).expect("registered");
    refused(registry.unregister_mode("ext.b", 5));
    registry.promote_mode("ext.a", "", 6).expect("promoted");
    registry.register_mode(&mode("ext.b"), 7).expect("registered");
    registry.unregister_mode("ext.b", 8).expect("unregistered");
    for (watch, expected) in [(&mut policies, &[1, 3][..]), (&mut modes, &[4, 6, 7, 8])] {
        for at_ms in expected {
            assert_eq!(watch.try_recv().expect("told"), *at_ms);
        }
        assert_eq!(watch.try_recv(), Err(TryRecvError::Empty));
    }
}

#[test]
fn a_change_that_cannot_be_stored_is_none() {
    let store = Flaky::new(MemoryStore::new());
    let registry = open(&(Arc::clone(&store) as Arc<dyn Store>));
    registry.register_policy(&policy("p", "*"), 1).expect("registered");
    registry.register_mode(&mode("ext.a"), 1).expect("registered");
    let (mut policies, mut modes) = (registry.watch_policies(), registry.watch_modes());
    store.broken.store(true, Ordering::SeqCst);
    for result in [
        registry.register_policy(&policy("q", "*"), 2),
        registry.unregister_policy("p", 2),
        registry.register_mode(&mode("ext.b"), 2),
        registry.unregister_mode("ext.a", 2),
        registry.promote_mode("ext.a", "", 2).map(drop),
        registry.promote_mode("ext.a", "ext.c", 2).map(drop),
    ] {
        assert!(matches!(result, Err(RegistryError::Store(_))), "{result:?}");
    }
    assert!(registry.policy("p").is_some() && registry.policy("q").is_none());
    assert_eq!((names(&registry.modes(false)), registry.modes(true).len()), (vec!["ext.a"], 0));
    assert_eq!(policies.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(modes.try_recv(), Err(TryRecvError::Empty));
    store.broken.store(false, Ordering::SeqCst);
    registry.unregister_policy("p", 3).expect("it works again");
    registry.promote_mode("ext.a", "ext.c", 3).expect("it works again");
}

/// What is stored and what is visible are the same, whichever write is the one that fails.
#[test]
fn a_promotion_under_another_name_is_one_change() {
    let store = Flaky::new(MemoryStore::new());
    let registry = open(&(Arc::clone(&store) as Arc<dyn Store>));
    registry.register_mode(&mode("ext.a"), 1).expect("registered");
    store.deletes_fail.store(true, Ordering::SeqCst);
    assert_eq!(registry.promote_mode("ext.a", "acme.a", 2).expect("promoted"), "acme.a");
    let again = open(&(Arc::clone(&store) as Arc<dyn Store>));
    for registry in [&registry, &again] {
        assert_eq!((names(&registry.modes(false)), names(&registry.modes(true))), (vec![], vec!["acme.a"]));
    }
}

#[test]
fn everything_is_there_again_when_the_store_is_opened_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = || Arc::new(SqliteStore::open(directory.path()).expect("a store")) as Arc<dyn Store>;
    // More than are read at once.
    let many = 600;
    let registry = open(&store());
    for number in 0..many {
        registry.register_policy(&policy(&format!("p{number:04}"), "*"), number).expect("registered");
    }
    for name in ["ext.kept", "ext.gone", "ext.old"] {
        registry.register_mode(&mode(name), 1).expect("registered");
    }
    registry.unregister_policy("p0000", 2).expect("unregistered");
    registry.unregister_mode("ext.gone", 2).expect("unregistered");
    registry.promote_mode("ext.old", "acme.new", 2).expect("promoted");
    let (policies, kept, promoted) = (registry.policies(""), registry.modes(false), registry.modes(true));
    drop(registry);

    let registry = open(&store());
    assert_eq!(registry.policies(""), policies);
    assert_eq!(policies.len(), usize::try_from(many).expect("small") - 1 + 4);
    assert_eq!((registry.modes(false), registry.modes(true)), (kept, promoted));
    assert_eq!((names(&registry.modes(false)), names(&registry.modes(true))), (vec!["ext.kept"], vec!["acme.new"]));
    refused(registry.register_policy(&policy("p0001", "*"), 3));
    registry.register_policy(&policy("p0000", "*"), 3).expect("the id is free");
}

#[test]
fn what_is_stored_and_unreadable_is_named() {
    for (kind, bytes) in [("policy", &b"\xff"[..]), ("mode", b"\xff"), ("mode", b"")] {
        let store = memory();
        store.put_document(kind, "the-key", bytes, PutMode::Replace).expect("stored");
        let error = Registry::open(store).expect_err("unreadable");
        let text = error.to_string();
        assert!(matches!(error, RegistryError::Unreadable { .. }), "{text}");
        assert!(text.contains(kind) && text.contains("the-key"), "{text}");
    }
}

#[test]
fn of_many_who_register_one_name_at_once_one_succeeds() {
    let registry = Arc::new(open(&memory()));
    let racers: Vec<_> = (0..8)
        .map(|number| {
            let registry = Arc::clone(&registry);
            std::thread::spawn(move || {
                let named = registry.register_mode(&mode("ext.same"), 1).is_ok();
                registry.register_mode(&mode(&format!("ext.{number}")), 1).expect("registered");
                named
            })
        })
        .collect();
    let winners = racers.into_iter().map(|racer| racer.join().expect("no panic")).filter(|won| *won).count();
    assert_eq!((winners, registry.modes(false).len()), (1, 9), "and no change of another is lost");
}
