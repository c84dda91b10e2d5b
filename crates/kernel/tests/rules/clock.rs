//! STD-CORE-3, STD-CORE-25, STD-HAND-14: a clock that is set back does not take a session's time back with it.

use std::sync::Arc;

use macp_kernel::policy::Policy;
use macp_kernel::replay::{Replayer, Stop};
use macp_kernel::{Caller, Command, Input, Registered, Settled, SignatureCheck, State, due, expire};
use macp_wire::history::v1::Entry;
use macp_wire::modes::decision::v1::ProposalPayload;
use macp_wire::modes::handoff::v1::{HandoffContextPayload, HandoffOfferPayload};
use macp_wire::v1::{Envelope, PolicyDescriptor, SessionStartPayload};
use prost::Message;

use crate::world::{self, NOW, World, envelope, word};

const SESSION: &str = "0190f5fe-7b1a-7c3e-8f00-3a7d2b1c4e5f";
const DECISION: &str = "macp.mode.decision.v1";
const HANDOFF: &str = "macp.mode.handoff.v1";

/// How long silence takes to become consent under the policy of handoff sessions here.
const SILENCE_MS: i64 = 1_000;

fn start(mode: &str, timestamp_unix_ms: i64) -> Envelope {
    let payload = SessionStartPayload {
        participants: vec!["alice".into(), "bob".into()],
        mode_version: "1.0.0".into(),
        configuration_version: "cfg-1".into(),
        policy_version: if mode == HANDOFF { "silence".into() } else { String::new() },
        ttl_ms: 60_000,
        max_suspend_ms: 5_000,
        ..SessionStartPayload::default()
    };
    Envelope { timestamp_unix_ms, ..message(mode, "SessionStart", "start", &payload) }
}

fn message(mode: &str, message_type: &str, message_id: &str, payload: &impl Message) -> Envelope {
    Envelope {
        mode: mode.into(),
        session_id: SESSION.into(),
        payload: payload.encode_to_vec().into(),
        ..envelope(message_type, message_id)
    }
}

fn proposal(message_id: &str) -> Envelope {
    let payload = ProposalPayload { proposal_id: message_id.into(), option: "go".into(), ..ProposalPayload::default() };
    message(DECISION, "Proposal", message_id, &payload)
}

