"""The pager changes hands: one agent declines, the next accepts. Written with asyncio.

The one who has the pager follows the session and offers it to the next in line until somebody takes it.
"""

from __future__ import annotations

import asyncio
import sys

from macp.modes.handoff.v1 import handoff_pb2
from macp_sdk import AsyncHandoffSession, AsyncMacpClient, AuthConfig

ON_CALL = ["alice", "bob"]


def say(who: str, what: str) -> None:
    print(f"{who:<8} {what}", flush=True)


async def answer(session: AsyncHandoffSession, name: str, is_free: bool) -> None:
    """Waits for an offer to this agent, and answers it."""
    auth = AuthConfig.for_dev_agent(name)
    async with session.open_stream(auth=auth) as stream:
        await stream.send_subscribe(session.session_id)
        async for envelope in stream.responses():
            if envelope.message_type == "Commitment":
                return
            if envelope.message_type != "HandoffOffer":
                continue
            offer = handoff_pb2.HandoffOfferPayload.FromString(envelope.payload)
            if offer.target_participant != name:
                continue
            if is_free:
                say(name, "accepts")
                await session.accept_handoff(offer.handoff_id, auth=auth)
            else:
                say(name, "declines: on a train")
                await session.decline(offer.handoff_id, reason="on a train", auth=auth)


async def hand_over(session: AsyncHandoffSession) -> None:
    """Offers the pager to one after the other, and commits to what came of it."""
    waiting = iter(ON_CALL)

    async def offer() -> None:
        name = next(waiting)
        say("dana", f"offers the pager to {name}")
        await session.offer(f"pager-to-{name}", name, scope="pager", reason="end of shift")
        await session.add_context(f"pager-to-{name}", content_type="text/plain", context=b"one alert, acknowledged")

    async with session.open_stream() as stream:
        await stream.send_subscribe(session.session_id)
        await offer()
        async for envelope in stream.responses():
            if envelope.message_type == "HandoffDecline":
                await offer()
            elif envelope.message_type == "HandoffAccept":
                say("dana", f"hands over to {envelope.sender}")
                await session.commit(action="handoff.accepted", authority_scope="pager", reason="end of shift")
                return


async def main(address: str) -> None:
    dana = AuthConfig.for_dev_agent("dana")
    async with AsyncMacpClient(target=address, allow_insecure=True, default_timeout=30, auth=dana) as client:
        session = AsyncHandoffSession(client)
        await session.start(intent="end of shift", participants=["dana", *ON_CALL], ttl_ms=60_000)
        await asyncio.gather(
            answer(session, "alice", is_free=False), answer(session, "bob", is_free=True), hand_over(session)
        )
        end = (await session.metadata()).metadata
        say("session", f"resolved after {sum(seen.message_count for seen in end.participant_activity)} messages")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
