"""The asyncio client: the same server, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from harness import CANCELLED, OPEN, PATIENCE, RESOLVED, SUSPENDED, agent
from macp_sdk import (
    AsyncDecisionSession,
    AsyncHandoffSession,
    AsyncMacpClient,
    AsyncProposalSession,
    AsyncQuorumSession,
    AsyncTaskSession,
    MacpAckError,
    MacpTimeoutError,
    MacpTransportError,
    VotingRules,
    build_decision_policy,
    new_message_id,
    new_session_id,
    trusted_keys_from_jwks,
    verify_receipt,
)

LEAD, ALICE, BOB = map(agent, ["lead", "alice", "bob"])


def with_client(address: str, body: Callable[[AsyncMacpClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with AsyncMacpClient(target=address, allow_insecure=True, default_timeout=PATIENCE, auth=LEAD) as client:
            await asyncio.wait_for(body(client), PATIENCE)

    asyncio.run(run())


def test_a_decision_that_is_watched_while_it_is_made(address: str) -> None:
    async def body(client: AsyncMacpClient) -> None:
        session = AsyncDecisionSession(client)
        watch = client.watch_sessions(auth=ALICE)
        await session.start(intent="async", participants=["alice", "bob"], ttl_ms=60_000)

        async def next_event() -> int:
            async for response in watch:
                if response.event.session.session_id == session.session_id:
                    return response.event.event_type
            raise AssertionError("the watch ended")

        assert await next_event() == 1  # Created.
        async with client.open_stream(auth=BOB) as stream:
            await stream.send_subscribe(session.session_id)
            await session.propose("p1", "one", auth=ALICE)
            await asyncio.gather(*(session.vote("p1", "approve", auth=who) for who in (ALICE, BOB)))
            with pytest.raises(MacpAckError) as caught:
                await session.vote("p1", "reject", auth=BOB)
            assert caught.value.failure.code == "INVALID_ENVELOPE"
            ack = await session.commit(action="decision.selected", authority_scope="all", reason="done")
            assert ack.session_state == RESOLVED
            seen = [await stream.read(timeout=PATIENCE) for _ in range(5)]
            assert [envelope.message_type for envelope in seen] == ["SessionStart", "Proposal", "Vote", "Vote", "Commitment"]
            with pytest.raises(MacpTimeoutError):
                await stream.read(timeout=0.05)
            await stream.close()
            assert await stream.read(timeout=PATIENCE) is None
        assert await next_event() == 2  # Resolved.
        await watch.aclose()

        result = await client.get_decision_receipt(session.session_id)
        keys = trusted_keys_from_jwks(await client.get_receipt_keys())
        assert verify_receipt(result.receipt, keys)["integrity"] == "match"
        candidate = build_decision_policy("policy.candidate", "all", voting=VotingRules("unanimous"))
        told = await client.what_if_replay(session.session_id, candidate)
        assert not told.HasField("first_divergence")

    with_client(address, body)


def test_the_other_modes(address: str) -> None:
    async def body(client: AsyncMacpClient) -> None:
        proposal = AsyncProposalSession(client)
        await proposal.start(intent="price", participants=["lead", "alice"], ttl_ms=60_000)
        await proposal.propose("p1", "90")
        await proposal.accept("p1")
        await proposal.accept("p1", auth=ALICE)

        task = AsyncTaskSession(client)
        await task.start(intent="work", participants=["alice"], ttl_ms=60_000)
        await task.request_task("t1", "report")
        await task.accept_task("t1", auth=ALICE)
        await task.complete_task("t1", output=b"done", auth=ALICE)

        handoff = AsyncHandoffSession(client)
        await handoff.start(intent="shift", participants=["lead", "alice"], ttl_ms=60_000)
        await handoff.offer("h1", "alice")
        await handoff.accept_handoff("h1", auth=ALICE)

        quorum = AsyncQuorumSession(client)
        await quorum.start(intent="funds", participants=["alice", "bob"], ttl_ms=60_000)
        await quorum.request_approval("r1", "pay", required_approvals=1)
        await quorum.approve("r1", auth=BOB)

        ends = [(proposal, "proposal.accepted"), (task, "task.completed"), (handoff, "handoff.accepted")]
        for session, action in [*ends, (quorum, "quorum.approved")]:
            ack = await session.commit(action=action, authority_scope="all", reason="done")
            assert ack.session_state == RESOLVED
            assert (await session.metadata(auth=ALICE)).metadata.state == RESOLVED

    with_client(address, body)


def test_pauses_pages_and_policies(address: str) -> None:
    async def body(client: AsyncMacpClient) -> None:
        session = AsyncDecisionSession(client)
        await session.start(intent="pause", participants=["alice"], ttl_ms=60_000)
        assert (await session.suspend(reason="lunch")).session_state == SUSPENDED
        assert (await session.resume()).session_state == OPEN
        assert (await session.cancel(reason="enough")).session_state == CANCELLED
        listed = [found.session_id for found in await client.list_sessions(page_size=2)]
        assert session.session_id in listed and listed == sorted(listed)
        policy = build_decision_policy(f"policy.async.{new_message_id()}", "async")
        assert (await client.register_policy(policy)).ok
        assert (await client.get_policy(policy.policy_id)).policy_descriptor.policy_id == policy.policy_id
        assert (await client.unregister_policy(policy.policy_id)).ok
        assert (await client.initialize()).selected_protocol_version == "1.0"

    with_client(address, body)


def test_errors_on_a_stream(address: str) -> None:
    async def body(client: AsyncMacpClient) -> None:
        async with client.open_stream(auth=ALICE) as stream:
            await stream.send_subscribe(new_session_id())
            with pytest.raises(MacpTransportError) as caught:
                await stream.read(timeout=PATIENCE)
            assert (caught.value.code, caught.value.macp_code) == ("NOT_FOUND", "SESSION_NOT_FOUND")
        session = AsyncDecisionSession(client)
        await session.start(intent="private", participants=["bob"], ttl_ms=60_000)
        errors: asyncio.Queue[object] = asyncio.Queue()
        async with client.open_stream(auth=ALICE) as stream:
            stream.on_inline_error(errors.put_nowait)
            await stream.send_subscribe(session.session_id)
            assert (await errors.get()).code == "FORBIDDEN"
            await stream.close()
            assert await stream.read(timeout=PATIENCE) is None

    with_client(address, body)
