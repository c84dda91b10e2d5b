//! REPLAY-2 and the operational part of REPLAY-5: recorded traces, refusals included.

use macp_kernel::trace::{Comparison, Event, Gap, Missing, Replayer, TracedInput, TracedVerdict};
use macp_kernel::{Caller, Credential, SignatureCheck};
use macp_wire::history::v1::RecordedSignature;
use macp_wire::v1::Envelope;

use crate::world::{
    NOW, SESSION, World, by, commitment, contribute, envelope, multi_round, participants, proposal, start, start_with,
    vote,
};

/// A world in which most things happen that can happen.
fn eventful() -> World {
    let mut world = World::new();
    world.send(proposal("m0", "p1"));
    world.send(start_with(&participants(&["alice", "bob"])));
    world.send(start());
    world.send(Envelope { message_id: "again".into(), ..start() });
    world.send(proposal("m1", ""));
    world.send(proposal("m1", "p1"));
    world.send(proposal("m1", "p1"));
    world.send(by("carol", vote("m2", "p1")));
    world.send(Envelope { mode: "nonsense".into(), ..vote("m2", "p1") });
    world.send(Envelope { macp_version: "9".into(), ..vote("m2", "p1") });
    world.send_as(Caller { over_rate: true, ..Caller::anonymous() }, vote("m2", "p1"));
    let refused = Caller { credential: Credential::Refused("no".into()), ..Caller::default() };
    world.send_as(refused, vote("m2", "p1"));
    let unregistered = SignatureCheck::Unregistered(RecordedSignature::default());
    world.send_signed(Caller::identified("bob"), by("", vote("m2", "p1")), unregistered);
    world.send_signed(Caller::anonymous(), vote("m3", "p1"), SignatureCheck::Invalid("bad".into()));
    world.relay(Caller::anonymous(), &envelope("Signal", "g1")).expect("passed on");
    world.relay(Caller::anonymous(), &envelope("Progress", "g2")).expect_err("no mode");
    world.cancel(Caller::identified("mallory"), SESSION, "mine now");
    world.send(commitment("m4"));
    world.send(vote("m5", "p1"));
    world.cancel(Caller::anonymous(), SESSION, "late");
    let other = |envelope| Envelope { session_id: "s2".into(), ..envelope };
    let skewed = Envelope { timestamp_unix_ms: NOW + 9_000_000, ..start() };
    world.send(other(skewed));
    world.send(other(multi_round(&participants(&["alice", "bob"]))));
    world.send(other(contribute("alice", "m1", "x")));
    world.now += 60_001;
    world.send(other(contribute("bob", "m2", "x")));
    world.expire("s2");
    world
}

/// What became history of the first session.
fn accepted() -> Vec<Event> {
    let is_accepted = |event: &Event| event.session_id == SESSION && event.verdict == TracedVerdict::Accepted;
    eventful().trace.into_iter().filter(is_accepted).collect()
}

#[test]
fn replay_2_a_trace_with_refusals_replays_to_the_same_verdicts() {
    let world = eventful();
    let mut replayer = Replayer::default();
    let mut operational = 0;
    for event in &world.trace {
        match replayer.feed(event).expect("a recorded event is well-formed") {
            Comparison::Same => {}
            Comparison::Operational => operational += 1,
            different => panic!("{different:?} for {event:?}"),
        }
    }
    // Rate, credential, signature and skew.
    assert_eq!(operational, 4);
    let words: std::collections::BTreeSet<String> =
        world.trace.iter().map(|event| format!("{:?}", event.verdict)).collect();
    assert!(words.len() > 12, "the trace shows many kinds of verdicts: {words:#?}");
}

#[test]
fn replay_2_a_trace_survives_json() {
    let mut replayer = Replayer::default();
    for event in &eventful().trace {
        let line = serde_json::to_string(event).expect("an event is JSON");
        assert!(!line.contains('\n'));
        let read: Event = serde_json::from_str(&line).expect("and back");
        assert_eq!(read, *event);
        let comparison = replayer.feed(&read).expect("well-formed");
        assert!(matches!(comparison, Comparison::Same | Comparison::Operational));
    }
}

