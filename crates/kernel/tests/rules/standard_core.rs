//! STD-CORE: what the standard asks of every envelope and every start, whatever the mode.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use macp_kernel::mode::Extension;
use macp_kernel::policy::Policy;
use macp_kernel::replay::Replayer;
use macp_kernel::{
    Caller, Command, ID_BYTES_MAX, Input, LABEL_BYTES_MAX, Limits, PARTICIPANTS_MAX, Position, Registered,
    STANDARD_MESSAGE_ID_BYTES_MAX, SUSPEND_MS_DEFAULT, Scope, SignatureCheck, State, due, step,
};
use macp_wire::history::v1::entry;
use macp_wire::modes::decision::v1::{ProposalPayload, VotePayload};
use macp_wire::v1::{
    CommitmentPayload, CommitmentRef, Envelope, ModeDescriptor, PolicyDescriptor, ProgressPayload, Root,
    SessionStartPayload, SignalPayload,
};
use prost::Message;

use crate::world::{NOW, World, envelope, refusal, word};

const SESSION: &str = "0190f5fe-7b1a-7c3e-8f00-3a7d2b1c4e5f";
const MODE: &str = "macp.mode.decision.v1";

fn payload() -> SessionStartPayload {
    SessionStartPayload {
        participants: vec!["alice".into(), "bob".into()],
        mode_version: "1.0.0".into(),
        configuration_version: "cfg-1".into(),
        ttl_ms: 60_000,
        ..SessionStartPayload::default()
    }
}

fn message(message_type: &str, message_id: &str, payload: &impl Message) -> Envelope {
    Envelope {
        mode: MODE.into(),
        session_id: SESSION.into(),
        payload: payload.encode_to_vec().into(),
        ..envelope(message_type, message_id)
    }
}

/// Sends as the one the envelope names, and compares the verdict.
#[track_caller]
fn expect(world: &mut World, envelope: Envelope, expected: &str) {
    let shown = format!("{} {}", envelope.message_type, envelope.message_id.len());
    let settled = world.send_as(Caller::identified(envelope.sender.as_str()), envelope);
    assert_eq!(word(&settled), expected, "{settled:?} for {shown}");
}

fn by(sender: &str, envelope: Envelope) -> Envelope {
    Envelope { sender: sender.into(), ..envelope }
}

fn proposal(message_id: &str, proposal_id: &str) -> Envelope {
    let payload =
        ProposalPayload { proposal_id: proposal_id.into(), option: "go".into(), ..ProposalPayload::default() };
    message("Proposal", message_id, &payload)
}

fn commitment(message_id: &str) -> Envelope {
    let payload = CommitmentPayload {
        commitment_id: "c".into(),
        action: "decision.selected".into(),
        authority_scope: "scope".into(),
        reason: "because".into(),
        mode_version: "1.0.0".into(),
        policy_version: "policy.default".into(),
        configuration_version: "cfg-1".into(),
        outcome_positive: true,
        ..CommitmentPayload::default()
    };
    message("Commitment", message_id, &payload)
}

#[track_caller]
fn started(payload: &SessionStartPayload) -> World {
    let mut world = World::new();
    expect(&mut world, message("SessionStart", "start", payload), "accepted");
    world
}

/// A message id has no form, so whatever has one gets the same generous bound.
#[test]
fn std_core_4_message_ids_have_one_bound() {
    let longest = "m".repeat(STANDARD_MESSAGE_ID_BYTES_MAX);
    let too_long = format!("{longest}m");
    let mut world = started(&payload());
    expect(&mut world, proposal(&longest, "p"), "accepted");
    expect(&mut world, proposal(&too_long, "q"), "INVALID_ENVELOPE");

    let alice = || Caller::identified("alice");
    let progress = |message_id: &str| message("Progress", message_id, &ProgressPayload::default());
    let signal = Envelope { session_id: String::new(), ..envelope("Signal", "") };
    for ambient in [signal, progress("")] {
        for (message_id, taken) in [(&longest, true), (&too_long, false)] {
            let ambient = Envelope { message_id: message_id.clone(), ..ambient.clone() };
            assert_eq!(
                world.relay(alice(), &ambient).is_ok(),
                taken,
                "{} of {}",
                ambient.message_type,
                message_id.len()
            );
        }
    }
    // What names a session or a mode names none that can exist.
    for spoilt in [
        Envelope { session_id: "s".repeat(ID_BYTES_MAX + 1), ..progress("m") },
        Envelope { mode: "m".repeat(ID_BYTES_MAX + 1), ..progress("m") },
    ] {
        assert!(world.relay(alice(), &spoilt).is_err());
    }
}

