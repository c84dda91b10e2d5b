//! The rules of the handoff mode, one by one.

use macp_wire::codes::Code::{Forbidden, InvalidEnvelope};
use macp_wire::modes::handoff::v1::{
    HandoffAcceptPayload, HandoffContextPayload, HandoffDeclinePayload, HandoffOfferPayload,
};
use macp_wire::v1::Envelope;
use prost::Message;
use serde_json::{Value, json};

use super::Handoff;
use crate::Suspension;
use crate::mode::standard::harness::{Table, refuse_start};
use crate::mode::{Mode, Scheduled};

fn offer(handoff_id: &str, target: &str) -> HandoffOfferPayload {
    HandoffOfferPayload {
        handoff_id: handoff_id.into(),
        target_participant: target.into(),
        scope: "long text".into(),
        reason: String::new(),
    }
}

fn context(handoff_id: &str) -> HandoffContextPayload {
    HandoffContextPayload { handoff_id: handoff_id.into(), context: "bytes".into(), ..Default::default() }
}

fn accept(handoff_id: &str, accepted_by: &str) -> HandoffAcceptPayload {
    HandoffAcceptPayload { handoff_id: handoff_id.into(), accepted_by: accepted_by.into(), ..Default::default() }
}

fn decline(handoff_id: &str, declined_by: &str) -> HandoffDeclinePayload {
    HandoffDeclinePayload { handoff_id: handoff_id.into(), declined_by: declined_by.into(), ..Default::default() }
}

fn open() -> Table<Handoff> {
    Table::new("owner", &["owner", "t1", "t2"])
}

/// With an offer to t1.
fn offered() -> Table<Handoff> {
    let mut table = open();
    table.accept("owner", "HandoffOffer", &offer("h1", "t1"));
    table
}

/// With an offer to t1 at 1000 that a second of silence accepts.
fn ticking() -> Table<Handoff> {
    offered().governed(json!({"acceptance": {"implicit_accept_timeout_ms": 1000}}))
}

fn scheduled(table: &Table<Handoff>) -> Option<Scheduled> {
    Handoff::scheduled(&table.view(), &table.state)
}

fn disposition(table: &Table<Handoff>, handoff_id: &str) -> Value {
    table.describe()["offers"][handoff_id]["disposition"].clone()
}

/// What the runtime would write.
fn synthetic(table: &mut Table<Handoff>) -> Envelope {
    let scheduled = scheduled(table).expect("an offer is open");
    let mut envelope = table.envelope(&scheduled.sender, scheduled.message_type, scheduled.payload);
    envelope.message_id = scheduled.message_id;
    envelope
}

#[test]
fn std_hand_1_roster() {
    assert_eq!(refuse_start::<Handoff>("owner", &[]), InvalidEnvelope);
    assert_eq!(refuse_start::<Handoff>("owner", &["owner"]), InvalidEnvelope);
    assert_eq!(refuse_start::<Handoff>("owner", &["t1", "t2"]), InvalidEnvelope);
}

#[test]
fn std_hand_2_authority() {
    let mut table = offered();
    for sender in ["t1", "outsider"] {
        assert_eq!(table.refuse(sender, "HandoffOffer", &offer("h2", "t2")), Forbidden);
    }
    assert_eq!(table.refuse("outsider", "HandoffContext", &context("h1")), Forbidden);
    assert_eq!(table.refuse("outsider", "HandoffAccept", &accept("h1", "")), Forbidden);
    assert_eq!(table.refuse("outsider", "HandoffDecline", &decline("h1", "")), Forbidden);
    assert_eq!(table.refuse_commit("t1", "handoff.accepted", true), Forbidden);
}

#[test]
fn std_core_35_36_unknown_types() {
    for unknown in ["Vote", "SessionCancel", "SessionSuspend", "SessionResume"] {
        assert_eq!(open().refuse_bytes("t1", unknown, &b""[..]), InvalidEnvelope);
        assert_eq!(open().refuse_bytes("outsider", unknown, &b""[..]), Forbidden);
    }
}

