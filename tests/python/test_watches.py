"""Watches: sessions as they come and go, signals, policies, modes and roots."""

from __future__ import annotations

from collections.abc import Callable

from harness import OPEN, SUSPENDED, Watching, agent, eventually, refused
from macp.v1 import core_pb2, envelope_pb2
from macp_sdk import (
    DecisionSession,
    MacpClient,
    ModeRegistryWatcher,
    PolicyWatcher,
    RootsWatcher,
    SessionLifecycleWatcher,
    SignalWatcher,
    build_decision_policy,
    build_envelope,
    build_session_start_payload,
    new_message_id,
    new_session_id,
)

COORDINATOR, ALICE, BOB = map(agent, ["coordinator", "alice", "bob"])


def started(client: MacpClient, ttl_ms: int = 60_000) -> DecisionSession:
    session = DecisionSession(client, auth=COORDINATOR)
    session.start(intent="watched", participants=["alice"], ttl_ms=ttl_ms, extensions={"com.example": b"x"})
    return session


def test_the_life_of_sessions(client: MacpClient) -> None:
    before = started(client)
    before.suspend()
    watching = Watching(SessionLifecycleWatcher(client, auth=ALICE).changes())

    def next_of(session: DecisionSession) -> object:
        return watching.next(lambda event: event.session.session_id == session.session_id)

    # Sessions that are there already come first, as they are by now.
    event = next_of(before)
    assert event.is_created and event.session.state == SUSPENDED

    session = started(client)
    event = next_of(session)
    assert event.is_created and not event.is_terminal
    assert event.observed_at_unix_ms > 0
    assert (event.session.initiator, event.session.state) == ("coordinator", OPEN)
    assert list(event.session.extension_keys) == ["com.example"]
    session.suspend(reason="lunch")
    event = next_of(session)
    assert event.is_suspended and event.session.state == SUSPENDED
    session.resume()
    assert next_of(session).is_resumed
    session.cancel(reason="enough")
    event = next_of(session)
    assert event.is_cancelled and event.is_terminal

    resolved = started(client)
    resolved.propose("p1", "one", auth=ALICE)
    resolved.commit(action="decision.selected", authority_scope="all", reason="done")
    assert [next_of(resolved).event_type for _ in range(2)] == ["CREATED", "RESOLVED"]

    # A deadline that passes unnoticed is found when somebody looks (STD-CORE-26).
    brief = started(client, ttl_ms=1)
    assert next_of(brief).is_created

    def is_expired() -> bool | None:
        return brief.metadata().metadata.state != OPEN or None

    eventually(is_expired)
    assert next_of(brief).is_expired


def test_signals_reach_whoever_listens(client: MacpClient) -> None:
    watching = Watching(SignalWatcher(client, auth=BOB).events())
    session = started(client)

    def arrives(send: Callable[[], envelope_pb2.Ack]) -> object:
        # Nothing tells when listening has begun, so say it until it is heard.
        def heard() -> object | None:
            ack = send()
            assert ack.ok
            return watching.seen(lambda event: event.envelope.message_id == ack.message_id)

        return eventually(heard)

    def signal() -> envelope_pb2.Ack:
        return client.send_signal(
            signal_type="load", data=b"high", confidence=0.5, correlation_session_id=session.session_id, auth=ALICE
        )

    event = arrives(signal)
    assert (event.envelope.message_type, event.envelope.sender) == ("Signal", "alice")
    payload = core_pb2.SignalPayload.FromString(event.envelope.payload)
    assert (payload.signal_type, payload.data, payload.correlation_session_id) == ("load", b"high", session.session_id)
    # In local development a name is only claimed (STD-RPC-15).
    assert event.sender_authenticated is False

    def progress() -> envelope_pb2.Ack:
        return client.send_progress(
            session_id=session.session_id, mode=session.MODE, progress_token="t", progress=1, total=2, auth=ALICE
        )

    event = arrives(progress)
    assert (event.envelope.message_type, event.envelope.session_id) == ("Progress", session.session_id)
    assert core_pb2.ProgressPayload.FromString(event.envelope.payload).total == 2
    event = arrives(lambda: client.send_progress(progress_token="t", progress=2, total=2, auth=ALICE))
    assert event.envelope.session_id == ""
    # Neither is part of the session.
    assert len(session.metadata().metadata.participant_activity) == 0


