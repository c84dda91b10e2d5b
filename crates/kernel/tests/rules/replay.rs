//! REPLAY-1 and REPLAY-3 to REPLAY-6 on whole histories, as far as the kernel shows them.

use macp_kernel::mode::{self, Determinism};
use macp_kernel::replay::{Divergence, Options, Replayer, Report, Stop, Versions};
use macp_kernel::{Caller, SEMANTICS_REVISION, Session, State};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::history::v1::{Entry, TtlExpired, entry};
use macp_wire::v1::{Envelope, Root, SessionState};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::world::{
    NOW, SESSION, World, by, commitment, contribute, envelope, multi_round, participants, proposal, start, start_with,
    vote,
};

fn replay(options: Options, history: &[Entry]) -> Result<Report, Stop> {
    let mut replayer = Replayer::new(options);
    for entry in history {
        replayer.feed(entry)?;
    }
    replayer.finish()
}

/// The session a history leads to, by way of its stored encoding.
fn rebuilt(history: &[Entry]) -> Session {
    let mut replayer = Replayer::default();
    for entry in history {
        let stored = Entry::decode(entry.encode_to_vec().as_slice()).expect("an entry decodes");
        replayer.feed(&stored).expect("an untouched history replays");
    }
    replayer.into_session().expect("a history starts a session")
}

fn bound_start() -> Envelope {
    let payload = SessionStartPayload {
        intent: "choose".into(),
        mode_version: "1.0.0".into(),
        configuration_version: "config-7".into(),
        policy_version: "policy-3".into(),
        ttl_ms: 5_000,
        context: "{}".into(),
        roots: vec![Root { uri: "file:///srv".into(), name: "srv".into() }],
        ..participants(&["alice", "bob"])
    };
    Envelope { timestamp_unix_ms: NOW - 10, ..start_with(&payload) }
}