#[test]
fn std_hand_3_offer() {
    let mut table = open();
    assert_eq!(table.refuse_bytes("owner", "HandoffOffer", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse("owner", "HandoffOffer", &offer("", "t1")), InvalidEnvelope);
    assert_eq!(table.refuse("owner", "HandoffOffer", &offer("h1", "")), InvalidEnvelope);
    assert_eq!(table.refuse("owner", "HandoffOffer", &offer("h1", "outsider")), InvalidEnvelope);
    assert_eq!(table.refuse("owner", "HandoffOffer", &offer("h1", "owner")), InvalidEnvelope);
    table.accept("owner", "HandoffOffer", &offer("h1", "t1"));
    assert_eq!(table.refuse("owner", "HandoffOffer", &offer("h2", "t2")), InvalidEnvelope, "h1 is open");
    table.accept("t1", "HandoffDecline", &decline("h1", ""));
    assert_eq!(table.refuse("owner", "HandoffOffer", &offer("h1", "t2")), InvalidEnvelope, "h1 is used");
    assert_eq!(table.refuse("owner", "HandoffOffer", &offer("h2", "t1")), InvalidEnvelope, "t1 declined");
    table.accept("owner", "HandoffOffer", &offer("h2", "t2"));
    table.accept("t2", "HandoffAccept", &accept("h2", ""));
    assert_eq!(table.refuse("owner", "HandoffOffer", &offer("h3", "t2")), InvalidEnvelope, "h2 is accepted");
}

#[test]
fn an_offer_leaves_room_for_the_id_of_its_implicit_accept() {
    assert_eq!(open().refuse("owner", "HandoffOffer", &offer(&"h".repeat(241), "t1")), InvalidEnvelope);
    let mut table = open().governed(json!({"acceptance": {"implicit_accept_timeout_ms": 1}}));
    table.accept("owner", "HandoffOffer", &offer(&"h".repeat(240), "t1"));
    assert_eq!(scheduled(&table).unwrap().message_id.len(), crate::ID_BYTES_MAX);
}

#[test]
fn std_hand_4_context() {
    let mut table = offered();
    assert_eq!(table.refuse_bytes("owner", "HandoffContext", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse("owner", "HandoffContext", &context("h2")), InvalidEnvelope);
    assert_eq!(table.refuse("t1", "HandoffContext", &context("h2")), InvalidEnvelope);
    assert_eq!(table.refuse("t1", "HandoffContext", &context("h1")), Forbidden);
    table.accept("owner", "HandoffContext", &context("h1"));
    table.accept("t1", "HandoffAccept", &accept("h1", ""));
    table.accept("owner", "HandoffContext", &context("h1"));
}

#[test]
fn std_hand_5_answers() {
    let mut table = offered();
    for message_type in ["HandoffAccept", "HandoffDecline"] {
        assert_eq!(table.refuse_bytes("t1", message_type, &b"\xff"[..]), InvalidEnvelope);
        assert_eq!(table.refuse_bytes("t1", message_type, &b""[..]), InvalidEnvelope);
    }
    assert_eq!(table.refuse("t1", "HandoffAccept", &accept("h2", "")), InvalidEnvelope);
    assert_eq!(table.refuse("t2", "HandoffAccept", &accept("h1", "")), Forbidden);
    assert_eq!(table.refuse("owner", "HandoffDecline", &decline("h1", "")), Forbidden);
    assert_eq!(table.refuse("t1", "HandoffAccept", &accept("h1", "t2")), InvalidEnvelope);
    assert_eq!(table.refuse("t1", "HandoffDecline", &decline("h1", "t2")), InvalidEnvelope);
    table.accept("t1", "HandoffAccept", &accept("h1", "t1"));
    assert_eq!(table.refuse("t1", "HandoffAccept", &accept("h1", "")), InvalidEnvelope);
    assert_eq!(table.refuse("t1", "HandoffDecline", &decline("h1", "")), InvalidEnvelope);

    let mut table = offered();
    table.accept("t1", "HandoffDecline", &decline("h1", "t1"));
    assert_eq!(table.refuse("t1", "HandoffAccept", &accept("h1", "")), InvalidEnvelope);
}

#[test]
fn std_hand_6_readiness() {
    assert_eq!(open().refuse_commit("owner", "handoff.declined", false), InvalidEnvelope);
    let mut table = offered();
    assert_eq!(table.refuse_commit("owner", "handoff.accepted", true), InvalidEnvelope);
    assert_eq!(table.refuse_commit("owner", "handoff.declined", false), InvalidEnvelope);
    table.accept("t1", "HandoffDecline", &decline("h1", ""));
    // On the strength of the first decline, also while a second offer is open.
    table.accept("owner", "HandoffOffer", &offer("h2", "t2"));
    table.commit("owner", "handoff.declined", false);

    let mut table = offered();
    table.accept("t1", "HandoffAccept", &accept("h1", ""));
    table.commit("owner", "handoff.accepted", true);

    let mut table = offered();
    table.accept("t1", "HandoffDecline", &decline("h1", ""));
    table.commit("owner", "handoff.accepted", true);
}

/// What a policy says of handoffs concerns silence and who may commit, never the outcome.
#[test]
fn std_pol_25_no_policy_refuses_the_outcome() {
    let timeout = json!({"acceptance": {"implicit_accept_timeout_ms": 1_000}});
    let anyone = json!({"commitment": {"authority": "any_participant"}});
    for rules in [json!({}), timeout, anyone] {
        for (action, positive) in [("handoff.accepted", true), ("handoff.declined", false)] {
            let mut table = open().governed(rules.clone());
            table.accept("owner", "HandoffOffer", &offer("h1", "t1"));
            table.accept("t1", "HandoffAccept", &accept("h1", ""));
            table.commit("owner", action, positive);
        }
    }
}

#[test]
fn std_hand_7_state() {
    assert_eq!(open().describe(), json!({"offers": {}, "contexts": {}}));
    let mut table = offered();
    table.accept("owner", "HandoffContext", &context("h1"));
    table.accept("owner", "HandoffContext", &context("h1"));
    table.accept("t1", "HandoffDecline", &decline("h1", ""));
    table.now_ms = 5_000;
    table.suspension.accumulated_ms = 300;
    table.accept("owner", "HandoffOffer", &offer("h2", "t2"));
    table.accept("t2", "HandoffAccept", &accept("h2", ""));
    assert_eq!(
        table.describe(),
        json!({
            "offers": {
                "h1": {
                    "handoff_id": "h1", "target_participant": "t1", "offered_by": "owner",
                    "disposition": "Declined", "accepted_by": null, "declined_by": "t1",
                    "offered_at_ms": 1_000, "suspended_ms_at_offer": 0,
                },
                "h2": {
                    "handoff_id": "h2", "target_participant": "t2", "offered_by": "owner",
                    "disposition": "Accepted", "accepted_by": "t2", "declined_by": null,
                    "offered_at_ms": 5_000, "suspended_ms_at_offer": 300,
                },
            },
            "contexts": {"h1": [{"sender": "owner"}, {"sender": "owner"}]},
        })
    );
    assert_eq!(disposition(&offered(), "h1"), "Offered");
}

#[test]
fn std_hand_10_clients_cannot_pose_as_the_runtime() {
    let mut table = offered();
    for (message_id, refused) in
        [("implicit-accept:h1", true), ("implicit-accept:", true), ("Implicit-accept:h1", false)]
    {
        // Whatever the message is, a SessionStart too.
        for message_type in ["SessionStart", "HandoffContext"] {
            let mut envelope = table.envelope("owner", message_type, context("h1").encode_to_vec());
            envelope.message_id = message_id.into();
            assert_eq!(Handoff::check_client(&envelope).is_err(), refused, "{message_id}");
        }
    }
    let implicit = HandoffAcceptPayload { implicit: true, ..accept("h1", "t1") };
    assert_eq!(table.refuse("t1", "HandoffAccept", &implicit), InvalidEnvelope);
    assert_eq!(table.refuse("outsider", "HandoffAccept", &implicit), Forbidden);
    // The whole thing as the runtime would write it.
    let mut table = ticking();
    let envelope = synthetic(&mut table);
    assert_eq!(table.submit(&envelope).unwrap_err().code, InvalidEnvelope);
    assert_eq!(disposition(&table, "h1"), "Offered");
}

#[test]
fn std_hand_11_the_accept_of_the_runtime() {
    let payload = HandoffAcceptPayload {
        handoff_id: "h1".into(),
        accepted_by: "t1".into(),
        reason: "implicit accept (timeout)".into(),
        implicit: true,
    };
    assert_eq!(
        scheduled(&ticking()),
        Some(Scheduled {
            at_ms: 2_000,
            message_type: "HandoffAccept",
            message_id: "implicit-accept:h1".into(),
            sender: "t1".into(),
            payload: payload.encode_to_vec().into(),
        })
    );
}

#[test]
fn std_hand_9_nothing_is_due_without_a_timer_and_an_open_offer() {
    assert_eq!(scheduled(&offered()), None, "no timer");
    assert_eq!(scheduled(&open().governed(ticking_rules())), None, "no offer");
    let mut table = ticking();
    table.accept("t1", "HandoffDecline", &decline("h1", ""));
    assert_eq!(scheduled(&table), None, "answered");
    let mut table = open().governed(ticking_rules());
    table.now_ms = 0;
    table.accept("owner", "HandoffOffer", &offer("h1", "t1"));
    assert_eq!(scheduled(&table), None, "at no time");
}

fn ticking_rules() -> Value {
    json!({"acceptance": {"implicit_accept_timeout_ms": 1000}})
}

#[test]
fn std_hand_12_pauses_move_the_deadline() {
    let at = |intervals: &[(i64, i64)]| {
        let mut table = ticking();
        table.suspension = Suspension { intervals: intervals.to_vec(), ..Suspension::new(i64::MAX) };
        scheduled(&table).unwrap().at_ms
    };
    assert_eq!(at(&[]), 2_000);
    assert_eq!(at(&[(1_400, 1_700)]), 2_300);
    assert_eq!(at(&[(1_000, 1_700)]), 2_700, "from the moment of the offer on");
    assert_eq!(at(&[(1_400, 1_700), (1_900, 2_000)]), 2_400);
    assert_eq!(at(&[(500, 900)]), 2_000, "over before the offer");
    assert_eq!(at(&[(999, 1_500)]), 2_000, "begun before the offer");
    assert_eq!(at(&[(1_999, 9_999)]), 10_000, "at the last moment");
    assert_eq!(at(&[(2_000, 9_999)]), 2_000, "when time is up");
    assert_eq!(at(&[(1_400, 1_700), (2_300, 9_999)]), 2_300);
    assert_eq!(at(&[(1_400, 1_300)]), 2_000, "of no width");
    assert_eq!(at(&[(1_400, 1_700), (1_500, 1_800)]), 2_400, "overlapping");
    assert_eq!(at(&[(1_400, i64::MAX)]), i64::MAX, "without end");
}

#[test]
fn std_hand_13_the_recorded_accept_is_held_to_its_offer() {
    let enter = |change: &dyn Fn(&mut Envelope)| {
        let mut table = ticking();
        let mut envelope = synthetic(&mut table);
        change(&mut envelope);
        table.enter(&envelope).map(|()| disposition(&table, "h1")).map_err(|rejection| rejection.code)
    };
    let implicit = |handoff_id: &str, accepted_by: &str| {
        let payload = HandoffAcceptPayload { implicit: true, ..accept(handoff_id, accepted_by) };
        move |envelope: &mut Envelope| envelope.payload = payload.encode_to_vec().into()
    };
    // Long before its time: that is never judged again.
    assert_eq!(enter(&|_| {}), Ok(json!("Accepted")));
    assert_eq!(enter(&implicit("h2", "t1")), Err(InvalidEnvelope));
    assert_eq!(enter(&|envelope| envelope.sender = "t2".into()), Err(Forbidden));
    assert_eq!(enter(&implicit("h1", "")), Err(InvalidEnvelope));
    assert_eq!(enter(&implicit("h1", "t2")), Err(InvalidEnvelope));
    assert_eq!(enter(&|envelope| envelope.message_id = "implicit-accept:h2".into()), Err(InvalidEnvelope));
    assert_eq!(enter(&|envelope| envelope.message_id = "m7".into()), Err(InvalidEnvelope));

    let mut table = ticking();
    let envelope = synthetic(&mut table);
    table.accept("t1", "HandoffAccept", &accept("h1", ""));
    assert_eq!(table.enter(&envelope).unwrap_err().code, InvalidEnvelope);
}

#[test]
fn std_hand_14_15_silence_counts_before_what_comes_late() {
    let mut table = ticking();
    table.now_ms = 1_999;
    assert_eq!(table.refuse_commit("owner", "handoff.accepted", true), InvalidEnvelope);
    table.now_ms = 2_000;
    assert_eq!(table.refuse("t1", "HandoffDecline", &decline("h1", "")), InvalidEnvelope);
    assert_eq!(disposition(&table, "h1"), "Accepted");
    table.commit("owner", "handoff.accepted", true);

    let mut table = ticking();
    table.now_ms = 2_500;
    table.commit("owner", "handoff.accepted", true);
    assert_eq!(disposition(&table, "h1"), "Accepted");

    // Who may not send at all moves nothing.
    let mut table = ticking();
    table.now_ms = 2_500;
    assert_eq!(table.refuse("outsider", "HandoffDecline", &decline("h1", "")), Forbidden);
    assert_eq!(disposition(&table, "h1"), "Offered");
}
