"""Servers that are not for local development: tokens, observers and TLS."""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from harness import OPEN, PATIENCE, Watching, agent, connect, eventually, refused, serving
from macp.v1 import core_pb2
from macp_sdk import (
    AuthConfig,
    DecisionSession,
    MacpClient,
    MacpTransportError,
    SignalWatcher,
    TaskSession,
    build_decision_policy,
    macp_error_code,
    new_session_id,
)

TOKENS = {
    "tokens": [
        {"token": "secret-of-lead", "sender": "lead", "can_manage_mode_registry": True},
        {"token": "secret-of-alice", "sender": "alice", "can_start_sessions": False},
        {"token": "secret-of-auditor", "sender": "auditor", "is_observer": True},
        {"token": "secret-of-clerk", "sender": "clerk", "allowed_modes": ["macp.mode.task.v1"], "max_open_sessions": 1},
    ]
}


def bearer(name: str) -> AuthConfig:
    return AuthConfig.for_bearer(f"secret-of-{name}", expected_sender=name)


def started(client: MacpClient, who: AuthConfig) -> DecisionSession:
    session = DecisionSession(client, auth=who)
    session.start(intent="guarded", participants=["lead", "alice"], ttl_ms=60_000)
    return session


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that believes only tokens."""
    with serving(tmp_path_factory.mktemp("guarded"), MACP_AUTH_TOKENS_JSON=json.dumps(TOKENS)) as server:
        yield server.address


def test_tokens_say_who_may_do_what(guarded: str) -> None:
    with connect(guarded) as client:
        session = started(client, bearer("lead"))
        # A token is no name, and a name is no token.
        with refused("UNAUTHENTICATED"):
            started(client, agent("lead"))
        with refused("UNAUTHENTICATED"):
            started(client, AuthConfig.for_bearer("secret-of-lead", sender_hint="alice"))
        with refused("FORBIDDEN"):
            started(client, bearer("alice"))
        session.propose("p1", "one", auth=bearer("alice"))

        # Observers see everything and say nothing.
        stream = client.open_stream(auth=bearer("auditor"))
        stream.send_subscribe(session.session_id)
        assert [stream.read(timeout=PATIENCE).message_type for _ in range(2)] == ["SessionStart", "Proposal"]
        stream.close()
        with refused("FORBIDDEN"):
            session.vote("p1", "approve", auth=bearer("auditor"))
        with pytest.raises(MacpTransportError) as caught:
            session.cancel(auth=bearer("auditor"))
        assert caught.value.macp_code == "FORBIDDEN"

        with refused("FORBIDDEN"):
            started(client, bearer("clerk"))
        work = TaskSession(client, auth=bearer("clerk"))
        assert work.start(intent="one", participants=["alice"], ttl_ms=60_000).session_state == OPEN
        with refused("RATE_LIMITED"):
            TaskSession(client, auth=bearer("clerk")).start(intent="two", participants=["alice"], ttl_ms=60_000)

        policy = build_decision_policy("policy.mine", "mine")
        with pytest.raises(MacpTransportError) as caught:
            client.register_policy(policy, auth=bearer("alice"))
        assert (caught.value.code, caught.value.macp_code) == ("PERMISSION_DENIED", "FORBIDDEN")
        assert client.register_policy(policy, auth=bearer("lead")).ok

        # Here a name is proven, and listeners are told so (STD-RPC-15).
        watching = Watching(SignalWatcher(client, auth=bearer("alice")).events())

        def heard() -> object | None:
            assert client.send_signal(signal_type="load", auth=bearer("lead")).ok
            return watching.seen(lambda event: event.envelope.sender == "lead")

        assert eventually(heard).sender_authenticated is True


@pytest.mark.parametrize("name", ["GetSession", "ListSessions", "CancelSession", "SuspendSession", "ResumeSession"])
def test_without_a_token(guarded: str, name: str) -> None:
    with connect(guarded) as client, pytest.raises(grpc.RpcError) as caught:
        getattr(client.stub, name)(getattr(core_pb2, f"{name}Request")(), timeout=PATIENCE)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert macp_error_code(caught.value) == "UNAUTHENTICATED"


@pytest.mark.parametrize("name", ["watch_sessions", "watch_signals", "watch_policies", "open_stream"])
def test_watching_with_a_wrong_token(guarded: str, name: str) -> None:
    with connect(guarded, auth=AuthConfig.for_bearer("guessed")) as client:
        items = getattr(client, name)()
        if name == "open_stream":
            items.send_subscribe(new_session_id())
            items = items.responses(timeout=PATIENCE)
        with pytest.raises(MacpTransportError) as caught:
            next(items)
        assert (caught.value.code, caught.value.macp_code) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


def test_what_everyone_may_know(guarded: str) -> None:
    with connect(guarded) as client:
        assert client.initialize().selected_protocol_version == "1.0"
        assert client.get_manifest().manifest.agent_id
        assert client.list_modes().modes[0].mode == "macp.mode.decision.v1"
        assert client.get_receipt_keys() == {"keys": []}


def certificate(scratch: Path) -> tuple[Path, Path]:
    """A certificate for the loopback address that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "macp test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = scratch / "certificate.pem", scratch / "key.pem"
    certificate_path.write_bytes(signed.public_bytes(Encoding.PEM))
    key_path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate_path, key_path


def test_tls(scratch: Path) -> None:
    certificate_path, key_path = certificate(scratch)
    settings = {"MACP_TLS_CERT_PATH": str(certificate_path), "MACP_TLS_KEY_PATH": str(key_path)}
    with serving(scratch, **settings) as server:
        roots = certificate_path.read_bytes()
        with MacpClient(target=server.address, root_certificates=roots, default_timeout=PATIENCE) as client:
            session = started(client, agent("lead"))
            assert session.metadata().metadata.state == OPEN
        # Without the certificate there is no trust, and in clear text no server.
        for options in ({}, {"allow_insecure": True}):
            with MacpClient(target=server.address, default_timeout=PATIENCE, **options) as client:
                with pytest.raises(grpc.RpcError) as caught:
                    client.initialize()
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
                assert macp_error_code(caught.value) is None
