"""Quorum mode: a request, ballots, and the threshold they must reach."""

from __future__ import annotations

from harness import RESOLVED, agent, history, refused
from macp_sdk import (
    MacpClient,
    QuorumProjection,
    QuorumSession,
    QuorumThreshold,
    build_quorum_policy,
    effective_quorum_threshold,
    new_message_id,
)

CLERK, ANNE, BEN, CARA = map(agent, ["clerk", "anne", "ben", "cara"])


def started(client: MacpClient, **options: str) -> QuorumSession:
    session = QuorumSession(client, auth=CLERK, **options)
    session.start(intent="release the funds", participants=["anne", "ben", "cara"], ttl_ms=60_000)
    return session


def commit(session: QuorumSession, action: str = "quorum.approved", **options: object) -> object:
    return session.commit(action=action, authority_scope="funds", reason="the ballots say so", **options)


def test_two_of_three_approve(client: MacpClient) -> None:
    session = started(client)
    with refused("INVALID_ENVELOPE"):
        session.approve("r1", auth=ANNE)
    with refused("FORBIDDEN"):
        session.request_approval("r1", "pay", required_approvals=2, auth=ANNE)
    with refused("INVALID_ENVELOPE"):
        session.request_approval("r1", "pay", required_approvals=4)
    session.request_approval("r1", "pay", summary="invoice 7", required_approvals=2)
    session.approve("r1", auth=ANNE)
    with refused("INVALID_ENVELOPE"):
        session.reject("r1", auth=ANNE)  # One ballot each.
    with refused("FORBIDDEN"):
        session.approve("r1")  # The clerk has none.
    with refused("INVALID_ENVELOPE"):
        commit(session)
    session.abstain("r1", reason="not my field", auth=BEN)
    session.approve("r1", auth=CARA)
    assert commit(session).session_state == RESOLVED

    replayed = QuorumProjection()
    for envelope in history(client, session.session_id, BEN, count=6):
        replayed.apply_envelope(envelope)
    assert replayed.has_quorum("r1")
    assert (replayed.approval_count("r1"), replayed.abstention_count("r1")) == (2, 1)
    assert replayed.phase == "Committed" and not replayed.has_anomalies


def test_what_can_no_longer_be_reached_may_be_declined(client: MacpClient) -> None:
    session = started(client)
    session.request_approval("r1", "pay", required_approvals=2)
    session.reject("r1", auth=ANNE)
    with refused("INVALID_ENVELOPE"):
        commit(session, "quorum.rejected")
    session.reject("r1", auth=BEN)
    assert session.quorum_projection.is_threshold_unreachable("r1", 3)
    assert commit(session, "quorum.rejected").session_state == RESOLVED


def test_the_threshold_of_a_policy_replaces_the_one_asked_for(client: MacpClient) -> None:
    policy = build_quorum_policy(
        f"policy.all.{new_message_id()}", "everyone", threshold=QuorumThreshold(type="percentage", value=100)
    )
    assert client.register_policy(policy, auth=CLERK).ok
    assert effective_quorum_threshold(policy, 3, 1) == 3
    session = started(client, policy_version=policy.policy_id)
    session.request_approval("r1", "pay", required_approvals=1)
    session.approve("r1", auth=ANNE)
    session.approve("r1", auth=BEN)
    with refused("INVALID_ENVELOPE"):
        commit(session)  # Not there yet, and still within reach.
    session.reject("r1", auth=CARA)
    with refused("POLICY_DENIED") as caught:
        commit(session)
    assert [denial.code for denial in caught.value.denials] == ["threshold_not_met"]
    assert commit(session, "quorum.rejected").session_state == RESOLVED
