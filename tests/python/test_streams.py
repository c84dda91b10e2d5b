"""Streams: watching a session from any point of its history, and speaking in it."""

from __future__ import annotations

import queue

import pytest
from harness import PATIENCE, RESOLVED, agent, history, metadata
from macp.modes.decision.v1 import decision_pb2
from macp.v1 import core_pb2, envelope_pb2
from macp_sdk import (
    DecisionSession,
    MacpClient,
    MacpStream,
    MacpTransportError,
    VotingRules,
    build_commitment_payload,
    build_decision_policy,
    build_envelope,
    build_session_start_payload,
    new_message_id,
    new_session_id,
    parse_error_details,
    serialize_message,
)

COORDINATOR, ALICE, BOB, MALLORY = map(agent, ["coordinator", "alice", "bob", "mallory"])


def started(client: MacpClient, **options: str) -> DecisionSession:
    session = DecisionSession(client, auth=COORDINATOR, **options)
    session.start(intent="stream", participants=["alice", "bob"], ttl_ms=60_000)
    return session


def commit(session: DecisionSession) -> envelope_pb2.Ack:
    return session.commit(action="decision.selected", authority_scope="all", reason="done")


def read(stream: MacpStream) -> envelope_pb2.Envelope:
    envelope = stream.read(timeout=PATIENCE)
    assert envelope is not None, "the stream ended"
    return envelope


def inline_errors(stream: MacpStream) -> queue.Queue[core_pb2.MACPError]:
    errors: queue.Queue[core_pb2.MACPError] = queue.Queue()
    stream.on_inline_error(errors.put)
    return errors


def said(session: DecisionSession, sender: str, message_type: str, payload: object) -> envelope_pb2.Envelope:
    """An envelope for a stream, which unlike the helpers of a session leaves the sending to us."""
    return build_envelope(
        mode=session.MODE,
        message_type=message_type,
        session_id=session.session_id,
        sender=sender,
        payload=serialize_message(payload),
    )


def start_payload() -> core_pb2.SessionStartPayload:
    return build_session_start_payload(intent="stream", participants=["alice"], ttl_ms=60_000)


def commitment(policy_version: str = "") -> core_pb2.CommitmentPayload:
    return build_commitment_payload(
        action="decision.selected", authority_scope="all", reason="done", policy_version=policy_version
    )


VOTE = decision_pb2.VotePayload(proposal_id="p1", vote="APPROVE")


def ended_with(stream: MacpStream) -> tuple[str | None, str | None]:
    """How a stream failed: its status and its code."""
    with pytest.raises(MacpTransportError) as caught:
        while stream.read(timeout=PATIENCE) is not None:
            pass
    return caught.value.code, caught.value.macp_code


def test_history_first_and_then_live(client: MacpClient) -> None:
    session = started(client)
    session.propose("p1", "one", auth=ALICE)
    stream = client.open_stream(auth=BOB)
    stream.send_subscribe(session.session_id)
    assert [read(stream).message_type for _ in range(2)] == ["SessionStart", "Proposal"]
    session.vote("p1", "approve", auth=ALICE)
    session.vote("p1", "reject", auth=BOB)
    commit(session)
    live = [read(stream) for _ in range(3)]
    assert [(envelope.sender, envelope.message_type) for envelope in live] == [
        ("alice", "Vote"),
        ("bob", "Vote"),
        ("coordinator", "Commitment"),
    ]
    # What is delivered is what was sent, to the byte (STD-STRM-9).
    assert live == session.projection.transcript[2:]
    # The stream outlives the session and ends when the client is done (STD-STRM-11).
    stream.close()
    assert stream.read(timeout=PATIENCE) is None


@pytest.mark.parametrize(("after", "expected"), [(0, 4), (1, 3), (3, 1), (4, 0), (99, 0)])
def test_resuming_after_an_ordinal(client: MacpClient, after: int, expected: int) -> None:
    session = started(client)
    session.propose("p1", "one", auth=ALICE)
    # Bookkeeping takes no ordinal (STD-CORE-37).
    session.suspend(reason="lunch")
    session.resume()
    session.vote("p1", "approve", auth=ALICE)
    commit(session)
    sent = session.projection.transcript
    assert history(client, session.session_id, BOB, count=expected, after=after) == sent[after:]


def test_subscribing_twice_replays_twice(client: MacpClient) -> None:
    session = started(client)
    session.propose("p1", "one", auth=ALICE)
    stream = client.open_stream(auth=ALICE)
    stream.send_subscribe(session.session_id, after_sequence=1)
    assert read(stream).message_type == "Proposal"
    stream.send_subscribe(session.session_id)
    assert [read(stream).message_type for _ in range(2)] == ["SessionStart", "Proposal"]
    session.vote("p1", "approve", auth=BOB)
    assert read(stream).message_type == "Vote"
    stream.close()
    assert stream.read(timeout=PATIENCE) is None