/// A start is never refused for its labels, and long ones stay in its first entry: not in memory, not in the index.
#[test]
fn std_core_11_labels_of_any_length_are_taken_and_only_short_ones_are_told() {
    let labelled = |context_id: String, keys: &[String]| {
        let extensions: BTreeMap<String, Bytes> =
            keys.iter().map(|key| (key.clone(), Bytes::from_static(b"x"))).collect();
        let payload = SessionStartPayload { context_id, extensions, ..payload() };
        let world = started(&payload);
        let session = world.session_named(SESSION);
        let (summary, metadata) = (session.summary(), session.metadata());
        assert_eq!(summary.extension_keys, metadata.extension_keys);
        assert_eq!(summary.context_id, metadata.context_id);
        (metadata.context_id.len(), metadata.extension_keys, summary.encoded_len())
    };
    let keys = ["b".to_owned(), "a".to_owned()];
    let (context_id, told, _) = labelled("x".repeat(LABEL_BYTES_MAX), &keys);
    assert_eq!((context_id, told), (LABEL_BYTES_MAX, vec!["a".to_owned(), "b".to_owned()]));

    let long = "x".repeat(500_000);
    let many: Vec<String> = (0..20_000).map(|number| format!("key-{number}")).collect();
    for (context_id, keys) in [(long.clone(), vec![long.clone()]), (long, many)] {
        let (context_id, told, bytes) = labelled(context_id, &keys);
        assert_eq!((context_id, told.len()), (0, 0));
        assert!(bytes < 1_000, "{bytes} bytes in the index");
    }
}

/// The clock is an argument, read once: it is the acceptance time, the activity and what the deadline is held against,
/// and the client's own timestamp is nothing but kept.
#[test]
fn std_core_3_one_clock() {
    let mut world = started(&payload());
    world.now = NOW + 60_000;
    expect(&mut world, Envelope { timestamp_unix_ms: 7, ..proposal("m1", "p") }, "accepted");
    let entry = &world.history(SESSION)[1];
    assert_eq!(entry.accepted_at_unix_ms, NOW + 60_000);
    let Some(entry::Input::Envelope(kept)) = &entry.input else { panic!("{entry:?}") };
    assert_eq!(kept.timestamp_unix_ms, 7);
    let session = world.session_named(SESSION);
    assert_eq!(session.accepted_at("m1"), Some(NOW + 60_000));
    assert_eq!(session.metadata().participant_activity[0].last_message_at_unix_ms, NOW + 60_000);
}

/// A refused envelope leaves nothing: no entry, no state, and its id is free for a corrected one.
#[test]
fn std_core_6_refusals_leave_no_trace() {
    let mut world = started(&payload());
    let before = (world.session_named(SESSION).clone(), world.history(SESSION).len());
    let refused = [
        (Envelope { macp_version: "2.0".into(), ..proposal("m1", "p") }, "UNSUPPORTED_PROTOCOL_VERSION"),
        (Envelope { mode: "macp.mode.task.v1".into(), ..proposal("m1", "p") }, "INVALID_ENVELOPE"),
        (by("eve", proposal("m1", "p")), "FORBIDDEN"),
        (Envelope { payload: Bytes::from_static(b"\xff"), ..proposal("m1", "p") }, "INVALID_ENVELOPE"),
        (Envelope { payload: vec![0; 1_048_577].into(), ..proposal("m1", "p") }, "PAYLOAD_TOO_LARGE"),
        (commitment("m1"), "INVALID_ENVELOPE"),
        (message("SessionStart", "m1", &payload()), "SESSION_ALREADY_EXISTS"),
    ];
    for (envelope, code) in refused {
        expect(&mut world, envelope, code);
        assert_eq!((world.session_named(SESSION), world.history(SESSION).len()), (&before.0, before.1), "{code}");
    }
    expect(&mut world, proposal("m1", "p"), "accepted");
}

