"""Decision receipts, checked by the SDK itself."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from harness import agent, connect, refused, serving
from macp_sdk import (
    DecisionSession,
    MacpClient,
    MacpTransportError,
    commitment_from_projection,
    commitment_hash,
    new_session_id,
    trusted_keys_from_jwks,
    verify_receipt,
)

COORDINATOR, ALICE, MALLORY = map(agent, ["coordinator", "alice", "mallory"])


def decided(client: MacpClient, **options: str) -> DecisionSession:
    session = DecisionSession(client, auth=COORDINATOR, **options)
    session.start(intent="on paper", participants=["alice"], ttl_ms=60_000)
    session.propose("p1", "one", auth=ALICE)
    session.commit(action="decision.selected", authority_scope="all", reason='"quoted", über & <b>')
    return session


def test_a_receipt_proves_what_was_decided(client: MacpClient) -> None:
    session = decided(client)
    result = client.get_decision_receipt(session.session_id, auth=ALICE)
    receipt = result.receipt
    assert receipt["receipt_format"] == "macp-receipt/1"
    assert (receipt["session_id"], receipt["mode"]) == (session.session_id, session.MODE)
    assert receipt["issuer"].startswith("runtime:")
    assert receipt["commitment_hash"] == commitment_hash(session.projection.commitment)
    assert commitment_from_projection(receipt["commitment"]) == session.projection.commitment
    sent = session.projection.transcript[-1].payload
    assert base64.b64decode(receipt["commitment_wire_b64"]) == sent
    # The text is canonical, and it is the same text each time somebody asks.
    assert result.raw == json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert client.get_decision_receipt(session.session_id, auth=COORDINATOR).raw == result.raw

    keys = trusted_keys_from_jwks(client.get_receipt_keys())
    verification = verify_receipt(receipt, keys)
    assert verification["integrity"] == "match"
    if client.server_capabilities.decision_receipt.signed:
        assert verification["verdict"] == "attested"
    else:
        assert (verification["verdict"], verification["attestations"], keys) == ("integrity_only", [], {})

    forged = copy.deepcopy(receipt)
    forged["commitment"]["reason"] = "something else"
    assert verify_receipt(forged, keys)["verdict"] == "unverified"


def test_when_there_is_no_receipt(client: MacpClient) -> None:
    def asking(session_id: str, who: object) -> tuple[str | None, str | None]:
        with pytest.raises(MacpTransportError) as caught:
            client.get_decision_receipt(session_id, auth=who)
        return caught.value.code, caught.value.macp_code

    session = DecisionSession(client, auth=COORDINATOR)
    session.start(intent="open", participants=["alice"], ttl_ms=60_000)
    assert asking(session.session_id, ALICE) == ("FAILED_PRECONDITION", "RECEIPT_UNAVAILABLE")
    assert asking(session.session_id, MALLORY) == ("PERMISSION_DENIED", "FORBIDDEN")
    assert asking(new_session_id(), ALICE) == ("NOT_FOUND", "SESSION_NOT_FOUND")
    session.cancel()
    assert asking(session.session_id, ALICE) == ("FAILED_PRECONDITION", "RECEIPT_UNAVAILABLE")


def test_signed_receipts_survive_restarts_and_new_keys(scratch: Path) -> None:
    data = ("--data", str(scratch / "data"))
    first, second = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()

    def settings(key: Ed25519PrivateKey, kid: str) -> dict[str, str]:
        pem = scratch / f"{kid}.pem"
        pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return {
            "MACP_RUNTIME_ID": "notary",
            "MACP_RECEIPT_SIGNING_KEY_PATH": str(pem),
            "MACP_RECEIPT_SIGNING_KID": kid,
        }

    def public(key: Ed25519PrivateKey) -> str:
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    with serving(scratch, *data, **settings(first, "first")) as server, connect(server.address) as client:
        assert client.initialize().capabilities.decision_receipt.signed
        session = decided(client)
        issued = client.get_decision_receipt(session.session_id, auth=ALICE)
        keys = trusted_keys_from_jwks(client.get_receipt_keys())
        assert keys == {"first": public(first)}
        verification = verify_receipt(issued.receipt, keys)
        assert (verification["verdict"], verification["attestations"]) == ("attested", ["valid"])
        assert issued.receipt["issuer"] == "runtime:notary"
        assert verify_receipt(issued.receipt, {"first": public(second)})["attestations"] == ["invalid"]
        edited = issued.receipt | {"issuer": "runtime:forger"}
        assert verify_receipt(edited, keys)["verdict"] == "integrity_only"
        later = decided(client)

    with serving(scratch, *data, **settings(second, "second")) as server, connect(server.address) as client:
        keys = trusted_keys_from_jwks(client.get_receipt_keys())
        assert keys == {"second": public(second)}
        # What was issued stays as it was, to the byte; what is issued from here on carries the new key.
        assert client.get_decision_receipt(session.session_id, auth=ALICE).raw == issued.raw
        fresh = client.get_decision_receipt(later.session_id, auth=ALICE)
        assert verify_receipt(fresh.receipt, keys)["verdict"] == "attested"
        with refused("SESSION_NOT_OPEN"):
            session.client = client
            session.vote("p1", "approve", auth=ALICE)
