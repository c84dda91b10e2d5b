"""The SDK's agents: event loops that subscribe, react and stop by themselves."""

from __future__ import annotations

import logging
import threading

import pytest
from harness import CANCELLED, PATIENCE, RESOLVED, agent, metadata
from macp_sdk import MODE_DECISION, DecisionSession, MacpClient, MacpTransportError, RetryPolicy, new_session_id
from macp_sdk.agent import GrpcTransportAdapter, InitiatorConfig, Participant

PEOPLE = ["lead", "alice", "bob"]


class Listener(logging.Handler):
    """Notices what the SDK logs."""

    def __init__(self, text: str) -> None:
        super().__init__(logging.DEBUG)
        self.heard = threading.Event()
        self._text = text

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.heard.set()


def run(participant: Participant, outcomes: dict[str, object]) -> threading.Thread:
    """Runs an agent to its end, and keeps how it ended."""

    def loop() -> None:
        try:
            participant.run()
        except Exception as error:
            outcomes[participant.participant_id] = error

    participant.on_terminal(lambda result: outcomes.setdefault(participant.participant_id, result.state))
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    return thread


def participant(client: MacpClient, session_id: str, name: str, **options: object) -> Participant:
    return Participant(
        participant_id=name, session_id=session_id, mode=MODE_DECISION, client=client, auth=agent(name), **options
    )


def test_agents_decide_among_themselves(client: MacpClient) -> None:
    session_id = new_session_id()
    outcomes: dict[str, object] = {}
    transports = [
        GrpcTransportAdapter(client, session_id, auth=agent(name), subscribe_retry=RetryPolicy(max_retries=200))
        for name in ("alice", "bob")
    ]
    listener = Listener("not found yet")
    logger = logging.getLogger("macp_sdk")
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.DEBUG)
    try:
        threads = []
        for name, transport in zip(("alice", "bob"), transports, strict=True):
            voter = participant(client, session_id, name, transport=transport)
            voter.on("Proposal", lambda message, context: context.actions.vote(message.proposal_id, "approve"))
            threads.append(run(voter, outcomes))
        # They come before there is a session, are told NOT_FOUND, and try again (STD-SDK-10).
        assert listener.heard.wait(PATIENCE)
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)

    lead = participant(
        client,
        session_id,
        "lead",
        initiator_config=InitiatorConfig(
            intent="where to",
            participants=PEOPLE,
            ttl_ms=60_000,
            kickoff_message_type="Proposal",
            kickoff_payload={"proposal_id": "sea", "option": "the sea"},
        ),
    )

    def count(_message: object, context: object) -> None:
        if context.projection.vote_totals() == {"sea": 2}:
            context.actions.commit("decision.selected", "holiday", reason="all in favour")

    lead.on("Vote", count)
    threads.append(run(lead, outcomes))
    for thread in threads:
        thread.join(PATIENCE)
    assert outcomes == dict.fromkeys(PEOPLE, "Committed")
    assert metadata(client, session_id, agent("lead")).state == RESOLVED
    # The commitment ends the loop before it is counted; the rest was delivered once each.
    assert [transport.last_sequence for transport in transports] == [4, 4]


def test_an_agent_gives_up_on_a_session_that_never_starts(client: MacpClient) -> None:
    impatient = RetryPolicy(max_retries=1, backoff_base=0.01)
    transport = GrpcTransportAdapter(client, new_session_id(), auth=agent("alice"), subscribe_retry=impatient)
    with pytest.raises(MacpTransportError) as caught:
        list(transport.start())
    assert (caught.value.code, caught.value.macp_code) == ("NOT_FOUND", "SESSION_NOT_FOUND")


def test_an_agent_can_be_stopped_while_it_waits(client: MacpClient) -> None:
    session = DecisionSession(client, auth=agent("lead"))
    session.start(intent="quiet", participants=PEOPLE, ttl_ms=60_000)
    ready = threading.Event()
    waiting = participant(client, session.session_id, "alice")
    waiting.on("SessionStart", lambda _message, _context: ready.set())
    outcomes: dict[str, object] = {}
    thread = run(waiting, outcomes)
    assert ready.wait(PATIENCE)
    waiting.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive() and outcomes == {}
    assert waiting.actions.get_session().metadata.initiator == "lead"
    assert session.cancel(reason="no more").session_state == CANCELLED
