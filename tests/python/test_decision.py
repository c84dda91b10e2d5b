"""Decision mode: proposals, evaluations, objections, votes and the commitment that binds."""

from __future__ import annotations

from harness import OPEN, RESOLVED, agent, history, metadata, refused
from macp_sdk import (
    DecisionProjection,
    DecisionSession,
    MacpClient,
    build_commitment_payload,
    build_commitment_ref,
    build_envelope,
    commitment_hash,
    serialize_message,
)

COORDINATOR, ALICE, BOB, MALLORY = map(agent, ["coordinator", "alice", "bob", "mallory"])


def started(client: MacpClient, **options: str) -> DecisionSession:
    session = DecisionSession(client, auth=COORDINATOR, **options)
    ack = session.start(intent="pick a region", participants=["alice", "bob"], ttl_ms=60_000, context_id="order-7")
    assert ack.ok and not ack.duplicate
    assert (ack.session_id, ack.session_state) == (session.session_id, OPEN)
    return session


def commit(session: DecisionSession, action: str = "decision.selected", **options: object) -> object:
    return session.commit(action=action, authority_scope="deploy", reason="the votes say so", **options)


def test_a_decision_from_proposal_to_commitment(client: MacpClient) -> None:
    session = started(client)
    session.propose("eu", "Frankfurt", rationale="near users", auth=ALICE)
    session.propose("us", "Ohio", auth=BOB)
    session.evaluate("eu", "approve", confidence=0.9, reason="latency", auth=BOB)
    session.raise_objection("us", reason="data residency", severity="HIGH", auth=ALICE)
    session.vote("eu", "approve", auth=ALICE)
    ack = session.vote("eu", "approve", auth=BOB)
    assert ack.session_state == OPEN
    ack = commit(session)
    assert ack.session_state == RESOLVED
    assert ack.accepted_at_unix_ms > 0

    seen = metadata(client, session.session_id, ALICE)
    assert (seen.state, seen.mode, seen.initiator) == (RESOLVED, "macp.mode.decision.v1", "coordinator")
    assert list(seen.participants) == ["alice", "bob"]
    assert (seen.mode_version, seen.configuration_version) == ("1.0.0", "config.default")
    assert (seen.policy_version, seen.context_id) == ("policy.default", "order-7")
    assert 0 < seen.started_at_unix_ms < seen.expires_at_unix_ms
    counts = {activity.participant_id: activity.message_count for activity in seen.participant_activity}
    assert counts == {"alice": 3, "bob": 3, "coordinator": 1}

    # Whoever reads the history sees the state that those who wrote it kept (STD-SDK-13).
    replayed = DecisionProjection()
    for envelope in history(client, session.session_id, BOB, count=8):
        replayed.apply_envelope(envelope)
    assert [e.message_id for e in replayed.transcript] == [e.message_id for e in session.projection.transcript]
    assert replayed.phase == "Committed" and replayed.majority_winner() == "eu"
    assert replayed.vote_totals() == session.decision_projection.vote_totals() == {"eu": 2}
    assert replayed.evaluations == session.decision_projection.evaluations
    assert replayed.objections == session.decision_projection.objections
    assert replayed.is_positive_outcome is True and not replayed.has_anomalies


def test_a_decision_against(client: MacpClient) -> None:
    session = started(client)
    session.propose("eu", "Frankfurt", auth=ALICE)
    session.vote("eu", "reject", auth=ALICE)
    # The word of the action and the outcome must agree (STD-CMT-4).
    with refused("INVALID_ENVELOPE"):
        commit(session, "decision.rejected", outcome_positive=True)
    assert commit(session, "decision.rejected").session_state == RESOLVED
    assert session.projection.is_positive_outcome is False


def test_who_may_do_what(client: MacpClient) -> None:
    session = started(client)
    with refused("FORBIDDEN") as caught:
        session.propose("eu", "Frankfurt", auth=MALLORY)
    assert caught.value.failure.session_id == session.session_id
    assert caught.value.failure.message_id
    # Starting a session makes nobody a participant of it.
    with refused("FORBIDDEN"):
        session.propose("eu", "Frankfurt")
    with refused("INVALID_ENVELOPE"):
        commit(session)  # There is nothing to decide on yet.
    session.propose("eu", "Frankfurt", auth=ALICE)
    with refused("FORBIDDEN"):
        commit(session, auth=ALICE)
    # Refusals leave no trace.
    assert len(history(client, session.session_id, ALICE, count=2)) == 2


def test_the_order_of_things(client: MacpClient) -> None:
    session = started(client)
    with refused("INVALID_ENVELOPE"):
        session.evaluate("eu", "approve", confidence=0.5, auth=ALICE)
    session.propose("eu", "Frankfurt", auth=ALICE)
    with refused("INVALID_ENVELOPE"):
        session.propose("eu", "Frankfurt again", auth=BOB)
    with refused("INVALID_ENVELOPE"):
        session.vote("asia", "approve", auth=ALICE)
    session.vote("eu", "abstain", auth=ALICE)
    with refused("INVALID_ENVELOPE"):
        session.vote("eu", "approve", auth=ALICE)
    with refused("INVALID_ENVELOPE"):
        session.evaluate("eu", "block", confidence=1.0, auth=BOB)
    commit(session)
    with refused("SESSION_NOT_OPEN"):
        session.vote("eu", "approve", auth=BOB)


def test_a_commitment_names_the_versions_the_session_is_bound_to(client: MacpClient) -> None:
    session = started(client, policy_version="")
    session.propose("eu", "Frankfurt", auth=ALICE)
    for name in ("mode_version", "configuration_version", "policy_version"):
        bound = getattr(session, name)
        setattr(session, name, "policy.other")
        with refused("INVALID_ENVELOPE"):
            commit(session)
        setattr(session, name, bound)
    # A start without a policy is bound to the default, by whichever of both names.
    session.policy_version = "policy.default"
    assert commit(session).session_state == RESOLVED


def test_nobody_takes_part(client: MacpClient) -> None:
    session = DecisionSession(client, auth=COORDINATOR)
    assert session.start(intent="wait", participants=[], ttl_ms=60_000).session_state == OPEN
    with refused("FORBIDDEN"):
        session.propose("eu", "Frankfurt")


def test_a_later_commitment_supersedes_an_earlier_one(client: MacpClient) -> None:
    first, second = started(client), started(client)
    first.propose("eu", "Frankfurt", auth=ALICE)
    commit(first)
    binding = first.projection.commitment
    second.propose("us", "Ohio", auth=ALICE)
    payload = build_commitment_payload(
        action="decision.selected",
        authority_scope="deploy",
        reason="prices changed",
        supersedes=build_commitment_ref(session_id=first.session_id, commitment_hash=commitment_hash(binding)),
    )
    envelope = build_envelope(
        mode=second.MODE,
        message_type="Commitment",
        session_id=second.session_id,
        sender="coordinator",
        payload=serialize_message(payload),
    )
    assert client.send(envelope, auth=COORDINATOR).session_state == RESOLVED
    assert history(client, second.session_id, ALICE, count=3)[-1].payload == envelope.payload