/// Whatever a newer client adds to a payload is kept in history and changes nothing.
#[test]
fn std_core_7_unknown_fields_are_ignored() {
    // Field 999 as a string.
    let unknown = b"\xba\x3e\x03new";
    let with_unknown = |envelope: Envelope| {
        let payload = [&envelope.payload[..], unknown].concat();
        Envelope { payload: payload.into(), ..envelope }
    };
    let mut world = World::new();
    expect(&mut world, with_unknown(message("SessionStart", "start", &payload())), "accepted");
    expect(&mut world, with_unknown(proposal("m1", "p")), "accepted");
    let Some(entry::Input::Envelope(kept)) = &world.history(SESSION)[1].input else { panic!("no envelope") };
    assert!(kept.payload.ends_with(unknown));
}

#[test]
fn std_core_11_the_contract_of_a_start() {
    type Spoil = fn(&mut SessionStartPayload);
    let cases: [(&str, Spoil); 12] = [
        ("ttl 0", |start| start.ttl_ms = 0),
        ("a negative ttl", |start| start.ttl_ms = -1),
        ("a ttl of more than a day", |start| start.ttl_ms = 86_400_001),
        ("no mode_version", |start| start.mode_version.clear()),
        ("a blank mode_version", |start| start.mode_version = " ".into()),
        ("another mode_version", |start| start.mode_version = "2.0.0".into()),
        ("no configuration_version", |start| start.configuration_version.clear()),
        ("a blank configuration_version", |start| start.configuration_version = "\t".into()),
        ("a blank participant", |start| start.participants.push(" ".into())),
        ("a participant twice, but for blanks", |start| start.participants.push(" bob ".into())),
        ("too many participants", |start| {
            start.participants = (0..=PARTICIPANTS_MAX).map(|number| format!("p{number}")).collect();
        }),
        ("a negative cap", |start| start.max_suspend_ms = -1),
    ];
    for (name, spoil) in cases {
        let mut spoilt = payload();
        spoil(&mut spoilt);
        let settled = World::new().send_as(Caller::identified("alice"), message("SessionStart", "start", &spoilt));
        assert_eq!(word(&settled), "INVALID_ENVELOPE", "{name}");
    }
    let most = SessionStartPayload {
        participants: (0..PARTICIPANTS_MAX).map(|number| format!("p{number}")).collect(),
        ttl_ms: 86_400_000,
        intent: "x".repeat(100_000),
        roots: vec![Root { uri: "x".repeat(100_000), name: "x".repeat(1_000) }],
        ..payload()
    };
    started(&most);
    // Only a decision may be open to nobody in particular.
    let open = SessionStartPayload { participants: Vec::new(), ..payload() };
    started(&open);
    let task = Envelope { mode: "macp.mode.task.v1".into(), ..message("SessionStart", "start", &open) };
    expect(&mut World::new(), task, "INVALID_ENVELOPE");
}

/// What was registered at run time starts with whom it likes, and what it leaves out is bound as the descriptor says.
#[test]
fn std_core_12_registered_modes_are_not_held_to_the_contract() {
    let descriptor = ModeDescriptor {
        mode: "ext.notes".into(),
        mode_version: "3.1".into(),
        message_types: vec!["SessionStart".into(), "Note".into(), "Commitment".into()],
        terminal_message_types: vec!["Commitment".into()],
        ..ModeDescriptor::default()
    };
    let send = |promoted, payload: &SessionStartPayload| {
        let extension = Extension { descriptor: descriptor.clone(), promoted };
        let registered = Registered { extension: Some(Arc::new(extension)), ..Registered::default() };
        let envelope = Envelope { mode: "ext.notes".into(), ..message("SessionStart", "start", payload) };
        let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered };
        let mut world = World::new();
        let settled = world.run(SESSION, Command { caller: Caller::identified("alice"), input });
        (word(&settled).to_owned(), world)
    };
    let bare = SessionStartPayload { ttl_ms: 1_000, ..SessionStartPayload::default() };
    let (verdict, world) = send(false, &bare);
    assert_eq!(verdict, "accepted");
    let bound = world.history(SESSION)[0].binding.clone().expect("the first entry binds");
    assert_eq!((bound.mode_version.as_str(), bound.configuration_version.as_str()), ("3.1", ""));
    assert_eq!(send(true, &bare).0, "INVALID_ENVELOPE", "a promoted mode is held to it");
    for spoilt in [
        SessionStartPayload::default(),
        SessionStartPayload { mode_version: "1.0.0".into(), ..bare.clone() },
        SessionStartPayload { ttl_ms: 86_400_001, ..bare },
    ] {
        assert_eq!(send(false, &spoilt).0, "INVALID_ENVELOPE", "{spoilt:?}");
    }
}