fn decided() -> World {
    let mut world = World::started(bound_start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.now += 1;
    world.expect(by("bob", vote("m2", "p1")), "accepted");
    world.refused(by("carol", vote("m3", "p1")));
    world.expect(commitment("m4"), "accepted");
    world
}

fn converged() -> World {
    let mut world = World::started(multi_round(&participants(&["alice", "bob"])));
    world.expect(contribute("alice", "m1", "x"), "accepted");
    world.expect(contribute("bob", "m2", "y"), "accepted");
    world.expect(contribute("alice", "m3", "y"), "accepted");
    world
}

fn expired() -> World {
    let mut world = World::started(start());
    world.now += 60_001;
    world.expect(proposal("m1", "p1"), "SESSION_NOT_OPEN");
    world
}

fn cancelled() -> World {
    let mut world = World::new();
    world.send_as(Caller::identified("alice"), by("", start()));
    world.cancel(Caller::identified("alice"), SESSION, "enough");
    world
}

#[test]
fn replay_1_every_kind_of_history_leads_to_the_same_session() {
    let worlds = [
        (decided(), State::Resolved),
        (converged(), State::Resolved),
        (expired(), State::Expired),
        (cancelled(), State::Expired),
        (World::started(start()), State::Open),
    ];
    for (world, state) in worlds {
        assert_eq!(rebuilt(world.entries()), *world.session());
        let report = replay(Options::default(), world.entries()).expect("it replays");
        assert_eq!(report.state, state);
        assert_eq!(report.resolution.as_ref(), world.session().resolution());
        assert_eq!(report.entries, world.entries().len() as u64);
        assert_eq!((report.what_if, report.divergence), (false, None));
    }
}

#[test]
fn replay_1_every_prefix_leads_to_the_session_as_it_was() {
    let mut world = World::started(bound_start());
    let mut seen = vec![world.session().clone()];
    for message in [proposal("m1", "p1"), by("bob", vote("m2", "p1")), commitment("m3")] {
        world.expect(message, "accepted");
        seen.push(world.session().clone());
    }
    for (length, session) in (1..).zip(seen) {
        assert_eq!(rebuilt(&world.entries()[..length]), session);
    }
}

#[test]
fn replay_1_steps_tell_what_happened() {
    let world = decided();
    let mut replayer = Replayer::default();
    let steps: Vec<_> = world.entries().iter().map(|entry| replayer.feed(entry).expect("it replays")).collect();
    let last = steps.last().expect("there are steps");
    assert_eq!((last.sequence, last.ordinal, last.state), (4, 4, State::Resolved));
    assert_eq!(
        (last.message_type.as_str(), last.message_id.as_str(), last.sender.as_str()),
        ("Commitment", "m4", "alice")
    );
    assert!(steps[..3].iter().all(|step| step.state == State::Open));
}

#[test]
fn replay_3_the_first_entry_binds_everything() {
    let world = World::started(bound_start());
    let binding = world.entries()[0].binding.as_ref().expect("the first entry binds");
    assert_eq!(binding.profile(), macp_wire::history::v1::Profile::Classic);
    assert_eq!((binding.protocol_version.as_str(), binding.schema_major), ("1.0", 1));
    assert_eq!(binding.semantics_revision, SEMANTICS_REVISION);
    assert_eq!((binding.mode.as_str(), binding.mode_version.as_str()), (mode::DECISION, "1.0.0"));
    assert_eq!(binding.configuration_version, "config-7");
    assert_eq!(binding.policy_version, "policy-3");
    assert_eq!(binding.context, "{}");
    assert_eq!(binding.roots[0].uri, "file:///srv");
    assert_eq!(binding.deadline_unix_ms, NOW - 10 + 5_000);
    assert_eq!(binding.initiator, "alice");
    assert_eq!(binding.participants, ["alice", "bob"]);
    assert_eq!(binding.intent, "choose");
    let later = decided();
    assert!(later.entries()[1..].iter().all(|entry| entry.binding.is_none()));
}

#[track_caller]
fn check_refused(result: Result<Report, Stop>, text: &str) {
    match result {
        Err(Stop::Refused(reason)) => assert!(reason.contains(text), "{reason}"),
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn replay_3_other_versions_are_not_historical_reconstruction() {
    type Set = fn(&mut Versions);
    let other: [Set; 3] = [
        |versions| versions.mode_version = Some("2.0.0".into()),
        |versions| versions.configuration_version = Some("config-8".into()),
        |versions| versions.policy_version = Some("".into()),
    ];
    for set in other {
        let mut versions = Versions::default();
        set(&mut versions);
        let options = Options { versions, ..Options::default() };
        check_refused(replay(options, decided().entries()), "not historical reconstruction");
    }
    let same = Versions {
        mode_version: Some("1.0.0".into()),
        configuration_version: Some("config-7".into()),
        policy_version: Some("policy-3".into()),
    };
    let options = Options { versions: same, ..Options::default() };
    replay(options, decided().entries()).expect("the bound versions are what history ran under");
}

#[test]
fn replay_3_rules_this_implementation_does_not_have_are_refused() {
    type Set = fn(&mut macp_wire::history::v1::Binding);
    let unknown: [(Set, &str); 6] = [
        (|binding| binding.profile = 3, "profile"),
        (|binding| binding.protocol_version = "2.0".into(), "protocol version"),
        (|binding| binding.schema_major = 2, "schema version"),
        (|binding| binding.semantics_revision += 1, "semantics revision"),
        (|binding| binding.mode_version = "9.0.0".into(), "mode version"),
        (|binding| binding.mode = "macp.mode.task.v1".into(), "mode"),
    ];
    for (set, text) in unknown {
        let mut history = decided().entries().to_vec();
        set(history[0].binding.as_mut().expect("the first entry binds"));
        // Not even a what-if can decide by rules that are not there.
        for what_if in [false, true] {
            let options = Options { what_if, ..Options::default() };
            check_refused(replay(options, &history), text);
        }
    }
    let mut history = decided().entries().to_vec();
    history[0].binding = None;
    check_refused(replay(Options::default(), &history), "bound");
    check_refused(replay(Options::default(), &[]), "no entry");
}

#[test]
fn replay_3_a_what_if_runs_under_other_versions_and_says_so() {
    let versions = Versions { configuration_version: Some("config-8".into()), ..Versions::default() };
    let options = Options { versions, what_if: true, semantic: false };
    let report = replay(options, decided().entries()).expect("a what-if runs");
    assert!(report.what_if);
    assert_eq!(report.state, State::Resolved);
}

#[test]
fn replay_3_a_what_if_notes_the_first_difference_and_goes_on() {
    let mut history = decided().entries().to_vec();
    // Without the vote, the commitment is refused.
    history.remove(2);
    let report = replay(Options { what_if: true, ..Options::default() }, &history).expect("it goes on");
    assert_eq!(report.state, State::Open);
    assert_eq!(report.entries, 3);
    let divergence = report.divergence.expect("the commitment was refused");
    assert_eq!((divergence.sequence, divergence.field.as_str()), (4, "decision"));
}

/// Replay reads the bound limits and none of today's: what was accepted then stays accepted.
#[test]
fn replay_4_todays_limits_and_clock_do_not_matter() {
    let mut world = World::new();
    world.limits.payload_bytes_max = 10_000_000;
    world.limits.skew_ms_max = i64::MAX;
    let long = Envelope { payload: vec![b'x'; 2_000_000].into(), ..envelope("Message", "m1") };
    let ahead = Envelope { timestamp_unix_ms: NOW + 1_000_000_000, ..start() };
    world.expect(ahead, "accepted");
    world.expect(long, "accepted");
    assert_eq!(rebuilt(world.entries()), *world.session());
}

/// A decision start by its full name is classic without a credential; replay asks for none.
#[test]
fn replay_4_the_profile_comes_out_of_the_history() {
    let mut world = World::new();
    world.limits.profile = macp_kernel::ProfileSetting::Classic;
    let full = Envelope { mode: mode::DECISION.into(), ..start() };
    world.send_as(Caller::identified("alice"), full);
    assert_eq!(rebuilt(world.entries()), *world.session());
}

#[test]
fn replay_5_modes_declare_what_replay_covers() {
    for kind in mode::ALL {
        let spec = kind.spec();
        let expected = match kind {
            mode::Kind::Task | mode::Kind::Extension => Determinism::StructuralOnly,
            mode::Kind::Handoff => Determinism::ContextFrozen,
            _ => Determinism::SemanticDeterministic,
        };
        assert_eq!(spec.determinism, expected, "{}", spec.name);
        assert_eq!(spec.descriptor().determinism_class, expected.as_str());
    }
    let classes = [
        (Determinism::StructuralOnly, "structural-only", false),
        (Determinism::SemanticDeterministic, "semantic-deterministic", true),
        (Determinism::ContextFrozen, "context-frozen", true),
        (Determinism::NonDeterministic, "non-deterministic", false),
    ];
    for (class, name, covers_outcome) in classes {
        assert_eq!((class.as_str(), class.covers_outcome()), (name, covers_outcome));
    }
}

#[test]
fn replay_5_semantic_replay_of_modes_that_grant_it() {
    for world in [decided(), converged()] {
        let options = Options { semantic: true, ..Options::default() };
        let report = replay(options, world.entries()).expect("both modes grant it");
        assert!(report.determinism.covers_outcome());
    }
}

/// Replays with one entry changed and returns where it diverged.
#[track_caller]
fn diverges(world: &World, at: usize, tamper: impl FnOnce(&mut Entry)) -> Divergence {
    let mut history = world.entries().to_vec();
    tamper(&mut history[at]);
    match replay(Options::default(), &history) {
        Err(Stop::Diverged(divergence)) => divergence,
        other => panic!("{other:?} is no divergence"),
    }
}

fn envelope_of(entry: &mut Entry) -> &mut Envelope {
    match &mut entry.input {
        Some(entry::Input::Envelope(envelope)) => envelope,
        other => panic!("{other:?} is no envelope"),
    }
}

#[test]
fn replay_6_a_changed_entry_diverges_and_is_located() {
    type Tamper = fn(&mut Entry);
    let cases: [(usize, Tamper, &str); 12] = [
        (1, |entry| entry.ordinal = 7, "ordinal"),
        (0, |entry| entry.sequence = 7, "sequence"),
        (1, |entry| entry.identity = "bob".into(), "decision"),
        (1, |entry| envelope_of(entry).message_type = "Unheard".into(), "decision"),
        (1, |entry| envelope_of(entry).payload = "{}".into(), "decision"),
        (1, |entry| envelope_of(entry).message_id = "start".into(), "decision"),
        (1, |entry| envelope_of(entry).sender = "mallory".into(), "decision"),
        (1, |entry| entry.accepted_at_unix_ms = NOW + 1_000_000, "decision"),
        (3, |entry| envelope_of(entry).payload = r#"{"action":"stay"}"#.into(), "terminal"),
        (3, |entry| entry.terminal = None, "terminal"),
        (
            3,
            |entry| {
                let terminal = entry.terminal.as_mut().expect("the last entry ends it");
                terminal.state = SessionState::Expired.into();
            },
            "terminal",
        ),
        (2, |entry| entry.input = Some(entry::Input::TtlExpired(TtlExpired::default())), "decision"),
    ];
    let world = decided();
    for (at, tamper, field) in cases {
        let divergence = diverges(&world, at, tamper);
        assert_eq!(divergence.field, field, "{divergence}");
        assert_ne!(divergence.expected, divergence.found, "{divergence}");
        let text = divergence.to_string();
        for part in [&divergence.field, &divergence.expected, &divergence.found] {
            assert!(text.contains(part.as_str()), "{text}");
        }
    }
}

#[test]
fn replay_6_a_divergence_reads_as_a_sentence() {
    let world = decided();
    let unknown = diverges(&world, 1, |entry| envelope_of(entry).message_type = "Unheard".into());
    assert_eq!(
        unknown.to_string(),
        "diverged at entry 2 (ordinal 2), decision: expected accepted, found rejected, INVALID_ENVELOPE: the decision mode \
         has no message type \"Unheard\""
    );
    let forged = diverges(&world, 3, |entry| {
        entry.terminal.as_mut().expect("the last entry ends it").resolution_sha256 = vec![0xfe; 32].into();
    });
    let resolution = hex::encode(Sha256::digest(world.resolution()));
    assert_eq!(
        forged.to_string(),
        format!(
            "diverged at entry 4 (ordinal 4), terminal: expected Resolved, resolution of SHA-256 {}, found Resolved, \
             resolution of SHA-256 {resolution}",
            "fe".repeat(32)
        )
    );
}

#[test]
fn replay_6_a_changed_binding_diverges() {
    type Tamper = fn(&mut macp_wire::history::v1::Binding);
    let tampers: [(Tamper, &str); 6] = [
        (|binding| binding.deadline_unix_ms += 1, "binding.deadline_unix_ms"),
        (|binding| binding.participants.push("mallory".into()), "binding.participants"),
        (|binding| binding.initiator = "mallory".into(), "binding.initiator"),
        (|binding| binding.configuration_version.clear(), "binding.configuration_version"),
        (|binding| binding.context = "x".into(), "binding.context"),
        (|binding| binding.roots.clear(), "binding.roots"),
    ];
    for (tamper, field) in tampers {
        let divergence = diverges(&decided(), 0, |entry| {
            tamper(entry.binding.as_mut().expect("the first entry binds"));
        });
        assert_eq!((divergence.sequence, divergence.field.as_str()), (1, field));
        assert_ne!(divergence.expected, divergence.found, "{divergence}");
    }
}

#[test]
fn replay_6_a_lost_repeated_or_moved_entry_diverges() {
    let original = decided().entries().to_vec();
    let lost = [&original[..1], &original[2..]].concat();
    let repeated = [&original[..2], &original[1..]].concat();
    let mut moved = original.clone();
    moved.swap(1, 2);
    let after_the_end = [&original[..], &original[1..2]].concat();
    for (name, history) in [("lost", lost), ("repeated", repeated), ("moved", moved), ("after the end", after_the_end)]
    {
        let result = replay(Options::default(), &history);
        assert!(matches!(result, Err(Stop::Diverged(_))), "{name}: {result:?}");
    }
    let headless = &original[1..];
    assert!(matches!(replay(Options::default(), headless), Err(Stop::Refused(_))));
}

#[test]
fn replay_6_an_expiry_before_its_time_diverges() {
    let divergence = diverges(&expired(), 1, |entry| entry.accepted_at_unix_ms = NOW);
    assert_eq!(divergence.field, "decision");
    let divergence = diverges(&expired(), 1, |entry| {
        entry.input = Some(entry::Input::TtlExpired(TtlExpired { deadline_unix_ms: 1, ..TtlExpired::default() }));
    });
    assert_eq!(divergence.field, "input.deadline_unix_ms");
    let divergence = diverges(&expired(), 1, |entry| entry.identity = "mallory".into());
    assert_eq!(divergence.field, "identity");
    let divergence = diverges(&expired(), 1, |entry| entry.signature = Some(Default::default()));
    assert_eq!(divergence.field, "signature");
    // Who may cancel by a role is the server's to say, but who did is in the entry twice.
    let divergence = diverges(&cancelled(), 1, |entry| entry.identity = "mallory".into());
    assert_eq!(divergence.field, "input.cancelled_by");
}

/// An envelope of another session is no part of this one, whatever else about it is right.
#[test]
fn replay_6_an_entry_of_another_session_diverges() {
    let divergence = diverges(&decided(), 1, |entry| envelope_of(entry).session_id = "s2".into());
    assert_eq!((divergence.sequence, divergence.field.as_str()), (2, "input.session_id"));
}

#[test]
fn replay_6_an_input_nobody_knows_is_refused() {
    let mut history = decided().entries().to_vec();
    history[2].input = None;
    check_refused(replay(Options::default(), &history), "does not know");
}

/// A megabyte of payload does not end up in the report.
#[test]
fn replay_6_a_divergence_report_is_short() {
    let divergence = diverges(&cancelled(), 1, |entry| {
        if let Some(entry::Input::SessionCancel(cancel)) = &mut entry.input {
            cancel.cancelled_by = "ä".repeat(1_000_000);
        }
    });
    assert_eq!(divergence.field, "input.cancelled_by");
    assert_ne!(divergence.expected, divergence.found);
    assert!(divergence.to_string().len() < 4_000);
}

/// The final hash is the ledger's to fill in; replay compares what the kernel decides.
#[test]
fn replay_6_the_final_hash_is_not_replays_to_judge() {
    let mut history = decided().entries().to_vec();
    history[3].terminal.as_mut().expect("it ends here").history_hash = vec![7; 32].into();
    replay(Options::default(), &history).expect("the decisions are the same");
}
