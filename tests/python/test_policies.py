"""Governance policies: the registry, what binds a session, and denials with their reasons."""

from __future__ import annotations

import json

import grpc
import pytest
from harness import RESOLVED, agent, history, metadata, refused
from macp.v1 import policy_pb2
from macp_sdk import (
    CommitmentRules,
    DecisionSession,
    EvaluationRules,
    MacpClient,
    ObjectionHandlingRules,
    TaskSession,
    VotingRules,
    build_decision_policy,
    build_task_policy,
    macp_error_code,
    new_message_id,
)

COORDINATOR, ALICE, BOB, JUDGE = map(agent, ["coordinator", "alice", "bob", "judge"])


def fresh(name: str) -> str:
    """An id no other test uses."""
    return f"policy.test.{name}.{new_message_id()}"


def registered(client: MacpClient, name: str, **rules: object) -> str:
    policy = build_decision_policy(fresh(name), name, **rules)
    response = client.register_policy(policy, auth=COORDINATOR)
    assert response.ok, response.error
    return policy.policy_id


def under(client: MacpClient, policy_id: str) -> DecisionSession:
    """A session with one proposal, governed by a policy."""
    session = DecisionSession(client, policy_version=policy_id, auth=COORDINATOR)
    session.start(intent="release", participants=["alice", "bob"], ttl_ms=60_000)
    session.propose("p1", "ship it", auth=ALICE)
    return session


def commit(session: DecisionSession, action: str = "decision.approved", **options: object) -> object:
    return session.commit(action=action, authority_scope="release", reason="we tried", **options)


def denials(session: DecisionSession, action: str = "decision.approved") -> list[str]:
    """The codes of a denial, whose human texts must stand beside them in the same order (STD-POL-30)."""
    with refused("POLICY_DENIED") as caught:
        commit(session, action)
    assert [denial.message for denial in caught.value.denials] == caught.value.reasons
    assert all(caught.value.reasons)
    return [denial.code for denial in caught.value.denials]


def test_a_policy_from_registration_to_removal(client: MacpClient) -> None:
    policy = build_decision_policy(fresh("life"), "two thirds", voting=VotingRules("supermajority", threshold=0.67))
    assert client.register_policy(policy, auth=COORDINATOR).ok
    stored = client.get_policy(policy.policy_id, auth=ALICE).policy_descriptor
    assert (stored.policy_id, stored.mode, stored.description) == (policy.policy_id, policy.mode, "two thirds")
    assert stored.schema_version == 3
    assert json.loads(stored.rules) == json.loads(policy.rules)

    ids = [descriptor.policy_id for descriptor in client.list_policies(auth=ALICE).descriptors]
    assert ids == sorted(ids) and {policy.policy_id, "policy.default"} <= set(ids)
    task_ids = [found.policy_id for found in client.list_policies("macp.mode.task.v1", auth=ALICE).descriptors]
    assert policy.policy_id not in task_ids and "policy.default" in task_ids

    again = client.register_policy(policy, auth=COORDINATOR)
    assert not again.ok and policy.policy_id in again.error
    assert client.unregister_policy(policy.policy_id, auth=COORDINATOR).ok
    twice = client.unregister_policy(policy.policy_id, auth=COORDINATOR)
    assert not twice.ok and twice.error
    with pytest.raises(grpc.RpcError) as caught:
        client.get_policy(policy.policy_id, auth=ALICE)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert macp_error_code(caught.value) == "UNKNOWN_POLICY_VERSION"


@pytest.mark.parametrize("policy_id", ["policy.default", "policy.std.majority", "policy.unheard.of"])
def test_what_is_built_in_or_unknown_cannot_be_removed(client: MacpClient, policy_id: str) -> None:
    response = client.unregister_policy(policy_id, auth=COORDINATOR)
    assert not response.ok and response.error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy_id", " "),
        ("policy_id", "policy.default"),
        ("policy_id", "policy.std.mine"),
        ("schema_version", 0),
        ("schema_version", 4),
        ("rules", b"[]"),
        ("rules", b'{"voting":'),
        ("rules", b'{"voting":{"algorithm":"lottery"}}'),
        ("rules", b'{"voting":{"threshold":1.5}}'),
        ("rules", b'{"ballots":{}}'),
        ("rules", b'{"voting":null}'),
        ("rules", b'{"x-com.example.audit":{}}'),
        ("rules", b'{"commitment":{"authority":"designated_role"}}'),
    ],
)
def test_a_bad_policy_is_refused_in_band(client: MacpClient, field: str, value: object) -> None:
    policy = policy_pb2.PolicyDescriptor(
        policy_id=fresh("bad"), mode="macp.mode.decision.v1", description="bad", rules=b"{}", schema_version=1
    )
    setattr(policy, field, value)
    response = client.register_policy(policy, auth=COORDINATOR)
    assert not response.ok
    assert response.error.startswith("INVALID_POLICY_DEFINITION: "), response.error


def test_annotations_in_rules_are_no_rules(client: MacpClient) -> None:
    policy = build_decision_policy(fresh("notes"), "with notes", annotations={"_note": "why", "$schema": 1})
    assert client.register_policy(policy, auth=COORDINATOR).ok


