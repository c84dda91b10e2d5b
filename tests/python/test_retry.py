"""Sending again what may or may not have arrived."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from harness import OPEN, PATIENCE, RESOLVED, agent, connect, history, metadata, refused, serving
from macp_sdk import (
    DecisionSession,
    MacpAckError,
    MacpClient,
    MacpRetryError,
    RetryPolicy,
    build_envelope,
    build_session_start_payload,
    new_session_id,
    retry_send,
    serialize_message,
)
from macp.modes.decision.v1 import decision_pb2
from macp.v1 import envelope_pb2

COORDINATOR, ALICE, BOB = map(agent, ["coordinator", "alice", "bob"])
MODE = DecisionSession.MODE


def start(session_id: str, **fields: object) -> envelope_pb2.Envelope:
    payload = build_session_start_payload(intent="again", participants=["alice", "bob"], ttl_ms=60_000)
    return build_envelope(
        mode=MODE,
        message_type="SessionStart",
        session_id=session_id,
        sender="coordinator",
        payload=serialize_message(payload),
        **fields,
    )


def proposal(session_id: str, proposal_id: str = "p1") -> envelope_pb2.Envelope:
    payload = decision_pb2.ProposalPayload(proposal_id=proposal_id, option="one")
    return build_envelope(
        mode=MODE, message_type="Proposal", session_id=session_id, sender="alice", payload=serialize_message(payload)
    )


def test_the_same_message_twice_is_accepted_once(client: MacpClient) -> None:
    session_id = new_session_id()
    first = start(session_id)
    assert not client.send(first, auth=COORDINATOR).duplicate
    again = client.send(first, auth=COORDINATOR)
    assert (again.ok, again.duplicate, again.session_state) == (True, True, OPEN)
    with refused("SESSION_ALREADY_EXISTS"):
        client.send(start(session_id), auth=COORDINATOR)

    envelope = proposal(session_id)
    assert not client.send(envelope, auth=ALICE).duplicate
    assert client.send(envelope, auth=ALICE).duplicate
    # A duplicate is a duplicate whoever sends it and whatever it says by now (STD-CORE-18).
    other = build_envelope(
        mode="macp.mode.task.v1",
        message_type="Vote",
        session_id=session_id,
        sender="bob",
        payload=b"",
        message_id=envelope.message_id,
    )
    assert client.send(other, auth=BOB).duplicate
    assert len(history(client, session_id, BOB, count=2)) == 2
    assert [a.message_count for a in metadata(client, session_id, BOB).participant_activity] == [1]


def test_a_refused_message_may_be_corrected_under_its_id(client: MacpClient) -> None:
    session_id = new_session_id()
    client.send(start(session_id), auth=COORDINATOR)
    envelope = proposal(session_id, proposal_id=" ")
    with refused("INVALID_ENVELOPE"):
        client.send(envelope, auth=ALICE)
    envelope.payload = decision_pb2.ProposalPayload(proposal_id="p1", option="one").SerializeToString()
    ack = client.send(envelope, auth=ALICE)
    assert ack.ok and not ack.duplicate


def test_a_duplicate_after_the_end(client: MacpClient) -> None:
    session = DecisionSession(client, auth=COORDINATOR)
    session.start(intent="over", participants=["alice"], ttl_ms=60_000)
    session.propose("p1", "one", auth=ALICE)
    session.commit(action="decision.selected", authority_scope="all", reason="done")
    for envelope in session.projection.transcript:
        ack = client.send(envelope, auth=agent(envelope.sender))
        assert (ack.ok, ack.duplicate, ack.session_state) == (True, True, RESOLVED)


def test_what_was_acknowledged_survives_a_crash(scratch: Path) -> None:
    data = ("--data", str(scratch / "data"))
    session_id = new_session_id()
    envelope = proposal(session_id)
    patient = RetryPolicy(max_retries=400, backoff_base=0.05, backoff_max=0.05)
    with serving(scratch, *data) as server:
        with connect(server.address) as client:
            client.send(start(session_id), auth=COORDINATOR)
            client.send(envelope, auth=ALICE)
        server.kill()
        acks: list[envelope_pb2.Ack] = []
        with connect(server.address) as client:
            # Sent to nobody, again and again, until the server is back.
            sending = threading.Thread(
                target=lambda: acks.append(retry_send(client, envelope, policy=patient, auth=ALICE)), daemon=True
            )
            sending.start()
            server.start(listen=server.address)
            sending.join(PATIENCE)
            assert [(ack.ok, ack.duplicate) for ack in acks] == [(True, True)]
            assert history(client, session_id, BOB, count=2)[1] == envelope


def test_too_much_is_too_much(scratch: Path) -> None:
    limits = ("--session-start-limit-per-minute", "2", "--message-limit-per-minute", "3")
    with serving(scratch, *limits) as server, connect(server.address) as client:
        sessions = [new_session_id() for _ in range(3)]
        for session_id in sessions[:2]:
            client.send(start(session_id), auth=COORDINATOR)
        with refused("RATE_LIMITED"):
            client.send(start(sessions[2]), auth=COORDINATOR)
        # Retrying is right for this refusal, and ends after as many times as asked for (STD-SDK-9).
        with pytest.raises(MacpRetryError) as caught:
            retry_send(
                client, start(sessions[2]), policy=RetryPolicy(max_retries=2, backoff_base=0.01), auth=COORDINATOR
            )
        assert isinstance(caught.value.__cause__, MacpAckError)
        # Others have limits of their own, and messages another than starts.
        for number in range(3):
            client.send(proposal(sessions[0], f"p{number}"), auth=ALICE)
        with refused("RATE_LIMITED"):
            client.send(proposal(sessions[0], "p9"), auth=ALICE)
        # What retrying does not help is told at once.
        with refused("FORBIDDEN"):
            forbidden = proposal(sessions[0], "p10")
            forbidden.sender = "mallory"
            retry_send(client, forbidden, auth=agent("mallory"))
