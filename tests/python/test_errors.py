"""How refusals reach a client: in acknowledgements, in statuses, always with a code."""

from __future__ import annotations

import grpc
import pytest
from harness import PATIENCE, agent, refused
from macp.v1 import core_pb2, envelope_pb2, policy_pb2
from macp_sdk import (
    AuthConfig,
    DecisionSession,
    MacpClient,
    build_envelope,
    build_session_start_payload,
    macp_error_code,
    new_session_id,
    serialize_message,
)

COORDINATOR, ALICE, MALLORY = map(agent, ["coordinator", "alice", "mallory"])


def start(**changes: object) -> envelope_pb2.Envelope:
    fields: dict[str, object] = {"intent": "x", "participants": ["alice"], "ttl_ms": 60_000}
    envelope: dict[str, object] = {"mode": DecisionSession.MODE, "session_id": new_session_id()}
    for name, value in changes.items():
        (fields if name in core_pb2.SessionStartPayload.DESCRIPTOR.fields_by_name else envelope)[name] = value
    payload = serialize_message(build_session_start_payload(**fields))
    return build_envelope(**{"message_type": "SessionStart", "sender": "coordinator", "payload": payload} | envelope)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"macp_version": "2.0"}, "UNSUPPORTED_PROTOCOL_VERSION"),
        ({"session_id": "s1"}, "INVALID_SESSION_ID"),
        ({"session_id": new_session_id().upper()}, "INVALID_SESSION_ID"),
        ({"session_id": ""}, "INVALID_ENVELOPE"),
        ({"mode": " "}, "INVALID_ENVELOPE"),
        ({"mode": "ext.unheard.of.v1"}, "MODE_NOT_SUPPORTED"),
        ({"payload": b""}, "INVALID_ENVELOPE"),
        ({"payload": b"\xff\xff"}, "INVALID_ENVELOPE"),
        ({"payload": b"x" * 1_048_577}, "PAYLOAD_TOO_LARGE"),
        ({"ttl_ms": 0}, "INVALID_ENVELOPE"),
        ({"ttl_ms": 86_400_001}, "INVALID_ENVELOPE"),
        ({"participants": ["alice", "alice"]}, "INVALID_ENVELOPE"),
        ({"participants": ["alice", " "]}, "INVALID_ENVELOPE"),
        ({"participants": [f"agent-{n}" for n in range(1001)]}, "INVALID_ENVELOPE"),
        ({"mode_version": "9.9.9"}, "INVALID_ENVELOPE"),
        ({"configuration_version": ""}, "INVALID_ENVELOPE"),
        ({"policy_version": "policy.unheard.of"}, "UNKNOWN_POLICY_VERSION"),
        ({"mode": "macp.mode.task.v1", "participants": []}, "INVALID_ENVELOPE"),
        ({"mode": "macp.mode.handoff.v1"}, "INVALID_ENVELOPE"),
    ],
)
def test_a_start_that_is_refused(client: MacpClient, changes: dict[str, object], code: str) -> None:
    envelope = start(**changes)
    with refused(code) as caught:
        client.send(envelope, auth=COORDINATOR)
    assert caught.value.failure.message_id == envelope.message_id
    assert caught.value.failure.session_id == envelope.session_id
    # All of it comes in band, so that the client can tell it from trouble on the way (STD-CORE-2).
    assert caught.value.macp_code is None


def test_ids_may_be_tokens_too(client: MacpClient) -> None:
    session_id = "a_token-of_22_letters_" + new_session_id().replace("-", "")
    assert client.send(start(session_id=session_id), auth=COORDINATOR).ok


def test_nobody_speaks_for_another(client: MacpClient) -> None:
    pretending = AuthConfig.for_bearer("mallory", sender_hint="coordinator")
    with refused("UNAUTHENTICATED"):
        client.send(start(), auth=pretending)
    # Who leaves the name out is filled in.
    envelope = start(sender="")
    assert client.send(envelope, auth=COORDINATOR).ok
    assert client.get_session(envelope.session_id, auth=ALICE).metadata.initiator == "coordinator"


def test_without_a_name(client: MacpClient) -> None:
    ack = client.stub.Send(core_pb2.SendRequest(envelope=start()), timeout=PATIENCE).ack
    assert (ack.ok, ack.error.code) == (False, "UNAUTHENTICATED")
    for name, request in [
        ("SuspendSession", core_pb2.SuspendSessionRequest(session_id=new_session_id())),
        ("ListPolicies", policy_pb2.ListPoliciesRequest()),
        ("GetDecisionReceipt", core_pb2.GetDecisionReceiptRequest(session_id=new_session_id())),
    ]:
        with pytest.raises(grpc.RpcError) as caught:
            getattr(client.stub, name)(request, timeout=PATIENCE)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert macp_error_code(caught.value) == "UNAUTHENTICATED"


def test_a_session_that_is_not_there_or_not_ours(client: MacpClient) -> None:
    envelope = start()
    client.send(envelope, auth=COORDINATOR)
    for who, session_id, status, code in [
        (ALICE, new_session_id(), grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"),
        (ALICE, "../../etc/passwd", grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"),
        (MALLORY, envelope.session_id, grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN"),
    ]:
        with pytest.raises(grpc.RpcError) as caught:
            client.get_session(session_id, auth=who)
        assert (caught.value.code(), macp_error_code(caught.value)) == (status, code)
    lost = DecisionSession(client, auth=ALICE)
    with refused("SESSION_NOT_FOUND"):
        lost.vote("p1", "approve")


def test_a_message_for_another_mode(client: MacpClient) -> None:
    envelope = start()
    client.send(envelope, auth=COORDINATOR)
    stray = build_envelope(
        mode="macp.mode.task.v1",
        message_type="TaskAccept",
        session_id=envelope.session_id,
        sender="alice",
        payload=b"",
    )
    with refused("INVALID_ENVELOPE"):
        client.send(stray, auth=ALICE)


def test_what_only_the_runtime_says(client: MacpClient) -> None:
    envelope = start()
    client.send(envelope, auth=COORDINATOR)
    for message_type in ("SessionCancel", "SessionSuspend", "SessionResume"):
        forged = build_envelope(
            mode=DecisionSession.MODE,
            message_type=message_type,
            session_id=envelope.session_id,
            sender="coordinator",
            payload=b"",
        )
        with refused("FORBIDDEN"):
            client.send(forged, auth=COORDINATOR)
