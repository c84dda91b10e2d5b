"""What-if replay: what another policy would have made of a recorded session."""

from __future__ import annotations

import pytest
from harness import OPEN, RESOLVED, agent, metadata
from macp.v1 import policy_pb2
from macp_sdk import (
    DecisionSession,
    MacpClient,
    MacpTransportError,
    VotingRules,
    build_decision_policy,
    build_task_policy,
    new_session_id,
    parse_error_details,
)

COORDINATOR, ALICE, BOB, MALLORY = map(agent, ["coordinator", "alice", "bob", "mallory"])
Kind = policy_pb2.WhatIfEntryOutcome


def decided(client: MacpClient) -> DecisionSession:
    session = DecisionSession(client, auth=COORDINATOR)
    session.start(intent="history", participants=["alice", "bob"], ttl_ms=60_000)
    session.propose("p1", "one", auth=ALICE)
    session.vote("p1", "approve", auth=ALICE)
    session.suspend()
    session.resume()
    session.vote("p1", "reject", auth=BOB)
    session.commit(action="decision.selected", authority_scope="all", reason="one is enough")
    return session


def test_a_stricter_policy_would_have_denied_it(client: MacpClient) -> None:
    session = decided(client)
    candidate = build_decision_policy("policy.never.registered", "all", voting=VotingRules("unanimous"))
    told = client.what_if_replay(session.session_id, candidate, auth=ALICE)
    assert (told.candidate_policy_id, told.recorded_policy_id) == ("policy.never.registered", "policy.default")
    assert (told.recorded.state, told.candidate.state) == (RESOLVED, OPEN)
    sent = session.projection.transcript
    assert told.recorded.resolution == sent[-1].payload and told.candidate.resolution == b""
    assert told.recorded.resolved_by_history_index == 4
    assert told.recorded.resolved_by_message_id == sent[-1].message_id
    assert told.recorded.resolved_by_message_type == "Commitment"

    # Bookkeeping such as a pause has no index of its own.
    assert [(e.history_index, e.message_id) for e in told.entries] == [
        (index, envelope.message_id) for index, envelope in enumerate(sent)
    ]
    assert [entry.recorded.kind for entry in told.entries] == [Kind.KIND_APPLIED] * 5
    assert [entry.candidate.kind for entry in told.entries] == [Kind.KIND_APPLIED] * 4 + [Kind.KIND_REFUSED]
    assert told.HasField("first_divergence") and told.first_divergence == 4
    refusal = told.entries[4].candidate
    assert refusal.error_code == "POLICY_DENIED"
    assert [denial.code for denial in parse_error_details(refusal.details).denials] == ["threshold_not_met"]
    assert [(d.history_index, d.message_id, d.details) for d in told.denials] == [
        (4, sent[-1].message_id, refusal.details)
    ]
    # Asking changes nothing.
    assert metadata(client, session.session_id, ALICE).policy_version == "policy.default"


def test_a_policy_that_makes_no_difference(client: MacpClient) -> None:
    session = decided(client)
    candidate = build_decision_policy("policy.same", "half is enough", voting=VotingRules("majority"))
    told = client.what_if_replay(session.session_id, candidate, auth=BOB)
    assert not told.HasField("first_divergence") and list(told.denials) == []
    assert told.recorded == told.candidate


def test_what_cannot_be_asked(client: MacpClient) -> None:
    session = decided(client)
    candidate = build_decision_policy("policy.same", "as it was")

    def asking(session_id: str, who: object, policy: policy_pb2.PolicyDescriptor) -> tuple[str | None, str | None]:
        with pytest.raises(MacpTransportError) as caught:
            client.what_if_replay(session_id, policy, auth=who)
        return caught.value.code, caught.value.macp_code

    assert asking(new_session_id(), ALICE, candidate) == ("NOT_FOUND", "SESSION_NOT_FOUND")
    assert asking(session.session_id, MALLORY, candidate) == ("PERMISSION_DENIED", "FORBIDDEN")
    bad = ("INVALID_ARGUMENT", "INVALID_POLICY_DEFINITION")
    assert asking(session.session_id, ALICE, build_task_policy("policy.same", "another mode")) == bad
    candidate.rules = b'{"voting":{"algorithm":"lottery"}}'
    assert asking(session.session_id, ALICE, candidate) == bad