fn send(world: &mut World, envelope: Envelope) -> Settled {
    let policy = Policy::read(PolicyDescriptor {
        policy_id: "silence".into(),
        mode: HANDOFF.into(),
        rules: format!(r#"{{"acceptance":{{"implicit_accept_timeout_ms":{SILENCE_MS}}}}}"#),
        schema_version: 3,
        ..PolicyDescriptor::default()
    });
    let registered = Registered { policy: Some(Arc::new(policy.expect("a policy"))), extension: None };
    control(world, Input::Envelope { envelope, signature: SignatureCheck::Absent, registered })
}

fn control(world: &mut World, input: Input) -> Settled {
    world.run(SESSION, Command { caller: Caller::identified("alice"), input })
}

fn suspend(world: &mut World) -> Settled {
    control(world, Input::Suspend { reason: String::new() })
}

fn resume(world: &mut World) -> Settled {
    control(world, Input::Resume { reason: String::new() })
}

#[track_caller]
fn started(mode: &str) -> World {
    let mut world = World::new();
    assert_eq!(word(&send(&mut world, start(mode, 0))), "accepted");
    world
}

fn times(world: &World) -> Vec<i64> {
    world.history(SESSION).iter().map(|entry| entry.accepted_at_unix_ms - NOW).collect()
}

fn replayed(history: &[Entry]) -> Result<State, Stop> {
    let mut replayer = Replayer::default();
    for entry in history {
        replayer.feed(entry)?;
    }
    replayer.finish().map(|report| report.state)
}

#[test]
fn std_core_3_acceptance_times_do_not_decrease() {
    let mut world = started(DECISION);
    for (now, message_id) in [(500, "m1"), (200, "m2"), (-90_000, "m3"), (501, "m4")] {
        world.now = NOW + now;
        let accepted_at_ms = NOW + now.max(500);
        assert_eq!(send(&mut world, proposal(message_id)), Settled::Accepted { accepted_at_ms });
        assert_eq!(world.session_named(SESSION).accepted_at(message_id), Some(accepted_at_ms));
    }
    world.now = NOW - 1;
    assert_eq!(word(&suspend(&mut world)), "accepted");
    assert_eq!(word(&resume(&mut world)), "accepted");
    assert_eq!(times(&world), [0, 500, 500, 500, 501, 501, 501]);
    assert_eq!(world.session_named(SESSION).position().deadline_ms, NOW + 60_000, "the pause had no length");
    assert_eq!(replayed(world.history(SESSION)), Ok(State::Open));
}

#[test]
fn std_core_25_a_passed_deadline_stays_passed() {
    // Accepted after its own deadline, by a timestamp that is past; then the clock is set back to before it.
    let mut world = World::new();
    assert_eq!(word(&send(&mut world, start(DECISION, NOW - 60_010))), "accepted");
    world.now = NOW - 50;
    let position = *world.session_named(SESSION).position();
    assert_eq!(position.deadline_ms, NOW - 10);
    assert_eq!(due(&position, world.now).len(), 1);
    let expired = expire(&position, world.now).expect("the deadline has passed");
    assert_eq!(word(&send(&mut world, proposal("m1"))), "SESSION_NOT_OPEN");
    assert_eq!(times(&world), [0, 0]);
    assert_eq!(world.history(SESSION)[1], expired, "the same by the index alone");
    assert_eq!(replayed(world.history(SESSION)), Ok(State::Expired));
}

#[test]
fn std_core_25_a_deadline_holds_for_a_clock_set_back_and_forward_again() {
    let mut world = started(DECISION);
    for (now, expected) in [(59_000, "accepted"), (-7_000, "accepted"), (60_000, "accepted"), (10, "accepted")] {
        world.now = NOW + now;
        let message_id = format!("m{now}");
        assert_eq!(word(&send(&mut world, proposal(&message_id))), expected, "at {now}");
    }
    world.now = NOW + 60_001;
    assert_eq!(word(&send(&mut world, proposal("late"))), "SESSION_NOT_OPEN");
    assert_eq!(times(&world), [0, 59_000, 59_000, 60_000, 60_000, 60_001]);
    assert_eq!(replayed(world.history(SESSION)), Ok(State::Expired));
}

/// The cap counts from the suspension as recorded, whatever the clock said then.
#[test]
fn std_core_29_a_pause_is_counted_from_its_recorded_beginning() {
    let mut world = started(DECISION);
    world.now = NOW + 1_000;
    assert_eq!(word(&send(&mut world, proposal("m1"))), "accepted");
    world.now = NOW - 9_000;
    assert_eq!(word(&suspend(&mut world)), "accepted");
    world.now = NOW + 6_000;
    assert_eq!(word(&resume(&mut world)), "accepted", "5000 ms after the suspension");
    assert_eq!(world.session_named(SESSION).position().deadline_ms, NOW + 65_000);
    assert_eq!(times(&world), [0, 1_000, 1_000, 6_000]);
    assert_eq!(replayed(world.history(SESSION)), Ok(State::Open));
}

#[test]
fn std_hand_14_silence_is_measured_by_the_clamped_clock() {
    let mut world = started(HANDOFF);
    let offer = HandoffOfferPayload {
        handoff_id: "h".into(),
        target_participant: "bob".into(),
        ..HandoffOfferPayload::default()
    };
    let context = |message_id: &str| {
        let payload = HandoffContextPayload { handoff_id: "h".into(), ..HandoffContextPayload::default() };
        message(HANDOFF, "HandoffContext", message_id, &payload)
    };
    world.now = NOW + 400;
    assert_eq!(word(&send(&mut world, message(HANDOFF, "HandoffOffer", "offer", &offer))), "accepted");
    world.now = NOW - 5_000;
    assert_eq!(word(&send(&mut world, context("c1"))), "accepted");
    // One that is due already when the session is suspended keeps the time at which it was due.
    world.now = NOW + 1_500;
    assert_eq!(word(&suspend(&mut world)), "accepted");
    world.now = NOW + 1_450;
    assert_eq!(word(&resume(&mut world)), "accepted");
    assert_eq!(word(&control(&mut world, Input::Touch)), "accepted");
    world.now = NOW + 1_300;
    assert_eq!(word(&send(&mut world, context("c2"))), "accepted");
    assert_eq!(times(&world), [0, 400, 400, 1_500, 1_500, 1_400, 1_500]);
    assert!(world.history(SESSION)[5].synthetic);
    assert_eq!(replayed(world.history(SESSION)), Ok(State::Open));
}

#[test]
fn replay_a_history_whose_time_goes_back_diverges() {
    let mut world = started(DECISION);
    world.now = NOW + 10;
    assert_eq!(word(&send(&mut world, proposal("m1"))), "accepted");
    assert_eq!(word(&send(&mut world, proposal("m2"))), "accepted");
    let mut history = world.history(SESSION).to_vec();
    history[2].accepted_at_unix_ms -= 1;
    let Err(Stop::Diverged(divergence)) = replayed(&history) else { panic!("it replays") };
    assert_eq!((divergence.sequence, divergence.field.as_str()), (3, "accepted_at_unix_ms"));
}

#[test]
fn classic_sessions_follow_the_same_clock() {
    let mut world = World::started(world::start());
    world.now += 100;
    world.expect(world::proposal("m1", "p1"), "accepted");
    world.now -= 1_000;
    world.expect(world::vote("m2", "p1"), "accepted");
    let times: Vec<i64> = world.entries().iter().map(|entry| entry.accepted_at_unix_ms - NOW).collect();
    assert_eq!(times, [0, 100, 100]);
}
