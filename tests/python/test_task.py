"""Task mode: one task, who takes it, and what came of it."""

from __future__ import annotations

from harness import RESOLVED, agent, history, refused
from macp_sdk import (
    MacpClient,
    TaskCompletionRules,
    TaskProjection,
    TaskSession,
    build_task_policy,
    new_message_id,
)

PLANNER, ANNE, BEN = map(agent, ["planner", "anne", "ben"])


def started(client: MacpClient, **options: str) -> TaskSession:
    session = TaskSession(client, auth=PLANNER, **options)
    session.start(intent="write a report", participants=["anne", "ben"], ttl_ms=60_000)
    return session


def commit(session: TaskSession, action: str = "task.completed", **options: object) -> object:
    return session.commit(action=action, authority_scope="reporting", reason="it is done", **options)


def test_a_task_is_declined_by_one_and_done_by_another(client: MacpClient) -> None:
    session = started(client)
    with refused("FORBIDDEN"):
        session.request_task("t1", "report", auth=ANNE)
    session.request_task("t1", "report", instructions="two pages", input_data=b"\x00\x01")
    with refused("INVALID_ENVELOPE"):
        session.request_task("t2", "another report")
    session.reject_task("t1", reason="no time", auth=ANNE)
    with refused("INVALID_ENVELOPE"):
        session.accept_task("t1", auth=ANNE)  # Whoever declined stays out.
    session.accept_task("t1", assignee="ben", auth=BEN)
    with refused("INVALID_ENVELOPE"):
        session.accept_task("t1", auth=BEN)
    with refused("FORBIDDEN"):
        session.update_task("t1", progress=0.1, auth=ANNE)
    session.update_task("t1", status="writing", progress=0.5, auth=BEN)
    with refused("INVALID_ENVELOPE"):
        commit(session)
    session.complete_task("t1", output=b"two pages", summary="done", auth=BEN)
    assert commit(session).session_state == RESOLVED

    replayed = TaskProjection()
    for envelope in history(client, session.session_id, ANNE, count=7):
        replayed.apply_envelope(envelope)
    assert replayed.is_completed("t1") and replayed.current_assignee("t1") == "ben"
    assert replayed.progress_of("t1") == session.task_projection.progress_of("t1")
    assert replayed.declined_participants() == ["anne"]
    assert replayed.phase == "Committed" and not replayed.has_anomalies


def test_a_task_fails(client: MacpClient) -> None:
    session = started(client)
    session.request_task("t1", "report", requested_assignee="anne")
    with refused("FORBIDDEN"):
        session.accept_task("t1", auth=BEN)
    session.accept_task("t1", auth=ANNE)
    session.fail_task("t1", error_code="E_DISK", reason="disk full", retryable=True, auth=ANNE)
    assert session.task_projection.is_retryable("t1")
    assert commit(session, "task.failed").session_state == RESOLVED


def test_the_named_assignee_declines(client: MacpClient) -> None:
    session = started(client)
    session.request_task("t1", "report", requested_assignee="anne")
    session.reject_task("t1", auth=ANNE)
    with refused("INVALID_ENVELOPE"):
        commit(session)
    assert commit(session, "task.declined").session_state == RESOLVED


def test_a_policy_wants_to_see_output(client: MacpClient) -> None:
    policy_id = f"policy.output.{new_message_id()}"
    policy = build_task_policy(policy_id, "no output, no completion", completion=TaskCompletionRules(require_output=True))
    assert client.register_policy(policy, auth=PLANNER).ok
    session = started(client, policy_version=policy_id)
    session.request_task("t1", "report")
    session.accept_task("t1", auth=BEN)
    session.complete_task("t1", summary="nothing to show", auth=BEN)
    with refused("POLICY_DENIED") as caught:
        commit(session)
    assert [denial.code for denial in caught.value.denials] == ["output_required"]
    assert commit(session, "task.failed").session_state == RESOLVED
