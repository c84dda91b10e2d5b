//! LIFE and RPC-9: how sessions end, and that they end once.

use macp_kernel::{Caller, Credential, Settled, State, due, expire, stated_deadline};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::codes::Code;
use macp_wire::history::v1::{Entry, entry};
use macp_wire::v1::{Envelope, SessionState};

use crate::world::{
    NOW, SESSION, World, commitment, contribute, envelope, multi_round, participants, proposal, refusal, start,
    start_with, vote, word,
};

fn timed(ttl_ms: i64, timestamp_unix_ms: i64) -> Envelope {
    let payload = SessionStartPayload { ttl_ms, ..Default::default() };
    Envelope { timestamp_unix_ms, ..start_with(&payload) }
}

fn resolved() -> World {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(vote("m2", "p1"), "accepted");
    world.expect(commitment("m3"), "accepted");
    world
}

fn terminal_state(entry: &Entry) -> SessionState {
    entry.terminal.as_ref().expect("the entry ends the session").state()
}

#[test]
fn life_1_open_then_resolved_and_no_way_back() {
    let mut world = resolved();
    assert_eq!(world.session().state(), State::Resolved);
    for late in [proposal("m4", "p2"), vote("m5", "p1"), commitment("m6"), envelope("Message", "m7")] {
        assert_eq!(world.refused(late).code, Code::SessionNotOpen);
    }
    // The deadline of a resolved session means nothing any more.
    world.now = NOW + 100_000;
    assert_eq!(world.refused(proposal("m4", "p2")).code, Code::SessionNotOpen);
    assert_eq!(word(&world.expire(SESSION)), "unchanged");
    assert_eq!(world.session().state(), State::Resolved);
}

#[test]
fn life_1_open_then_expired_and_no_way_back() {
    let mut world = World::started(start());
    world.now = NOW + 60_001;
    world.expect(proposal("m1", "p1"), "SESSION_NOT_OPEN");
    assert_eq!(world.session().state(), State::Expired);
    // Not even for a clock that goes back.
    world.now = NOW;
    assert_eq!(world.refused(proposal("m1", "p1")).code, Code::SessionNotOpen);
}

#[test]
fn life_2_the_first_terminal_message_wins() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(vote("m2", "p1"), "accepted");
    let settled: Vec<Settled> = (0..10).map(|number| world.send(commitment(&format!("c{number}")))).collect();
    assert_eq!(word(&settled[0]), "accepted");
    assert!(settled[1..].iter().all(|settled| word(settled) == "SESSION_NOT_OPEN"));
    let ends: Vec<_> = world.entries().iter().filter(|entry| entry.terminal.is_some()).collect();
    assert_eq!(ends.len(), 1);
    assert_eq!(terminal_state(ends[0]), SessionState::Resolved);
}

#[test]
fn life_2_cancellation_and_commitment_race() {
    let mut world = resolved();
    assert_eq!(word(&world.cancel(Caller::anonymous(), SESSION, "late")), "unchanged");
    assert_eq!(world.session().state(), State::Resolved);

    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(vote("m2", "p1"), "accepted");
    assert_eq!(word(&world.cancel(Caller::anonymous(), SESSION, "first")), "accepted");
    world.expect(commitment("m3"), "SESSION_NOT_OPEN");
    assert_eq!(world.session().state(), State::Expired);
    assert_eq!(world.session().resolution(), None);
}

#[test]
fn life_3_ttl() {
    let cases = [
        (0, Some(60_000)),
        (1, Some(1)),
        (86_400_000, Some(86_400_000)),
        (86_400_001, None),
        (i64::MAX, None),
        (-1, None),
        (i64::MIN, None),
    ];
    for (ttl_ms, honoured) in cases {
        let mut world = World::new();
        let Some(honoured) = honoured else {
            let rejection = world.refused(timed(ttl_ms, 0));
            assert_eq!(rejection.code, Code::InvalidEnvelope, "{ttl_ms}");
            assert!(!world.exists(SESSION));
            continue;
        };
        world.expect(timed(ttl_ms, 0), "accepted");
        assert_eq!(world.session().position().deadline_ms, NOW + honoured, "{ttl_ms}");
        let binding = world.entries()[0].binding.as_ref().expect("the first entry binds");
        assert_eq!((binding.ttl_ms, binding.deadline_unix_ms), (honoured, NOW + honoured));
    }
}