#[test]
fn std_core_13_what_a_session_is_bound_to() {
    let root = Root { uri: "file:///x".into(), ..Root::default() };
    let given = SessionStartPayload {
        participants: vec!["zoe".into(), "bob".into()],
        intent: "decide".into(),
        roots: vec![root.clone()],
        context_id: "ctx".into(),
        extensions: BTreeMap::from([("k".to_owned(), Bytes::from_static(b"v"))]),
        ..payload()
    };
    let mut world = World::new();
    let settled = world.send_as(
        Caller::identified("lead"),
        Envelope { sender: String::new(), ..message("SessionStart", "start", &given) },
    );
    assert_eq!(word(&settled), "accepted");
    let entry = &world.history(SESSION)[0];
    let bound = entry.binding.as_ref().expect("the first entry binds");
    assert_eq!((bound.initiator.as_str(), &bound.participants), ("lead", &given.participants));
    assert_eq!((bound.intent.as_str(), &bound.roots), ("decide", &vec![root]));
    assert_eq!((bound.mode_version.as_str(), bound.configuration_version.as_str()), ("1.0.0", "cfg-1"));
    assert_eq!((bound.ttl_ms, bound.deadline_unix_ms), (60_000, NOW + 60_000));
    assert_eq!(bound.suspend_ms_max, SUSPEND_MS_DEFAULT);
    assert_eq!(bound.policy.as_ref().expect("whole").policy_id, "policy.default");
    assert!(bound.semantics_revision > 0);
    let Some(entry::Input::Envelope(kept)) = &entry.input else { panic!("no envelope") };
    assert_eq!((kept.sender.as_str(), SessionStartPayload::decode(kept.payload.clone())), ("lead", Ok(given)));
    let metadata = world.session_named(SESSION).metadata();
    assert_eq!(metadata.policy_version, "policy.default");
    assert_eq!((metadata.context_id.as_str(), &metadata.extension_keys[..]), ("ctx", &["k".to_owned()][..]));
    assert_eq!(metadata.started_at_unix_ms, NOW);
}

#[test]
fn std_core_14_a_start_is_the_first_message_and_no_activity() {
    let mut world = started(&payload());
    let session = world.session_named(SESSION);
    assert_eq!((session.ordinal(), session.accepted_at("start")), (1, Some(NOW)));
    assert!(session.metadata().participant_activity.is_empty());
    expect(&mut world, proposal("start", "p"), "duplicate");
}

#[test]
fn std_core_16_the_initiator_may_stay_outside() {
    for mode in ["macp.mode.decision.v1", "macp.mode.task.v1", "macp.mode.quorum.v1"] {
        let start = by("lead", Envelope { mode: mode.into(), ..message("SessionStart", "start", &payload()) });
        expect(&mut World::new(), start, "accepted");
    }
    let handoff = Envelope { mode: "macp.mode.handoff.v1".into(), ..message("SessionStart", "start", &payload()) };
    expect(&mut World::new(), by("lead", handoff.clone()), "INVALID_ENVELOPE");
    expect(&mut World::new(), handoff, "accepted");
}

#[test]
fn std_core_19_who_may_not_speak_is_not_corrected() {
    let mut world = started(&payload());
    let malformed = || Envelope { payload: Bytes::from_static(b"\xff"), ..proposal("m1", "p") };
    expect(&mut world, by("eve", malformed()), "FORBIDDEN");
    expect(&mut world, malformed(), "INVALID_ENVELOPE");
}

/// For the life of a session, over everything it accepted; and another session knows nothing of it.
#[test]
fn std_core_22_duplicates_are_found_per_session() {
    let other = "0190f5fe-7b1a-7c3e-8f00-3a7d2b1c4e60";
    let mut world = started(&payload());
    expect(
        &mut world,
        Envelope { session_id: other.into(), ..message("SessionStart", "start", &payload()) },
        "accepted",
    );
    expect(&mut world, proposal("m1", "p"), "accepted");
    expect(&mut world, proposal("m1", "another"), "duplicate");
    expect(&mut world, Envelope { session_id: other.into(), ..proposal("m1", "p") }, "accepted");
    expect(&mut world, commitment("m2"), "accepted");
    for repeated in [proposal("m1", "p"), commitment("m2"), message("SessionStart", "start", &payload())] {
        expect(&mut world, repeated, "duplicate");
    }
    expect(&mut world, proposal("m3", "q"), "SESSION_NOT_OPEN");
}