def test_signals_have_a_shape(client: MacpClient) -> None:
    for message_type, mode, session_id, payload in [
        ("Signal", "", "somewhere", b""),
        ("Signal", "macp.mode.decision.v1", "", b""),
        ("Signal", "", "", core_pb2.SignalPayload(data=b"x").SerializeToString()),
        ("Progress", "macp.mode.decision.v1", "", b""),
        ("Progress", "", "", b"\xff"),
    ]:
        envelope = build_envelope(
            mode=mode, message_type=message_type, session_id=session_id, sender="alice", payload=payload
        )
        with refused("INVALID_ENVELOPE"):
            client.send(envelope, auth=ALICE)


def test_policies_come_as_a_whole_list(client: MacpClient) -> None:
    watching = Watching(PolicyWatcher(client, auth=ALICE).changes())
    policy_id = f"policy.watched.{new_message_id()}"

    def ids(change: object) -> list[str]:
        return [descriptor.policy_id for descriptor in change.descriptors]

    first = watching.next()
    assert "policy.default" in ids(first) and policy_id not in ids(first)
    assert first.observed_at_unix_ms > 0
    client.register_policy(build_decision_policy(policy_id, "watched"), auth=COORDINATOR)
    assert policy_id in ids(watching.next())
    client.unregister_policy(policy_id, auth=COORDINATOR)
    assert policy_id not in ids(watching.next())


def test_modes_come_and_go(client: MacpClient) -> None:
    watching = Watching(ModeRegistryWatcher(client).changes())
    first = watching.next().change
    assert first.registry == "modes" and first.observed_at_unix_ms > 0
    mode = f"ext.watched-{new_message_id()}.v1"
    descriptor = core_pb2.ModeDescriptor(
        mode=mode, mode_version="2.0.0", message_types=["Note", "Commitment"], terminal_message_types=["Commitment"]
    )
    response = client.register_ext_mode(descriptor, auth=COORDINATOR)
    assert response.ok, response.error
    assert watching.next().change.registry == "modes"
    assert mode in [found.mode for found in client.list_ext_modes().modes]
    assert not client.register_ext_mode(descriptor, auth=COORDINATOR).ok

    # A mode that carries whatever its descriptor names.
    def send(sender: str, message_type: str, payload: bytes, session_id: str) -> envelope_pb2.Ack:
        envelope = build_envelope(
            mode=mode, message_type=message_type, session_id=session_id, sender=sender, payload=payload
        )
        return client.send(envelope, auth=agent(sender))

    session_id = new_session_id()
    start = build_session_start_payload(
        intent="notes", participants=["alice"], ttl_ms=60_000, mode_version="2.0.0"
    ).SerializeToString()
    assert send("coordinator", "SessionStart", start, session_id).session_state == OPEN
    assert send("alice", "Note", b"anything", session_id).session_state == OPEN
    with refused("FORBIDDEN"):
        send("bob", "Note", b"anything", session_id)
    with refused("INVALID_ENVELOPE"):
        send("alice", "Vote", b"anything", session_id)

    promoted = client.promote_mode(mode, auth=COORDINATOR)
    assert promoted.ok and promoted.mode == mode, promoted.error
    assert watching.next().change.registry == "modes"
    assert mode in [found.mode for found in client.list_modes().modes]
    assert not client.unregister_ext_mode(mode, auth=COORDINATOR).ok
    assert not client.unregister_ext_mode("macp.mode.task.v1", auth=COORDINATOR).ok
    assert not client.promote_mode("ext.unheard.of.v1", auth=COORDINATOR).ok

    brief = f"ext.brief-{new_message_id()}.v1"
    descriptor.mode = brief
    assert client.register_ext_mode(descriptor, auth=COORDINATOR).ok
    assert client.unregister_ext_mode(brief, auth=COORDINATOR).ok
    assert [watching.next().change.registry for _ in range(2)] == ["modes", "modes"]
    assert brief not in [found.mode for found in client.list_ext_modes().modes]


def test_roots_are_as_they_are(client: MacpClient) -> None:
    change = RootsWatcher(client).next_change()
    assert change.change.observed_at_unix_ms > 0
    assert list(client.list_roots().roots) == []
