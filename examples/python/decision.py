"""Three agents decide where to deploy, and whoever asked gets a receipt for it.

Each agent runs in a thread of its own and reacts to what it sees in the session: alice proposes, bob and carol vote.
The lead commits once both have voted; whether that is enough is for the policy to say.
"""

from __future__ import annotations

import sys
import threading

from macp_sdk import (
    MODE_DECISION,
    AuthConfig,
    DecisionSession,
    MacpClient,
    VotingRules,
    build_decision_policy,
    trusted_keys_from_jwks,
    verify_receipt,
)
from macp_sdk.agent import HandlerContext, IncomingMessage, Participant

REASONS = {"bob": "close to our users", "carol": "data stays in the union"}
POLICY = build_decision_policy(
    "policy.example.two-thirds",
    "two thirds of the votes decide",
    voting=VotingRules("supermajority", threshold=0.66),
)


def say(who: str, what: str) -> None:
    # One write for the whole line, so that two agents do not share one.
    print(f"{who:<8} {what}\n", end="", flush=True)


def propose(_message: IncomingMessage, context: HandlerContext) -> None:
    say(context.participant, "proposes Frankfurt")
    context.actions.propose("eu-central", "Frankfurt", rationale="everything we need is there")


def vote(message: IncomingMessage, context: HandlerContext) -> None:
    reason = REASONS[context.participant]
    say(context.participant, f"approves: {reason}")
    context.actions.vote(message.proposal_id, "APPROVE", reason=reason)


def decide(client: MacpClient) -> DecisionSession:
    session = DecisionSession(client, policy_version=POLICY.policy_id, auth=AuthConfig.for_dev_agent("lead"))

    def participant(name: str) -> Participant:
        auth = AuthConfig.for_dev_agent(name)
        return Participant(
            participant_id=name, session_id=session.session_id, mode=MODE_DECISION, client=client, auth=auth
        )

    def commit(_message: IncomingMessage, context: HandlerContext) -> None:
        if len(context.projection.votes["eu-central"]) == len(REASONS):
            say("lead", "decides: decision.selected")
            session.commit(action="decision.selected", authority_scope="deployment", reason="both approved")

    agents = [
        participant("lead").on("Vote", commit),
        participant("alice").on("SessionStart", propose),
        participant("bob").on("Proposal", vote),
        participant("carol").on("Proposal", vote),
    ]
    say("lead", "asks: where do we deploy?")
    session.start(intent="where do we deploy?", participants=["alice", "bob", "carol"], ttl_ms=60_000)
    # Each runs until it sees the commitment. The history is replayed first, so none comes too late.
    threads = [threading.Thread(target=agent.run) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return session


def main(address: str) -> None:
    with MacpClient(target=address, allow_insecure=True, default_timeout=30) as client:
        response = client.register_policy(POLICY, auth=AuthConfig.for_dev_agent("lead"))
        if not response.ok and "already registered" not in response.error:
            sys.exit(f"the policy was refused: {response.error}")
        session = decide(client)

        receipt = client.get_decision_receipt(session.session_id, auth=session.auth).receipt
        keys = trusted_keys_from_jwks(client.get_receipt_keys())
        verdict = verify_receipt(receipt, keys)["verdict"]
        say("receipt", f"{receipt['commitment_hash'][:19]}… by {receipt['issuer']}, {verdict}")
        if verdict not in ("attested", "integrity_only"):
            sys.exit("the receipt does not hold")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051")