#[test]
fn std_core_24_the_deadline_counts_from_the_start_s_own_timestamp() {
    for (timestamp_unix_ms, base) in [(0, NOW), (-5, NOW), (NOW - 10_000, NOW - 10_000), (1, 1)] {
        let mut world = World::new();
        let start = Envelope { timestamp_unix_ms, ..message("SessionStart", "start", &payload()) };
        expect(&mut world, start, "accepted");
        let metadata = world.session_named(SESSION).metadata();
        assert_eq!((metadata.started_at_unix_ms, metadata.expires_at_unix_ms), (NOW, base + 60_000));
    }
}

#[test]
fn std_core_25_when_time_has_run_out() {
    let at =
        |state, deadline_ms, quiet_until_ms| Position { state, deadline_ms, quiet_until_ms, sequence: 3, latest_ms: 1 };
    let is_due = |position: &Position, now| !due(position, now).is_empty();
    let open = at(State::Open, 100, 100);
    assert_eq!([99, 100, 101].map(|now| is_due(&open, now)), [false, false, true]);
    for ended in [State::Resolved, State::Expired, State::Cancelled] {
        assert!(!is_due(&at(ended, 100, 100), i64::MAX));
    }
    // Suspended, the deadline stands still and the cap counts: at it is in time, beyond it is not.
    let capped = SessionStartPayload { max_suspend_ms: 500, ..payload() };
    for (resumed_after, expected) in [(500, "accepted"), (501, "SESSION_NOT_OPEN")] {
        let mut world = started(&capped);
        assert_eq!(word(&control(&mut world, Input::Suspend { reason: String::new() })), "accepted");
        world.now = NOW + resumed_after;
        assert_eq!(word(&control(&mut world, Input::Resume { reason: String::new() })), expected);
    }
    // In time at the deadline, late after it.
    let mut world = started(&payload());
    world.now = NOW + 60_000;
    expect(&mut world, proposal("m1", "p"), "accepted");
    world.now += 1;
    expect(&mut world, proposal("m2", "q"), "SESSION_NOT_OPEN");
    assert_eq!(world.session_named(SESSION).state(), State::Expired);
}

fn control(world: &mut World, input: Input) -> macp_kernel::Settled {
    world.run(SESSION, Command { caller: Caller::identified("alice"), input })
}

#[test]
fn std_core_31_32_what_signals_and_progress_look_like() {
    let alice = || Caller::identified("alice");
    let signal =
        |payload: Vec<u8>| Envelope { session_id: String::new(), payload: payload.into(), ..envelope("Signal", "m") };
    let named = |signal_type: &str| SignalPayload { signal_type: signal_type.into(), ..SignalPayload::default() };
    let progress = |mode: &str, session_id: &str, payload: Vec<u8>| Envelope {
        mode: mode.into(),
        session_id: session_id.into(),
        payload: payload.into(),
        ..envelope("Progress", "m")
    };
    let whole = ProgressPayload { progress: 0.5, ..ProgressPayload::default() }.encode_to_vec();
    let unmeasured = ProgressPayload { progress: f64::NAN, total: f64::INFINITY, ..ProgressPayload::default() };
    let told = |message| ProgressPayload { message, ..ProgressPayload::default() };
    let cases = [
        (signal(Vec::new()), true),
        (signal(named("done").encode_to_vec()), true),
        (signal(named(" ").encode_to_vec()), false),
        (signal(named(&"x".repeat(257)).encode_to_vec()), false),
        (signal(b"\xff".to_vec()), false),
        (Envelope { session_id: SESSION.into(), ..signal(Vec::new()) }, false),
        (Envelope { mode: MODE.into(), ..signal(Vec::new()) }, false),
        (Envelope { mode: " ".into(), ..signal(Vec::new()) }, true),
        (progress("", "", whole.clone()), true),
        (progress("", "", Vec::new()), true),
        (progress(MODE, SESSION, whole.clone()), true),
        (progress(MODE, "", whole.clone()), false),
        (progress(" ", SESSION, whole), false),
        // A payload must decode, and nothing is asked of its numbers.
        (progress("", "", unmeasured.encode_to_vec()), true),
        (progress("", "", told("x".repeat(65_536)).encode_to_vec()), true),
        (progress("", "", told("x".repeat(65_537)).encode_to_vec()), false),
        (progress(MODE, SESSION, b"\xff".to_vec()), false),
    ];
    for (ambient, taken) in cases {
        let relayed = World::new().relay(alice(), &ambient);
        assert_eq!(relayed.is_ok(), taken, "{ambient:?}: {relayed:?}");
        if let Err(rejection) = relayed {
            assert_eq!(rejection.code.as_str(), "INVALID_ENVELOPE");
        }
    }
}