def test_a_session_needs_a_policy_that_exists_and_fits(client: MacpClient) -> None:
    with refused("UNKNOWN_POLICY_VERSION"):
        under(client, "policy.unheard.of")
    policy_id = registered(client, "for-decisions")
    session = TaskSession(client, policy_version=policy_id, auth=COORDINATOR)
    with refused("INVALID_POLICY_DEFINITION"):
        session.start(intent="wrong mode", participants=["alice"], ttl_ms=60_000)
    task_policy = build_task_policy(fresh("for-tasks"), "tasks")
    assert client.register_policy(task_policy, auth=COORDINATOR).ok
    session = TaskSession(client, policy_version=task_policy.policy_id, auth=COORDINATOR)
    assert session.start(intent="right mode", participants=["alice"], ttl_ms=60_000).ok


def test_what_a_session_is_bound_to_outlives_the_registry(client: MacpClient) -> None:
    policy_id = registered(client, "bound", voting=VotingRules("majority"))
    session = under(client, policy_id)
    assert client.unregister_policy(policy_id, auth=COORDINATOR).ok
    assert denials(session) == ["no_votes"]
    session.vote("p1", "approve", auth=ALICE)
    assert commit(session).session_state == RESOLVED
    assert metadata(client, session.session_id, ALICE).policy_version == policy_id


def test_a_majority_decides(client: MacpClient) -> None:
    policy_id = registered(client, "majority", voting=VotingRules("majority", threshold=0.6))
    session = under(client, policy_id)
    session.vote("p1", "approve", auth=ALICE)
    session.vote("p1", "reject", auth=BOB)
    assert denials(session) == ["threshold_not_met"]
    # A denial uses up nothing: neither the session nor an ordinal.
    assert len(history(client, session.session_id, ALICE, count=4)) == 4
    assert commit(session, "decision.declined").session_state == RESOLVED


def test_every_reason_is_told_in_order(client: MacpClient) -> None:
    policy_id = registered(
        client,
        "strict",
        voting=VotingRules("unanimous", quorum_type="count", quorum_value=2),
        evaluation=EvaluationRules(minimum_confidence=0.8, required_before_voting=True),
        objection_handling=ObjectionHandlingRules(critical_severity_vetoes=True, veto_threshold=2),
        commitment=CommitmentRules(require_vote_quorum=True),
    )
    session = under(client, policy_id)
    session.evaluate("p1", "approve", confidence=0.4, auth=ALICE)
    session.raise_objection("p1", reason="unsafe", severity="critical", auth=BOB)
    session.raise_objection("p1", reason="really unsafe", severity="critical", auth=ALICE)
    session.vote("p1", "approve", auth=ALICE)
    with refused("POLICY_DENIED") as caught:
        commit(session)
    told = caught.value.denials
    assert [denial.code for denial in told] == [
        "confidence_below_minimum",
        "veto",
        "quorum_not_met",
        "threshold_not_met",
    ]
    assert told[1].participants == ("alice", "bob")
    assert [denial.message for denial in told] == caught.value.reasons


def test_objections_may_hold_or_finish_a_decision(client: MacpClient) -> None:
    for action, for_yes, for_no in [("hold", ["veto_hold"], ["veto_hold"]), ("finalize_decline", ["veto"], None)]:
        rules = ObjectionHandlingRules(critical_severity_vetoes=True, critical_objection_action=action)
        session = under(client, registered(client, action, objection_handling=rules))
        session.raise_objection("p1", reason="unsafe", severity="critical", auth=BOB)
        assert denials(session) == for_yes
        if for_no is None:
            assert commit(session, "decision.declined").session_state == RESOLVED
        else:
            assert denials(session, "decision.declined") == for_no


def test_a_decline_needs_somebody_who_declined(client: MacpClient) -> None:
    session = under(client, registered(client, "backed", voting=VotingRules("plurality")))
    session.vote("p1", "approve", auth=ALICE)
    assert denials(session, "decision.declined") == ["decline_over_approval"]
    rules = CommitmentRules(allow_decline_over_approval=True)
    session = under(client, registered(client, "over", voting=VotingRules("plurality"), commitment=rules))
    session.vote("p1", "approve", auth=ALICE)
    assert denials(session, "decision.declined") == ["decline_not_backed"]


def test_votes_have_weights(client: MacpClient) -> None:
    voting = VotingRules("weighted", threshold=0.5, weights={"alice": 3.0, "bob": 1.0})
    session = under(client, registered(client, "weights", voting=voting))
    session.vote("p1", "reject", auth=ALICE)
    session.vote("p1", "approve", auth=BOB)
    assert denials(session) == ["threshold_not_met"]
    assert commit(session, "decision.declined").session_state == RESOLVED


def test_who_may_commit_is_a_matter_of_policy(client: MacpClient) -> None:
    anyone = under(client, registered(client, "anyone", commitment=CommitmentRules(authority="any_participant")))
    with refused("FORBIDDEN"):
        commit(anyone, auth=JUDGE)
    assert commit(anyone, auth=BOB).session_state == RESOLVED

    rules = CommitmentRules(authority="designated_role", designated_roles=["judge"])
    judged = under(client, registered(client, "judged", commitment=rules))
    with refused("FORBIDDEN"):
        commit(judged)  # The initiator is not listed.
    assert commit(judged, auth=JUDGE).session_state == RESOLVED


def test_the_standard_policies_are_there(client: MacpClient) -> None:
    session = under(client, "policy.std.unanimous")
    session.vote("p1", "approve", auth=ALICE)
    assert denials(session) == ["threshold_not_met"]
    session.vote("p1", "approve", auth=BOB)
    assert commit(session).session_state == RESOLVED