#[test]
fn life_4_the_deadline_counts_from_the_start_timestamp() {
    let skew = 300_000;
    let cases = [
        // A missing timestamp means the time of acceptance.
        (0, NOW + 1_000),
        (-5, NOW + 1_000),
        (NOW - 10, NOW + 990),
        (1, 1_001),
        (NOW + skew, NOW + skew + 1_000),
    ];
    for (timestamp, deadline_ms) in cases {
        let mut world = World::started(timed(1_000, timestamp));
        assert_eq!(world.session().position().deadline_ms, deadline_ms, "{timestamp}");
        let stated = stated_deadline(&timed(1_000, timestamp));
        assert_eq!(stated, (timestamp > 0).then_some(deadline_ms), "{timestamp}");
        assert_eq!(world.session().started_at_ms(), NOW);
        // A past timestamp is honoured: the start is acknowledged OPEN, the next touch finds it expired.
        assert_eq!(world.session().state(), State::Open);
        let expected = if deadline_ms < NOW { "SESSION_NOT_OPEN" } else { "accepted" };
        world.expect(envelope("Message", "m1"), expected);
    }
    assert_eq!(stated_deadline(&timed(0, 1)), Some(60_001));
    assert_eq!(stated_deadline(&timed(-1, 1)), None, "such a start is refused");
    assert_eq!(stated_deadline(&Envelope { timestamp_unix_ms: 1, ..proposal("m1", "p1") }), None);
}

#[test]
fn life_4_a_timestamp_beyond_the_skew_is_an_operational_refusal() {
    for (timestamp, skew_ms_max) in [(NOW + 300_001, 300_000), (NOW + 1, 0), (i64::MAX, 300_000)] {
        let mut world = World::new();
        world.limits.skew_ms_max = skew_ms_max;
        let rejection = world.refused(timed(0, timestamp));
        assert_eq!(rejection.code, Code::InvalidEnvelope);
        assert!(rejection.operational);
        assert!(rejection.message.contains("skew"), "{rejection}");
        assert!(rejection.message.contains(&skew_ms_max.to_string()), "{rejection}");
    }
}

#[test]
fn life_4_the_timestamp_of_other_messages_decides_nothing() {
    for timestamp in [i64::MIN, -1, 0, 1, NOW + 10_000_000, i64::MAX] {
        let mut world = World::started(start());
        let message = Envelope { timestamp_unix_ms: timestamp, ..envelope("Message", "m1") };
        world.expect(message, "accepted");
        assert_eq!(world.session().position().deadline_ms, NOW + 60_000);
    }
}

#[test]
fn life_4_the_refusal_of_an_expired_session_names_its_deadline_and_where_it_came_from() {
    let mut world = World::started(timed(1_000, 4_711));
    let rejection = refusal(world.send(envelope("Message", "m1")));
    assert_eq!(rejection.code, Code::SessionNotOpen);
    assert!(rejection.message.contains("5711"), "the deadline: {rejection}");
    assert!(rejection.message.contains("4711"), "the start timestamp: {rejection}");

    let mut world = World::started(timed(1_000, 0));
    world.now = NOW + 1_001;
    let rejection = refusal(world.send(envelope("Message", "m1")));
    assert!(rejection.message.contains(&(NOW + 1_000).to_string()), "the deadline: {rejection}");
    assert!(rejection.message.contains(&NOW.to_string()), "the acceptance: {rejection}");
}

#[test]
fn life_5_expiry_comes_with_the_next_touch_after_the_deadline() {
    type Touch = fn(&mut World) -> Settled;
    let touches: [(Touch, &str, &str); 3] = [
        (|world| world.send(envelope("Message", "m1")), "accepted", "SESSION_NOT_OPEN"),
        (|world| world.cancel(Caller::anonymous(), SESSION, ""), "accepted", "unchanged"),
        (|world| world.expire(SESSION), "unchanged", "accepted"),
    ];
    for (touch, in_time, too_late) in touches {
        let mut world = World::started(start());
        world.now = NOW + 60_000;
        assert_eq!(word(&touch(&mut world)), in_time);

        let mut world = World::started(start());
        world.now = NOW + 60_001;
        assert_eq!(word(&touch(&mut world)), too_late);
        assert_eq!(world.session().state(), State::Expired);
        let [_, expiry] = world.entries() else { panic!("{:?}", world.entries()) };
        assert_eq!((expiry.sequence, expiry.ordinal), (2, 0));
        assert_eq!(expiry.accepted_at_unix_ms, NOW + 60_001);
        assert_eq!(terminal_state(expiry), SessionState::Expired);
        let Some(entry::Input::TtlExpired(expired)) = &expiry.input else { panic!("{expiry:?}") };
        assert_eq!(expired.deadline_unix_ms, NOW + 60_000);
        // It is recorded once.
        touch(&mut world);
        assert_eq!(world.entries().len(), 2);
    }
}