#[test]
fn replay_2_a_changed_verdict_is_found() {
    let world = eventful();
    for at in 0..world.trace.len() {
        let mut trace = world.trace.clone();
        let verdict = &mut trace[at].verdict;
        if matches!(verdict, TracedVerdict::Rejected { operational: true, .. }) {
            continue;
        }
        let original =
            std::mem::replace(verdict, TracedVerdict::Rejected { code: "POLICY_DENIED".into(), operational: false });
        let mut replayer = Replayer::default();
        let comparisons: Vec<Comparison> =
            trace.iter().map(|event| replayer.feed(event).expect("well-formed")).collect();
        let expected = trace[at].verdict.clone();
        assert_eq!(comparisons[at], Comparison::Different { expected, found: original });
    }
}

#[test]
fn replay_5_operational_refusals_are_not_compared() {
    let mut world = World::new();
    world.send_as(Caller { over_rate: true, ..Caller::anonymous() }, start());
    let [event] = &mut world.trace[..] else { panic!("one event") };
    assert_eq!(event.verdict, TracedVerdict::Rejected { code: "RATE_LIMITED".into(), operational: true });
    // Nothing of it is decided again: the very input would be accepted by itself.
    event.caller.over_rate = false;
    assert_eq!(Replayer::default().feed(event), Ok(Comparison::Operational));
}

/// A trace may begin in the middle of a session, or have lost a part: then there is nothing to decide on.
#[test]
fn replay_2_a_session_that_is_not_all_there_is_not_compared() {
    let world = eventful();
    let started = |event: &Event| event.session_id == SESSION && event.after_sequence > 0;
    let mut replayer = Replayer::default();
    for event in world.trace.iter().filter(|event| started(event)) {
        let comparison = replayer.feed(event).expect("well-formed");
        let ambient = event.verdict == TracedVerdict::Relayed;
        let operational = matches!(event.verdict, TracedVerdict::Rejected { operational: true, .. });
        if !ambient && !operational {
            assert_eq!(comparison, Comparison::Incomplete(Missing::Beginning), "{event:?}");
        }
    }
}

/// A second start is refused because of a session from before the trace; that is no difference.
#[test]
fn replay_2_a_second_start_is_not_taken_for_the_first() {
    let mut world = World::started(start());
    world.send(Envelope { message_id: "second".into(), ..start() });
    assert_eq!(Replayer::default().feed(&world.trace[1]), Ok(Comparison::Incomplete(Missing::Beginning)));
}

/// Entries that the trace passed over are named once, by what it had told before.
#[test]
fn replay_2_a_gap_inside_a_trace_is_named() {
    let accepted = accepted();
    for told in [false, true] {
        let mut replayer = Replayer::default();
        assert_eq!(replayer.feed(&accepted[0]), Ok(Comparison::Same));
        if told {
            replayer.lose();
        }
        let gap = Gap { sequence: 1, ordinal: 1, told };
        assert_eq!(replayer.feed(&accepted[2]), Ok(Comparison::Incomplete(Missing::Between(gap))));
        assert_eq!(replayer.feed(&accepted[3]), Ok(Comparison::Incomplete(Missing::Behind)));
        // What was passed over comes after all, and everything is there again.
        assert_eq!(replayer.feed(&accepted[1]), Ok(Comparison::Same));
        assert_eq!(replayer.feed(&accepted[2]), Ok(Comparison::Same));
    }
}

/// A loss that was told before the session was last heard of explains nothing about it.
#[test]
fn replay_2_an_old_loss_excuses_no_gap() {
    let accepted = accepted();
    let mut replayer = Replayer::default();
    replayer.lose();
    assert_eq!(replayer.feed(&accepted[0]), Ok(Comparison::Same));
    let gap = Gap { sequence: 1, ordinal: 1, told: false };
    assert_eq!(replayer.feed(&accepted[2]), Ok(Comparison::Incomplete(Missing::Between(gap))));
}

