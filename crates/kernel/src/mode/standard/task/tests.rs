//! The rules of the task mode, one by one.

use macp_wire::codes::Code::{Forbidden, InvalidEnvelope, PolicyDenied};
use macp_wire::modes::task::v1::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRejectPayload, TaskRequestPayload, TaskUpdatePayload,
};
use serde_json::{Value, json};

use super::Task;
use crate::mode::standard::harness::{Table, refuse_start};

fn request(task_id: &str, requested_assignee: &str) -> TaskRequestPayload {
    TaskRequestPayload {
        task_id: task_id.into(),
        requested_assignee: requested_assignee.into(),
        instructions: "long text".into(),
        deadline_unix_ms: 7,
        ..Default::default()
    }
}

fn accept(task_id: &str, assignee: &str) -> TaskAcceptPayload {
    TaskAcceptPayload { task_id: task_id.into(), assignee: assignee.into(), reason: String::new() }
}

fn reject(task_id: &str, assignee: &str) -> TaskRejectPayload {
    TaskRejectPayload { task_id: task_id.into(), assignee: assignee.into(), reason: String::new() }
}

fn update(task_id: &str, progress: f64) -> TaskUpdatePayload {
    TaskUpdatePayload { task_id: task_id.into(), progress, ..Default::default() }
}

fn complete(task_id: &str, assignee: &str, output: &'static str) -> TaskCompletePayload {
    TaskCompletePayload {
        task_id: task_id.into(),
        assignee: assignee.into(),
        output: output.into(),
        ..Default::default()
    }
}

fn fail(task_id: &str, assignee: &str) -> TaskFailPayload {
    TaskFailPayload { task_id: task_id.into(), assignee: assignee.into(), retryable: true, ..Default::default() }
}

fn open() -> Table<Task> {
    Table::new("planner", &["planner", "w1", "w2"])
}

fn requested(assignee: &str) -> Table<Task> {
    let mut table = open();
    table.accept("planner", "TaskRequest", &request("t1", assignee));
    table
}

/// With an assignee, under these rules.
fn assigned(rules: Value) -> Table<Task> {
    let mut table = requested("").governed(rules);
    table.accept("w1", "TaskAccept", &accept("t1", ""));
    table
}

fn reassigning() -> Value {
    json!({"assignment": {"allow_reassignment_on_reject": true}})
}

#[test]
fn std_task_1_roster_and_authority() {
    assert_eq!(refuse_start::<Task>("planner", &[]), InvalidEnvelope);
    assert_eq!(refuse_start::<Task>("planner", &["planner"]), InvalidEnvelope);
    // The initiator need not take part.
    let mut table: Table<Task> = Table::new("planner", &["w1"]);
    assert_eq!(table.refuse("w1", "TaskRequest", &request("t1", "")), Forbidden);
    assert_eq!(table.refuse("outsider", "TaskRequest", &request("t1", "")), Forbidden);
    table.accept("planner", "TaskRequest", &request("t1", ""));
    for sender in ["planner", "outsider"] {
        assert_eq!(table.refuse(sender, "TaskAccept", &accept("t1", "")), Forbidden);
        assert_eq!(table.refuse(sender, "TaskReject", &reject("t1", "")), Forbidden);
        assert_eq!(table.refuse(sender, "TaskUpdate", &update("t1", 0.5)), Forbidden);
        assert_eq!(table.refuse(sender, "TaskComplete", &complete("t1", "", "")), Forbidden);
        assert_eq!(table.refuse(sender, "TaskFail", &fail("t1", "")), Forbidden);
    }
    assert_eq!(table.refuse_commit("w1", "task.failed", false), Forbidden);
}

#[test]
fn std_core_35_36_unknown_types() {
    for unknown in ["Vote", "SessionCancel", "SessionSuspend", "SessionResume"] {
        assert_eq!(open().refuse_bytes("w1", unknown, &b""[..]), InvalidEnvelope);
        assert_eq!(open().refuse_bytes("outsider", unknown, &b""[..]), Forbidden);
    }
}