/// Passed on each time, whatever was passed on before, and sent as a message they are refused: no way leads into history.
#[test]
fn std_core_33_signals_and_progress_touch_no_session() {
    let mut world = started(&payload());
    let before = world.session_named(SESSION).clone();
    let progress = message("Progress", "m1", &ProgressPayload::default());
    for _ in 0..2 {
        assert!(world.relay(Caller::identified("alice"), &progress).is_ok());
    }
    expect(&mut world, progress, "INVALID_ENVELOPE");
    assert_eq!(world.session_named(SESSION), &before);
    assert_eq!(world.history(SESSION).len(), 1);
    expect(&mut world, proposal("m1", "p"), "accepted");
}

#[test]
fn std_core_34_signals_are_rated_and_held_to_the_modes_of_their_credential() {
    let signal = Envelope { session_id: String::new(), ..envelope("Signal", "m") };
    let restricted = |modes: &[&str]| {
        let modes = modes.iter().map(|mode| (*mode).into()).collect();
        let scope = Scope { modes: Some(Arc::new(modes)), ..Scope::default() };
        Caller { scope, ..Caller::identified("alice") }
    };
    let mut world = World::new();
    let code = |relayed: Result<Envelope, macp_kernel::Rejection>| relayed.map_err(|rejection| rejection.code.as_str());
    assert_eq!(code(world.relay(restricted(&[MODE]), &signal)).err(), Some("FORBIDDEN"));
    assert!(world.relay(restricted(&[MODE, ""]), &signal).is_ok());
    let over_rate = Caller { over_rate: true, ..Caller::identified("alice") };
    assert_eq!(code(world.relay(over_rate, &signal)).err(), Some("RATE_LIMITED"));
}

/// Where the policy has no say in who commits, it has none in who ends or pauses the session either.
#[test]
fn std_rpc_10_in_a_multi_round_session_the_policy_lets_nobody_else_end_it() {
    let rules = r#"{"commitment":{"authority":"any_participant"}}"#;
    for (mode, expected) in [(MODE, "accepted"), ("ext.multi_round.v1", "FORBIDDEN")] {
        let descriptor = PolicyDescriptor {
            policy_id: "policy.open".into(),
            mode: "*".into(),
            rules: rules.into(),
            schema_version: 1,
            ..PolicyDescriptor::default()
        };
        let policy = Some(Arc::new(Policy::read(descriptor).expect("a policy")));
        let registered = Registered { policy, extension: None };
        let start = SessionStartPayload { policy_version: "policy.open".into(), ..payload() };
        let envelope = Envelope { mode: mode.into(), ..message("SessionStart", "start", &start) };
        let input = Input::Envelope { envelope, signature: SignatureCheck::Absent, registered };
        let mut session = None;
        let by = |sender: &str, input| Command { caller: Caller::identified(sender), input };
        let started = step(&mut session, &by("alice", input), NOW, &Limits::default()).settled;
        assert_eq!(word(&started), "accepted", "{started:?}");
        let cancelled =
            step(&mut session, &by("bob", Input::Cancel { reason: String::new() }), NOW, &Limits::default());
        assert_eq!(word(&cancelled.settled), expected, "{mode}");
    }
}

/// Bookkeeping has a sequence and no ordinal.
#[test]
fn std_core_37_bookkeeping_has_no_ordinal() {
    let mut world = started(&payload());
    for input in [Input::Suspend { reason: String::new() }, Input::Resume { reason: String::new() }] {
        assert_eq!(word(&control(&mut world, input)), "accepted");
    }
    expect(&mut world, proposal("m1", "p"), "accepted");
    assert_eq!(word(&control(&mut world, Input::Cancel { reason: String::new() })), "accepted");
    let places: Vec<_> = world.history(SESSION).iter().map(|entry| (entry.sequence, entry.ordinal)).collect();
    assert_eq!(places, [(1, 1), (2, 0), (3, 0), (4, 2), (5, 0)]);
}