#[test]
fn life_5_expiry_needs_the_position_alone() {
    let mut world = World::started(start());
    let position = *world.session().position();
    assert!(due(&position, NOW + 60_000).is_empty());
    assert_eq!(expire(&position, NOW + 60_000), None);
    assert_eq!(due(&position, NOW + 60_001).len(), 1);
    let made = expire(&position, NOW + 60_001).expect("it is due");
    world.now = NOW + 60_001;
    assert_eq!(word(&world.expire(SESSION)), "accepted");
    assert_eq!(world.entries().last(), Some(&made));
    assert_eq!(expire(world.session().position(), NOW + 60_001), None);
}

#[test]
fn life_5_a_retry_after_the_deadline_is_a_duplicate_and_touches_nothing() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.now = NOW + 100_000;
    world.expect(proposal("m1", "p1"), "duplicate");
    assert_eq!(world.session().state(), State::Open);
    assert_eq!(world.entries().len(), 2);
}

#[test]
fn life_6_cancellation_is_recorded_with_reason_and_canceller() {
    let mut world = World::new();
    world.send_as(Caller::identified("alice"), start());
    world.now = NOW + 7;
    let settled = world.cancel(Caller::identified("alice"), SESSION, "changed our minds");
    assert_eq!(settled, Settled::Accepted { accepted_at_ms: NOW + 7 });
    let [_, cancel] = world.entries() else { panic!("{:?}", world.entries()) };
    assert_eq!((cancel.sequence, cancel.ordinal), (2, 0));
    assert_eq!(terminal_state(cancel), SessionState::Expired);
    let Some(entry::Input::SessionCancel(payload)) = &cancel.input else { panic!("{cancel:?}") };
    assert_eq!(payload.reason, "changed our minds");
    assert_eq!(payload.cancelled_by, "alice");
    assert_eq!(world.session().state(), State::Expired);
}

#[test]
fn rpc_9_cancel_of_an_unknown_session() {
    for session_id in ["", "nowhere"] {
        let settled = World::new().cancel(Caller::anonymous(), session_id, "");
        assert_eq!(word(&settled), "SESSION_NOT_FOUND", "{session_id:?}");
    }
}

#[test]
fn rpc_9_cancel_of_a_terminal_session_changes_nothing() {
    let mut world = resolved();
    let before = (world.session().clone(), world.entries().to_vec());
    assert_eq!(word(&world.cancel(Caller::anonymous(), SESSION, "again")), "unchanged");
    assert_eq!((world.session().clone(), world.entries().to_vec()), before);
}

#[test]
fn rpc_9_cancel_is_the_initiators() {
    let refused = Caller { credential: Credential::Refused("expired token".into()), ..Caller::default() };
    let callers = [
        (Caller::identified("alice"), "accepted"),
        (Caller::identified("bob"), "FORBIDDEN"),
        (refused, "UNAUTHENTICATED"),
        // Local development: there is no identity to check.
        (Caller::anonymous(), "accepted"),
    ];
    for (caller, expected) in callers {
        let mut world = World::started(start());
        assert_eq!(word(&world.cancel(caller, SESSION, "")), expected);
    }
    // A stranger is told so on a session that has ended, too.
    let mut world = resolved();
    assert_eq!(word(&world.cancel(Caller::identified("bob"), SESSION, "")), "FORBIDDEN");
    assert_eq!(word(&world.cancel(Caller::identified("alice"), SESSION, "")), "unchanged");
}

#[test]
fn rpc_9_cancel_reasons_are_bounded() {
    for (length, expected) in [(4096, "accepted"), (4097, "INVALID_ENVELOPE")] {
        let mut world = World::started(start());
        assert_eq!(word(&world.cancel(Caller::anonymous(), SESSION, &"x".repeat(length))), expected);
    }
}

#[test]
fn life_1_convergence_ends_a_session_too() {
    let mut world = World::started(multi_round(&participants(&["alice", "bob"])));
    world.expect(contribute("alice", "m1", "x"), "accepted");
    world.expect(contribute("bob", "m2", "x"), "accepted");
    assert_eq!(world.session().state(), State::Resolved);
    world.expect(contribute("alice", "m3", "y"), "SESSION_NOT_OPEN");
}