#[test]
fn std_task_3_request() {
    let mut table = open();
    assert_eq!(table.refuse_bytes("planner", "TaskRequest", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse("planner", "TaskRequest", &request("", "")), InvalidEnvelope);
    assert_eq!(table.refuse("planner", "TaskRequest", &request(&"t".repeat(257), "")), InvalidEnvelope);
    assert_eq!(table.refuse("planner", "TaskRequest", &request("t1", "outsider")), InvalidEnvelope);
    table.accept("planner", "TaskRequest", &request("t1", "w1"));
    assert_eq!(table.refuse("planner", "TaskRequest", &request("t2", "")), InvalidEnvelope);
}

#[test]
fn std_task_3_everything_needs_the_task() {
    for task_id in ["", "t2"] {
        let mut table = assigned(reassigning());
        assert_eq!(table.refuse("w1", "TaskAccept", &accept(task_id, "")), InvalidEnvelope);
        assert_eq!(table.refuse("w1", "TaskReject", &reject(task_id, "")), InvalidEnvelope);
        assert_eq!(table.refuse("w1", "TaskUpdate", &update(task_id, 0.5)), InvalidEnvelope);
        assert_eq!(table.refuse("w1", "TaskComplete", &complete(task_id, "", "")), InvalidEnvelope);
        assert_eq!(table.refuse("w1", "TaskFail", &fail(task_id, "")), InvalidEnvelope);
    }
    let mut table = open();
    assert_eq!(table.refuse("w1", "TaskAccept", &accept("t1", "")), InvalidEnvelope);
    assert_eq!(table.refuse("w1", "TaskUpdate", &update("t1", 0.5)), InvalidEnvelope);
}

#[test]
fn std_task_2_eligibility() {
    let mut pool = requested("");
    assert_eq!(pool.refuse("planner", "TaskAccept", &accept("t1", "")), Forbidden);
    assert_eq!(pool.refuse("planner", "TaskReject", &reject("t1", "")), Forbidden);
    pool.accept("w2", "TaskAccept", &accept("t1", "w2"));

    let mut named = requested("w1");
    assert_eq!(named.refuse("w2", "TaskAccept", &accept("t1", "")), Forbidden);
    assert_eq!(named.refuse("w2", "TaskReject", &reject("t1", "")), Forbidden);
    named.accept("w1", "TaskAccept", &accept("t1", "w1"));

    requested("planner").accept("planner", "TaskAccept", &accept("t1", ""));
}

#[test]
fn std_task_3_accept() {
    let mut table = requested("");
    assert_eq!(table.refuse_bytes("w1", "TaskAccept", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse("w1", "TaskAccept", &accept("t1", "w2")), InvalidEnvelope);
    table.accept("w1", "TaskReject", &reject("t1", "w1"));
    assert_eq!(table.refuse("w1", "TaskAccept", &accept("t1", "")), InvalidEnvelope);
    table.accept("w2", "TaskAccept", &accept("t1", ""));
    assert_eq!(table.refuse("w2", "TaskAccept", &accept("t1", "")), InvalidEnvelope);
    assert_eq!(table.refuse("w1", "TaskAccept", &accept("t1", "")), InvalidEnvelope);
}

#[test]
fn std_task_3_reject() {
    let mut table = requested("");
    assert_eq!(table.refuse_bytes("w1", "TaskReject", &b"\xff"[..]), InvalidEnvelope);
    assert_eq!(table.refuse("w1", "TaskReject", &reject("t1", "w2")), InvalidEnvelope);
    table.accept("w1", "TaskReject", &reject("t1", ""));
    assert_eq!(table.refuse("w1", "TaskReject", &reject("t1", "")), InvalidEnvelope);

    let mut table = assigned(json!({}));
    assert_eq!(table.refuse("w2", "TaskReject", &reject("t1", "")), InvalidEnvelope);
    assert_eq!(table.refuse("w1", "TaskReject", &reject("t1", "")), PolicyDenied);
    // The policy is asked before the payload is compared with its sender.
    assert_eq!(table.refuse("w1", "TaskReject", &reject("t1", "w2")), PolicyDenied);
}

#[test]
fn std_task_4_reassignment() {
    let mut table = assigned(reassigning());
    assert_eq!(table.refuse("w1", "TaskReject", &reject("t1", "w2")), InvalidEnvelope);
    table.accept("w1", "TaskReject", &reject("t1", "w1"));
    assert_eq!(table.refuse("w1", "TaskUpdate", &update("t1", 0.5)), Forbidden);
    assert_eq!(table.refuse("w1", "TaskAccept", &accept("t1", "")), InvalidEnvelope);
    table.accept("w2", "TaskAccept", &accept("t1", ""));
    table.accept("w2", "TaskComplete", &complete("t1", "w2", "result"));
    table.commit("planner", "task.completed", true);
}

/// Under another policy than the one it happened under, as a what-if replay asks.
#[test]
fn std_task_3_accept_after_the_task_was_given_up() {
    let mut table = assigned(reassigning());
    table.accept("w1", "TaskReject", &reject("t1", ""));
    let mut table = table.governed(json!({}));
    assert_eq!(table.refuse("w2", "TaskAccept", &accept("t1", "planner")), PolicyDenied);
}

#[test]
fn std_task_3_update_and_reports() {
    let mut table = requested("");
    assert_eq!(table.refuse("w1", "TaskUpdate", &update("t1", 0.5)), Forbidden);
    table.accept("w1", "TaskAccept", &accept("t1", ""));
    for sender in ["planner", "w2"] {
        assert_eq!(table.refuse(sender, "TaskUpdate", &update("t1", 0.5)), Forbidden);
        assert_eq!(table.refuse(sender, "TaskComplete", &complete("t1", "", "")), Forbidden);
        assert_eq!(table.refuse(sender, "TaskFail", &fail("t1", "")), Forbidden);
    }
    for message_type in ["TaskUpdate", "TaskComplete", "TaskFail"] {
        assert_eq!(table.refuse_bytes("w1", message_type, &b"\xff"[..]), InvalidEnvelope);
    }
    table.accept("w1", "TaskUpdate", &update("t1", 0.5));
    assert_eq!(table.refuse("w1", "TaskComplete", &complete("t1", "w2", "")), InvalidEnvelope);
    assert_eq!(table.refuse("w1", "TaskFail", &fail("t1", "w2")), InvalidEnvelope);
    table.accept("w1", "TaskFail", &fail("t1", "w1"));
    assert_eq!(table.refuse("w1", "TaskUpdate", &update("t1", 0.5)), Forbidden);
    assert_eq!(table.refuse("w1", "TaskComplete", &complete("t1", "", "")), Forbidden);
}

#[test]
fn std_task_5_readiness() {
    assert_eq!(open().refuse_commit("planner", "task.failed", false), InvalidEnvelope);
    let mut table = requested("w1");
    assert_eq!(table.refuse_commit("planner", "task.failed", false), InvalidEnvelope);
    table.accept("w1", "TaskReject", &reject("t1", ""));
    assert_eq!(table.refuse_commit("planner", "task.completed", true), InvalidEnvelope);
    table.commit("planner", "task.failed", false);

    // A pool is never declined for good.
    let mut pool = requested("");
    pool.accept("w1", "TaskReject", &reject("t1", ""));
    pool.accept("w2", "TaskReject", &reject("t1", ""));
    assert_eq!(pool.refuse_commit("planner", "task.failed", false), InvalidEnvelope);

    // Giving the task up is no decline.
    let mut table = requested("w1").governed(reassigning());
    table.accept("w1", "TaskAccept", &accept("t1", ""));
    table.accept("w1", "TaskReject", &reject("t1", ""));
    assert_eq!(table.refuse_commit("planner", "task.failed", false), InvalidEnvelope);
}

#[test]
fn std_task_6_directions_are_free() {
    let mut table = assigned(json!({}));
    table.accept("w1", "TaskFail", &fail("t1", ""));
    table.commit("planner", "task.completed", true);

    let mut table = assigned(json!({}));
    table.accept("w1", "TaskComplete", &complete("t1", "", ""));
    table.commit("planner", "task.failed", false);
}

#[test]
fn std_pol_24_output() {
    let rules = json!({"completion": {"require_output": true}});
    let mut table = assigned(rules.clone());
    table.accept("w1", "TaskComplete", &complete("t1", "", ""));
    assert_eq!(table.refuse_commit("planner", "task.completed", true), PolicyDenied);
    table.commit("planner", "task.failed", false);

    let mut table = assigned(rules.clone());
    table.accept("w1", "TaskFail", &fail("t1", ""));
    assert_eq!(table.refuse_commit("planner", "done", true), PolicyDenied);

    let mut table = assigned(rules);
    table.accept("w1", "TaskComplete", &complete("t1", "", "result"));
    table.commit("planner", "task.completed", true);
}

#[test]
fn std_task_7_progress_may_be_anything() {
    let mut table = assigned(json!({}));
    for progress in [f64::NAN, f64::INFINITY, -3.0] {
        table.accept("w1", "TaskUpdate", &update("t1", progress));
    }
    assert_eq!(table.state, table.state.clone());
    let progress = |at: usize| table.describe()["updates"][at]["progress"].clone();
    assert_eq!([progress(0), progress(1), progress(2)], [Value::Null, Value::Null, json!(-3.0)]);
}

#[test]
fn std_task_8_state() {
    let empty = json!({
        "task": null, "active_assignee": null, "rejections": [], "updates": [], "terminal_report": null,
    });
    assert_eq!(open().describe(), empty);

    let mut table = requested("").governed(reassigning());
    table.accept("w2", "TaskAccept", &accept("t1", ""));
    table.accept("w2", "TaskReject", &reject("t1", ""));
    table.accept("w1", "TaskAccept", &accept("t1", ""));
    table.accept("w1", "TaskUpdate", &update("t1", 0.5));
    table.accept("w1", "TaskComplete", &complete("t1", "", "result"));
    assert_eq!(
        table.describe(),
        json!({
            "task": {"task_id": "t1", "requested_assignee": "", "deadline_unix_ms": 7, "requester": "planner"},
            "active_assignee": "w1",
            "rejections": [{"task_id": "t1", "assignee": "w2", "while_assigned": true}],
            "updates": [{"task_id": "t1", "progress": 0.5, "sender": "w1"}],
            "terminal_report": {"Complete": {"task_id": "t1", "assignee": "w1"}},
        })
    );

    let mut table = requested("w1");
    table.accept("w1", "TaskReject", &reject("t1", ""));
    assert_eq!(table.describe()["task"]["requested_assignee"], "w1");
    assert_eq!(table.describe()["rejections"][0]["while_assigned"], false);

    let mut table = assigned(json!({}));
    table.accept("w1", "TaskFail", &fail("t1", ""));
    let report = json!({"Fail": {"task_id": "t1", "assignee": "w1", "retryable": true}});
    assert_eq!(table.describe()["terminal_report"], report);
}