/// Counted for whoever sends, be it a participant or not, and brought back by replay.
#[test]
fn std_core_38_activity() {
    let mut world = World::new();
    expect(&mut world, by("lead", message("SessionStart", "start", &payload())), "accepted");
    for (number, sender) in ["alice", "bob", "alice"].into_iter().enumerate() {
        world.now += 10;
        expect(&mut world, by(sender, proposal(&format!("m{number}"), &format!("p{number}"))), "accepted");
    }
    let vote = VotePayload { proposal_id: "p0".into(), vote: "APPROVE".into(), ..VotePayload::default() };
    expect(&mut world, by("bob", message("Vote", "v", &vote)), "accepted");
    expect(&mut world, by("bob", message("Vote", "v2", &vote)), "INVALID_ENVELOPE");
    expect(&mut world, by("lead", commitment("c")), "accepted");
    let session = world.session_named(SESSION);
    let activity: Vec<_> = session
        .metadata()
        .participant_activity
        .into_iter()
        .map(|of| (of.participant_id, of.message_count, of.last_message_at_unix_ms - NOW))
        .collect();
    assert_eq!(activity, [("alice".to_owned(), 2, 30), ("bob".to_owned(), 2, 30), ("lead".to_owned(), 1, 30)]);
    let mut replayer = Replayer::default();
    for entry in world.history(SESSION) {
        replayer.feed(entry).expect("it replays");
    }
    assert_eq!(replayer.into_session().as_ref(), Some(session));
}

/// Whatever seems to settle a matter, only the Commitment does.
#[test]
fn std_mode_4_nothing_but_a_commitment_ends_a_session() {
    let mut world = started(&payload());
    expect(&mut world, proposal("m1", "p"), "accepted");
    for sender in ["alice", "bob"] {
        let vote = VotePayload { proposal_id: "p".into(), vote: "APPROVE".into(), ..VotePayload::default() };
        expect(&mut world, by(sender, message("Vote", sender, &vote)), "accepted");
    }
    assert_eq!(world.session_named(SESSION).state(), State::Open);
    assert_eq!(
        refusal(world.send_as(Caller::identified("bob"), by("bob", commitment("c")))).code.as_str(),
        "FORBIDDEN"
    );
    expect(&mut world, commitment("c"), "accepted");
    assert_eq!(world.session_named(SESSION).state(), State::Resolved);
}

#[test]
fn std_cmt_6_what_is_superseded_is_left_alone() {
    let later = "0190f5fe-7b1a-7c3e-8f00-3a7d2b1c4e60";
    let mut world = started(&payload());
    expect(&mut world, proposal("m1", "p"), "accepted");
    expect(&mut world, commitment("c"), "accepted");
    let before = (world.session_named(SESSION).clone(), world.history(SESSION).len());

    let there = |envelope: Envelope| Envelope { session_id: later.into(), ..envelope };
    expect(&mut world, there(message("SessionStart", "start", &payload())), "accepted");
    expect(&mut world, there(proposal("m1", "p")), "accepted");
    let mut superseding = CommitmentPayload::decode(commitment("c").payload).expect("a commitment");
    let commitment_hash = format!("sha256:{}", "0".repeat(64));
    superseding.supersedes = Some(CommitmentRef { session_id: SESSION.into(), commitment_hash });
    expect(&mut world, there(message("Commitment", "c", &superseding)), "accepted");
    assert_eq!(world.session_named(later).state(), State::Resolved);
    assert_eq!((world.session_named(SESSION), world.history(SESSION).len()), (&before.0, before.1));
}

/// Names are bytes: no blank, no case and no accent is read as another.
#[test]
fn std_sec_16_names_are_compared_byte_by_byte() {
    let decomposed = "cafe\u{301}";
    let mut world = started(&SessionStartPayload {
        participants: vec!["Alice".into(), " bob".into(), decomposed.into()],
        ..payload()
    });
    for (number, (sender, expected)) in [
        ("Alice", "accepted"),
        (" bob", "accepted"),
        (decomposed, "accepted"),
        ("alice", "FORBIDDEN"),
        ("bob", "FORBIDDEN"),
        ("caf\u{e9}", "FORBIDDEN"),
    ]
    .into_iter()
    .enumerate()
    {
        expect(&mut world, by(sender, proposal(&format!("m{number}"), &format!("p{number}"))), expected);
    }
}
