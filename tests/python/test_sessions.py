"""Sessions from outside: lists of them, pauses, cancellation and deadlines."""

from __future__ import annotations

import grpc
import pytest
from harness import CANCELLED, EXPIRED, OPEN, RESOLVED, SUSPENDED, agent, eventually, history, metadata, refused
from macp_sdk import (
    CommitmentRules,
    DecisionSession,
    MacpClient,
    MacpTransportError,
    build_decision_policy,
    macp_error_code,
    new_message_id,
    new_session_id,
)

COORDINATOR, ALICE, BOB, MALLORY = map(agent, ["coordinator", "alice", "bob", "mallory"])


def started(client: MacpClient, ttl_ms: int = 60_000, max_suspend_ms: int = 0, **options: str) -> DecisionSession:
    session = DecisionSession(client, auth=COORDINATOR, **options)
    session.start(
        intent="look at me", participants=["alice", "bob"], ttl_ms=ttl_ms, max_suspend_ms=max_suspend_ms
    )
    return session


def test_pages_of_sessions(client: MacpClient) -> None:
    ours = {started(client).session_id for _ in range(7)}
    listed = [session.session_id for session in client.list_sessions(page_size=3, auth=COORDINATOR)]
    assert listed == sorted(listed), "in the order of their ids"
    assert len(listed) == len(set(listed)) and ours <= set(listed)
    # One page for all says the same.
    assert {session.session_id for session in client.list_sessions(auth=COORDINATOR)} >= ours

    page, token = client.list_sessions_page(page_size=2, auth=COORDINATOR)
    assert len(page) == 2 and token
    following, _ = client.list_sessions_page(page_size=2, page_token=token, auth=COORDINATOR)
    assert [s.session_id for s in page + following] == listed[:4]
    assert {s.state for s in page + following} <= {OPEN, RESOLVED, EXPIRED, SUSPENDED, CANCELLED}


@pytest.mark.parametrize("page", [{"page_size": -1}, {"page_token": "no token of ours"}])
def test_pages_that_cannot_be(client: MacpClient, page: dict[str, object]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.list_sessions_page(**page, auth=COORDINATOR)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert macp_error_code(caught.value) == "INVALID_REQUEST"


def test_a_pause(client: MacpClient) -> None:
    session = started(client)
    deadline = metadata(client, session.session_id, ALICE).expires_at_unix_ms
    ack = session.suspend(reason="lunch")
    assert (ack.ok, ack.session_state, ack.session_id, ack.message_id) == (True, SUSPENDED, session.session_id, "")
    assert metadata(client, session.session_id, ALICE).state == SUSPENDED
    with refused("SESSION_NOT_OPEN"):
        session.propose("p1", "one", auth=ALICE)
    with refused("SESSION_NOT_OPEN"):
        session.suspend()
    ack = session.resume(reason="back")
    assert (ack.ok, ack.session_state) == (True, OPEN)
    with refused("SESSION_NOT_OPEN"):
        session.resume()
    # Time stood still meanwhile.
    assert metadata(client, session.session_id, ALICE).expires_at_unix_ms >= deadline
    session.propose("p1", "one", auth=ALICE)
    assert session.commit(action="decision.selected", authority_scope="all", reason="done").session_state == RESOLVED
    with refused("SESSION_NOT_OPEN"):
        session.suspend()


def test_a_pause_that_lasts_too_long(client: MacpClient) -> None:
    session = started(client, max_suspend_ms=1)
    session.suspend()

    def ended() -> int | None:
        state = metadata(client, session.session_id, ALICE).state
        return state if state != SUSPENDED else None

    assert eventually(ended) == EXPIRED
    with refused("SESSION_NOT_OPEN"):
        session.resume()


def test_cancelling(client: MacpClient) -> None:
    session = started(client)
    session.propose("p1", "one", auth=ALICE)
    session.suspend()
    ack = session.cancel(reason="no longer needed")
    assert (ack.ok, ack.session_state, ack.message_id) == (True, CANCELLED, "")
    with refused("SESSION_NOT_OPEN"):
        session.vote("p1", "approve", auth=ALICE)
    # What has ended stays as it is, and saying so again does no harm.
    assert session.cancel(reason="really").session_state == CANCELLED
    assert [e.message_type for e in history(client, session.session_id, BOB, count=2)] == ["SessionStart", "Proposal"]


def test_who_may_end_a_session(client: MacpClient) -> None:
    session = started(client)
    for action in (session.cancel, session.suspend, session.resume):
        with pytest.raises(MacpTransportError) as caught:
            action(auth=ALICE)
        assert (caught.value.code, caught.value.macp_code) == ("PERMISSION_DENIED", "FORBIDDEN")
    assert metadata(client, session.session_id, ALICE).state == OPEN

    policy = build_decision_policy(
        f"policy.anyone.{new_message_id()}", "anyone", commitment=CommitmentRules(authority="any_participant")
    )
    assert client.register_policy(policy, auth=COORDINATOR).ok
    shared = started(client, policy_version=policy.policy_id)
    assert shared.suspend(auth=ALICE).session_state == SUSPENDED
    assert shared.resume(auth=BOB).session_state == OPEN
    with pytest.raises(MacpTransportError):
        shared.cancel(auth=MALLORY)
    assert shared.cancel(auth=BOB).session_state == CANCELLED


@pytest.mark.parametrize("action", ["cancel_session", "suspend_session", "resume_session"])
def test_ending_what_is_not_there(client: MacpClient, action: str) -> None:
    with pytest.raises(MacpTransportError) as caught:
        getattr(client, action)(new_session_id(), reason="why not", auth=COORDINATOR)
    assert (caught.value.code, caught.value.macp_code) == ("NOT_FOUND", "SESSION_NOT_FOUND")


def test_a_deadline(client: MacpClient) -> None:
    session = started(client, ttl_ms=1)

    def refusal() -> bool | None:
        try:
            session.propose(new_message_id(), "in time", auth=ALICE)
        except Exception as error:
            assert getattr(error, "failure", None) and error.failure.code == "SESSION_NOT_OPEN", repr(error)
            return True
        return None

    assert eventually(refusal)
    assert metadata(client, session.session_id, ALICE).state == EXPIRED
    assert session.cancel(reason="too late").session_state == EXPIRED
