"""Proposal mode: offers, counter-offers, and who has accepted which."""

from __future__ import annotations

from harness import OPEN, RESOLVED, agent, history, refused
from macp_sdk import MacpClient, ProposalProjection, ProposalSession

BUYER, SELLER, MALLORY = map(agent, ["buyer", "seller", "mallory"])


def started(client: MacpClient) -> ProposalSession:
    session = ProposalSession(client, auth=BUYER)
    ack = session.start(intent="agree on a price", participants=["buyer", "seller"], ttl_ms=60_000)
    assert ack.session_state == OPEN
    return session


def commit(session: ProposalSession, action: str = "proposal.accepted", **options: object) -> object:
    return session.commit(action=action, authority_scope="purchase", reason="both agree", **options)


def test_both_agree_on_a_counter_proposal(client: MacpClient) -> None:
    session = started(client)
    session.propose("p1", "90 euros", summary="final", tags=["price"])
    session.counter_propose("p2", "p1", "95 euros", auth=SELLER)
    session.accept("p1")
    session.accept("p2", auth=SELLER)
    with refused("INVALID_ENVELOPE"):
        commit(session)  # They accepted different ones.
    session.accept("p2", reason="fine")
    with refused("FORBIDDEN"):
        commit(session, auth=SELLER)
    assert commit(session).session_state == RESOLVED

    replayed = ProposalProjection()
    for envelope in history(client, session.session_id, SELLER, count=7):
        replayed.apply_envelope(envelope)
    assert replayed.accepted_proposal() == "p2"
    assert replayed.proposals["p2"].supersedes == "p1"
    assert replayed.proposals["p1"].tags == ["price"]
    assert replayed.phase == "Committed"


def test_a_final_no(client: MacpClient) -> None:
    session = started(client)
    session.propose("p1", "90 euros")
    session.reject("p1", terminal=True, reason="too little", auth=SELLER)
    assert session.proposal_projection.is_terminally_rejected("p1")
    assert commit(session, "proposal.rejected").session_state == RESOLVED
    assert session.projection.is_positive_outcome is False


def test_what_is_withdrawn_cannot_be_accepted(client: MacpClient) -> None:
    session = started(client)
    session.propose("p1", "90 euros")
    with refused("FORBIDDEN"):
        session.withdraw("p1", auth=SELLER)
    with refused("FORBIDDEN"):
        session.accept("p1", auth=MALLORY)
    with refused("INVALID_ENVELOPE"):
        session.accept("p2", auth=SELLER)
    with refused("INVALID_ENVELOPE"):
        session.counter_propose("p3", "p2", "there is no p2", auth=SELLER)
    session.withdraw("p1", reason="changed my mind")
    with refused("INVALID_ENVELOPE"):
        session.accept("p1", auth=SELLER)
    with refused("INVALID_ENVELOPE"):
        session.withdraw("p1")
