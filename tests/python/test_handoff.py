"""Handoff mode: responsibility changes hands, also when the other side stays silent."""

from __future__ import annotations

import contextlib

from harness import RESOLVED, agent, eventually, history, metadata, refused
from macp_sdk import (
    HandoffAcceptanceRules,
    HandoffProjection,
    HandoffSession,
    MacpAckError,
    MacpClient,
    build_envelope,
    build_handoff_policy,
    new_message_id,
    serialize_message,
)
from macp.modes.handoff.v1 import handoff_pb2

DAY, NIGHT, RESERVE = map(agent, ["day", "night", "reserve"])


def started(client: MacpClient, **options: str) -> HandoffSession:
    session = HandoffSession(client, auth=DAY, **options)
    session.start(intent="shift change", participants=["day", "night", "reserve"], ttl_ms=60_000)
    return session


def commit(session: HandoffSession, action: str = "handoff.accepted", **options: object) -> object:
    return session.commit(action=action, authority_scope="pager", reason="shift change", **options)


def test_a_handoff_is_declined_and_accepted_by_the_next(client: MacpClient) -> None:
    session = started(client)
    with refused("FORBIDDEN"):
        session.offer("h1", "day", auth=NIGHT)
    with refused("INVALID_ENVELOPE"):
        session.accept_handoff("h1", auth=NIGHT)
    session.offer("h1", "night", scope="pager")
    with refused("INVALID_ENVELOPE"):
        commit(session)
    with refused("INVALID_ENVELOPE"):
        session.offer("h2", "reserve")  # One offer at a time.
    with refused("FORBIDDEN"):
        session.accept_handoff("h1", auth=RESERVE)
    session.decline("h1", declined_by="night", reason="ill", auth=NIGHT)
    with refused("INVALID_ENVELOPE"):
        session.offer("h2", "night")  # Nobody is asked twice.
    session.offer("h2", "reserve", scope="pager")
    session.add_context("h2", content_type="text/plain", context=b"all quiet")
    with refused("FORBIDDEN"):
        session.add_context("h2", context=b"not mine to tell", auth=RESERVE)
    session.accept_handoff("h2", accepted_by="reserve", auth=RESERVE)
    assert commit(session).session_state == RESOLVED

    replayed = HandoffProjection()
    for envelope in history(client, session.session_id, NIGHT, count=7):
        replayed.apply_envelope(envelope)
    assert replayed.is_declined("h1") and replayed.declined_targets() == ["night"]
    assert replayed.is_accepted("h2") and not replayed.is_implicitly_accepted("h2")
    assert replayed.phase == "Committed" and not replayed.has_anomalies


def test_silence_is_consent_when_the_policy_says_so(client: MacpClient) -> None:
    policy_id = f"policy.silence.{new_message_id()}"
    rules = HandoffAcceptanceRules(implicit_accept_timeout_ms=400)
    assert client.register_policy(build_handoff_policy(policy_id, "silence is consent", acceptance=rules), auth=DAY).ok
    session = started(client, policy_version=policy_id)
    session.offer("h1", "night")

    def committed() -> object | None:
        # Too early is not ready; the accept is due once the time is over, and is recorded before the commitment.
        with contextlib.suppress(MacpAckError):
            return commit(session)
        return None

    assert eventually(committed).session_state == RESOLVED
    start, offer, accept, commitment = history(client, session.session_id, NIGHT, count=4)
    assert (accept.message_id, accept.sender) == ("implicit-accept:h1", "night")
    payload = handoff_pb2.HandoffAcceptPayload.FromString(accept.payload)
    assert payload.implicit and payload.accepted_by == "night"
    assert accept.timestamp_unix_ms >= metadata(client, session.session_id, DAY).started_at_unix_ms + 400
    replayed = HandoffProjection()
    for envelope in (start, offer, accept, commitment):
        replayed.apply_envelope(envelope)
    assert replayed.is_implicitly_accepted("h1")
    activity = metadata(client, session.session_id, DAY).participant_activity
    assert [seen.participant_id for seen in activity] == ["day"]


def test_only_the_runtime_speaks_for_the_silent(client: MacpClient) -> None:
    session = started(client)
    session.offer("h1", "night")
    forged = handoff_pb2.HandoffAcceptPayload(handoff_id="h1", accepted_by="night", implicit=True)
    envelope = build_envelope(
        mode=session.MODE,
        message_type="HandoffAccept",
        session_id=session.session_id,
        sender="night",
        payload=serialize_message(forged),
    )
    with refused("INVALID_ENVELOPE"):
        client.send(envelope, auth=NIGHT)
    forged.implicit = False
    envelope.payload = serialize_message(forged)
    envelope.message_id = "implicit-accept:h1"
    with refused("INVALID_ENVELOPE"):
        client.send(envelope, auth=NIGHT)
