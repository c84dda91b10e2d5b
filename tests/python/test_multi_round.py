"""Multi-round, the extension mode that every runtime of the reference family brings along."""

from __future__ import annotations

import json

import pytest
from harness import OPEN, RESOLVED, agent, history, refused
from macp.v1 import envelope_pb2
from macp_sdk import (
    MODE_MULTI_ROUND,
    MacpClient,
    MacpTransportError,
    ProtoRegistry,
    build_commitment_payload,
    build_contribute_payload,
    build_envelope,
    build_session_start_payload,
    new_session_id,
    serialize_message,
)


def send(client: MacpClient, session_id: str, sender: str, message_type: str, payload: bytes) -> envelope_pb2.Ack:
    envelope = build_envelope(
        mode=MODE_MULTI_ROUND, message_type=message_type, session_id=session_id, sender=sender, payload=payload
    )
    return client.send(envelope, auth=agent(sender))


def test_rounds_until_all_say_the_same(client: MacpClient) -> None:
    session_id = new_session_id()
    start = build_session_start_payload(intent="converge", participants=["anne", "ben"], ttl_ms=60_000)
    commitment = build_commitment_payload(action="multi_round.converged", authority_scope="all", reason="they agree")
    commitment_bytes = serialize_message(commitment)
    assert send(client, session_id, "clerk", "SessionStart", serialize_message(start)).session_state == OPEN

    def contribute(sender: str, payload: bytes) -> envelope_pb2.Ack:
        return send(client, session_id, sender, "Contribute", payload)

    contribute("anne", serialize_message(build_contribute_payload("blue")))
    contribute("ben", serialize_message(build_contribute_payload("red")))
    with refused("INVALID_ENVELOPE"):
        send(client, session_id, "clerk", "Commitment", commitment_bytes)
    with refused("FORBIDDEN"):
        contribute("mallory", serialize_message(build_contribute_payload("red")))
    with refused("INVALID_ENVELOPE"):
        contribute("anne", b"")
    # The older form of a contribution is JSON.
    assert contribute("ben", json.dumps({"value": "blue"}).encode()).session_state == OPEN
    with refused("INVALID_ENVELOPE"):
        contribute("anne", serialize_message(build_contribute_payload("green")))
    with refused("FORBIDDEN"):
        send(client, session_id, "anne", "Commitment", commitment_bytes)
    assert send(client, session_id, "clerk", "Commitment", commitment_bytes).session_state == RESOLVED

    registry = ProtoRegistry()
    envelopes = history(client, session_id, agent("ben"), count=5)
    contributed = [
        registry.decode_known_payload(envelope.mode, envelope.message_type, envelope.payload)
        for envelope in envelopes
        if envelope.message_type == "Contribute"
    ]
    assert contributed == [{"value": "blue"}, {"value": "red"}, {"encoding": "json", "json": {"value": "blue"}}]

    # Its resolution is no commitment, so there is nothing a receipt could attest (STD-MR-3).
    with pytest.raises(MacpTransportError) as caught:
        client.get_decision_receipt(session_id, auth=agent("clerk"))
    assert (caught.value.code, caught.value.macp_code) == ("FAILED_PRECONDITION", "RECEIPT_UNAVAILABLE")
