//! ReplaySession of standard sessions: what it vouches for, and what it does not pretend to have tried.

use macp_wire::history::v1::*;
use macp_wire::modes::task::v1::{TaskAcceptPayload, TaskRequestPayload};
use macp_wire::v1::Envelope;
use tokio_stream::StreamExt;

use crate::common::*;
use crate::standard_common::*;

const TASK: &str = "macp.mode.task.v1";
const NOTES: &str = "ext.notes.v1";

async fn replay(edge: &Edge, request: ReplaySessionRequest) -> ReplayReport {
    let stream = edge.history.clone().replay_session(authorized("alice", request)).await.expect("a replay");
    let events: Vec<_> = stream.into_inner().collect().await;
    match events.into_iter().next_back().expect("an event").expect("no status").event.expect("an event") {
        replay_session_response::Event::Report(report) => report,
        other => panic!("{other:?} is no report"),
    }
}

fn of(session_id: &str) -> ReplaySessionRequest {
    ReplaySessionRequest { session_id: session_id.into(), ..Default::default() }
}

#[tokio::test]
async fn replay_5_a_mode_that_is_structural_only_is_replayed_for_its_course_and_the_report_says_so() {
    let edge = Edge::start().await;
    edge.accept_as("alice", std_start(&sid(1), TASK, &start_payload())).await;
    let asked = TaskRequestPayload {
        task_id: "t".into(),
        title: "to do".into(),
        instructions: "do it".into(),
        requested_assignee: "bob".into(),
        ..Default::default()
    };
    edge.accept_as("alice", message(&sid(1), TASK, "m1", "TaskRequest", &asked)).await;
    let taken = TaskAcceptPayload { task_id: "t".into(), assignee: "bob".into(), ..Default::default() };
    edge.accept_as("bob", message(&sid(1), TASK, "m2", "TaskAccept", &taken)).await;

    assert!(edge.register_mode(notes_mode(NOTES)).await.ok);
    let start = macp_wire::v1::SessionStartPayload { mode_version: "2.1".into(), ..start_payload() };
    edge.accept_as("alice", std_start(&sid(2), NOTES, &start)).await;
    let note = Envelope { payload: vec![0xff].into(), ..message(&sid(2), NOTES, "n", "Note", &()) };
    edge.accept_as("bob", note).await;

    for (number, entries) in [(1, 3), (2, 2)] {
        let report = replay(&edge, of(&sid(number))).await;
        assert_eq!((report.verdict(), report.entries), (ReplayVerdict::Match, entries), "{report:?}");
        assert_eq!(report.determinism_class, "structural-only");
        assert_eq!(report.notes.len(), 1, "{report:?}");
        assert!(report.notes[0].contains("course") && report.notes[0].contains("outcome"), "{report:?}");
        assert!(report.message.contains(&report.notes[0]), "{report:?}");
    }
    edge.resolve(&sid(3)).await;
    let report = replay(&edge, of(&sid(3))).await;
    assert_eq!((report.verdict(), report.notes), (ReplayVerdict::Match, Vec::new()), "it vouches for all");
    edge.shut_down().await;
}

/// A name says nothing of the rules behind it: who would try a policy by its name alone has tried nothing.
#[tokio::test]
async fn replay_3_a_what_if_under_the_name_of_another_policy_is_refused_and_told_where_to_ask() {
    let edge = Edge::start().await;
    edge.resolve(&sid(1)).await;
    let what_if = ReplaySessionRequest { what_if: true, ..of(&sid(1)) };
    for request in [
        ReplaySessionRequest { policy_version: "policy.std.unanimous".into(), ..what_if.clone() },
        ReplaySessionRequest { configuration_version: "c2".into(), ..what_if.clone() },
    ] {
        let report = replay(&edge, request).await;
        assert_eq!(report.verdict(), ReplayVerdict::Refused, "{report:?}");
        assert!(report.message.contains("WhatIfReplay"), "{report:?}");
    }
    let bound = ReplaySessionRequest { configuration_version: "c1".into(), ..what_if };
    let report = replay(&edge, bound).await;
    assert_eq!((report.verdict(), report.notes), (ReplayVerdict::Match, Vec::new()), "what it is bound to is no other");

    // In a classic session they are names and nothing more, and the report says so.
    edge.accept(start("classic")).await;
    let request = ReplaySessionRequest { what_if: true, policy_version: "other".into(), ..of("classic") };
    let report = replay(&edge, request).await;
    assert_eq!(report.verdict(), ReplayVerdict::Match);
    assert!(report.notes[0].contains("do not influence the decisions of classic sessions"), "{report:?}");
    edge.shut_down().await;
}