def test_there_is_no_such_session(client: MacpClient) -> None:
    stream = client.open_stream(auth=ALICE)
    stream.send_subscribe(new_session_id())
    assert ended_with(stream) == ("NOT_FOUND", "SESSION_NOT_FOUND")


def test_outsiders_are_told_in_line_and_may_try_elsewhere(client: MacpClient) -> None:
    theirs, own = started(client), DecisionSession(client, auth=MALLORY)
    own.start(intent="mine", participants=["mallory"], ttl_ms=60_000)
    stream = client.open_stream(auth=MALLORY)
    errors = inline_errors(stream)
    stream.send_subscribe(theirs.session_id)
    stream.send_subscribe(own.session_id)
    assert read(stream).session_id == own.session_id
    assert errors.get(timeout=PATIENCE).code == "FORBIDDEN"
    stream.close()
    assert stream.read(timeout=PATIENCE) is None


def test_one_stream_is_for_one_session(client: MacpClient) -> None:
    first, second = started(client), started(client)
    stream = client.open_stream(auth=ALICE)
    stream.send_subscribe(first.session_id)
    assert read(stream).message_type == "SessionStart"
    stream.send_subscribe(second.session_id)
    assert ended_with(stream) == ("INVALID_ARGUMENT", "INVALID_ENVELOPE")


def test_a_whole_session_over_one_stream(client: MacpClient) -> None:
    session = DecisionSession(client, auth=ALICE)
    envelopes = [
        said(session, "alice", "SessionStart", start_payload()),
        said(session, "alice", "Proposal", decision_pb2.ProposalPayload(proposal_id="p1", option="one")),
        said(session, "alice", "Vote", VOTE),
        said(session, "alice", "Commitment", commitment()),
    ]
    stream = session.open_stream()
    for envelope in envelopes:
        stream.send(envelope)
    # There are no acknowledgements; what was accepted comes back in order (STD-STRM-5).
    assert [read(stream) for _ in envelopes] == envelopes
    assert metadata(client, session.session_id, ALICE).state == RESOLVED
    stream.close()
    assert stream.read(timeout=PATIENCE) is None


def test_refusals_come_in_line_and_the_stream_goes_on(client: MacpClient) -> None:
    policy = build_decision_policy(f"policy.stream.{new_message_id()}", "majority", voting=VotingRules("majority"))
    assert client.register_policy(policy, auth=COORDINATOR).ok
    session = started(client, policy_version=policy.policy_id)
    stream = client.open_stream(auth=COORDINATOR)
    errors = inline_errors(stream)
    wrong = said(session, "coordinator", "Vote", VOTE)
    stream.send(wrong)
    error = errors.get(timeout=PATIENCE)
    assert (error.code, error.session_id, error.message_id) == ("FORBIDDEN", session.session_id, wrong.message_id)

    session.propose("p1", "one", auth=ALICE)
    # Binding by speaking starts here and now; what was before is not replayed (STD-STRM-6).
    assert read(stream).message_type == "Proposal"
    early = said(session, "coordinator", "Commitment", commitment())
    stream.send(early)
    error = errors.get(timeout=PATIENCE)
    assert (error.code, error.message_id) == ("POLICY_DENIED", early.message_id)
    assert [denial.code for denial in parse_error_details(error.details).denials] == ["no_votes"]

    session.vote("p1", "approve", auth=BOB)
    assert read(stream).message_type == "Vote"
    stream.send(said(session, "coordinator", "Commitment", commitment()))
    assert read(stream).message_type == "Commitment"
    stream.close()
    assert stream.read(timeout=PATIENCE) is None
    assert errors.empty()


def test_a_duplicate_says_nothing(client: MacpClient) -> None:
    session = started(client)
    session.propose("p1", "one", auth=ALICE)
    stream = client.open_stream(auth=ALICE)
    errors = inline_errors(stream)
    vote = said(session, "alice", "Vote", VOTE)
    stream.send(vote)
    assert read(stream) == vote
    stream.send(vote)
    stream.close()
    assert stream.read(timeout=PATIENCE) is None
    assert errors.empty()


def test_nobody_speaks_in_the_name_of_another(client: MacpClient) -> None:
    session = started(client)
    stream = client.open_stream(auth=MALLORY)
    stream.send(said(session, "alice", "Vote", VOTE))
    assert ended_with(stream) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


def test_an_id_that_is_taken_ends_the_stream(client: MacpClient) -> None:
    session = started(client)
    again = said(session, "bob", "SessionStart", start_payload())
    stream = client.open_stream(auth=BOB)
    stream.send(again)
    assert ended_with(stream) == ("ALREADY_EXISTS", "SESSION_ALREADY_EXISTS")