/// A server that keeps nothing over a restart gives ids again and goes on with its trace.
#[test]
fn replay_2_an_id_that_is_given_again_after_a_restart_is_a_new_session() {
    let mut replayer = Replayer::default();
    for event in &eventful().trace {
        replayer.feed(event).expect("well-formed");
    }
    replayer.lose();
    let mut again = World::new();
    again.send(proposal("m0", "p1"));
    again.send(start_with(&participants(&["alice", "bob", "carol"])));
    again.send(by("carol", proposal("m1", "p1")));
    again.send(by("carol", vote("m2", "p1")));
    assert!(again.trace.iter().skip(1).all(|event| event.verdict == TracedVerdict::Accepted), "{:?}", again.trace);
    for event in &again.trace {
        assert_eq!(replayer.feed(event), Ok(Comparison::Same), "{event:?}");
    }
}

/// While nothing was lost a session is still there, and cannot begin again.
#[test]
fn replay_2_a_second_beginning_is_no_match() {
    let accepted = accepted();
    let mut replayer = Replayer::default();
    assert_eq!(replayer.feed(&accepted[0]), Ok(Comparison::Same));
    assert_eq!(replayer.feed(&accepted[1]), Ok(Comparison::Same));
    let gap = Gap { sequence: 2, ordinal: 2, told: false };
    assert_eq!(replayer.feed(&accepted[0]), Ok(Comparison::Incomplete(Missing::Between(gap))));
    assert_eq!(replayer.feed(&accepted[2]), Ok(Comparison::Same), "the session stands where it stood");
}

/// A refused start leaves no session behind, even where it is accepted when it is decided again.
#[test]
fn replay_2_a_start_that_was_refused_began_nothing() {
    let mut refused = accepted();
    let mut replayer = Replayer::default();
    let begun = refused[0].clone();
    refused[0].verdict = TracedVerdict::Rejected { code: "POLICY_DENIED".into(), operational: false };
    assert!(matches!(replayer.feed(&refused[0]), Ok(Comparison::Different { .. })));
    assert_eq!(replayer.feed(&begun), Ok(Comparison::Same));
    // Nor does it take the place of a session that goes on.
    replayer.lose();
    assert!(matches!(replayer.feed(&refused[0]), Ok(Comparison::Different { .. })));
    assert_eq!(replayer.feed(&refused[1]), Ok(Comparison::Same));
}

#[test]
fn replay_2_what_comes_after_a_difference_is_no_gap() {
    let mut accepted = accepted();
    let mut replayer = Replayer::default();
    assert_eq!(replayer.feed(&accepted[0]), Ok(Comparison::Same));
    accepted[1].limits.payload_bytes_max = 0;
    assert!(matches!(replayer.feed(&accepted[1]), Ok(Comparison::Different { .. })));
    assert_eq!(replayer.feed(&accepted[2]), Ok(Comparison::Incomplete(Missing::Behind)));
}

#[test]
fn replay_2_a_malformed_event_is_an_error() {
    let world = World::started(start());
    for broken in ["zz", "0", "ff"] {
        let mut event = world.trace[0].clone();
        let TracedInput::Envelope { envelope, .. } = &mut event.input else { panic!("an envelope") };
        *envelope = broken.to_owned();
        Replayer::default().feed(&event).expect_err("no envelope");
    }
}

#[test]
fn replay_2_limits_in_force_travel_with_the_event() {
    let mut world = World::new();
    world.limits.payload_bytes_max = 1;
    world.send(start_with(&participants(&["alice"])));
    world.limits.payload_bytes_max = 1_000;
    world.send(start_with(&participants(&["alice"])));
    let mut replayer = Replayer::default();
    for event in &world.trace {
        assert_eq!(replayer.feed(event), Ok(Comparison::Same));
    }
}
