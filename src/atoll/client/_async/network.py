"""The network of a sandbox: what it may reach, what it did there, what it waits for, and which secrets it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._policies import PolicyLike, policy_body
from atoll.wire.public.policies import (
    AskAnswer,
    AskView,
    NetworkView,
    PolicyTest,
    PolicyTested,
    PolicyView,
    SandboxSecrets,
)


class AsyncNetwork:
    """`sandbox.network`."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        self._transport = transport
        self._path = path

    async def policy(self) -> PolicyView:
        """What the sandbox may reach now.

        Example:
            print((await sb.network.policy()).allow)
        """
        return await self._transport.call("GET", f"{self._path}/policy", PolicyView)

    async def set_policy(self, policy: PolicyLike) -> PolicyView:
        """Change what it may reach, at once: a list of rules, "nothing", "public", or all fields of a policy.

        Example:
            await sb.network.set_policy(["example.org", "*.example.net:443"])
            await sb.network.set_policy({"mode": "public", "deny": ["bad.example"]})
        """
        return await self._transport.call("PUT", f"{self._path}/policy", PolicyView, policy_body(policy))

    async def set_secrets(self, names: Sequence[str]) -> PolicyView:
        """Change which secrets it has. Programs that are started from now on see their placeholders.

        Example:
            await sb.network.set_secrets(["API_TOKEN"])
        """
        return await self._transport.call(
            "PUT", f"{self._path}/secrets", PolicyView, SandboxSecrets(secrets=list(names))
        )

    async def test(self, url: str, *, method: str = "GET") -> PolicyTested:
        """What would happen to a request (`https://example.org/x`) or a connection (`example.org:22`), and why.

        Example:
            print((await sb.network.test("https://example.org")).allowed)
        """
        body = PolicyTest(url=url, method=method)
        return await self._transport.call("POST", f"{self._path}/policy/test", PolicyTested, body)

    async def status(self, *, after: int = 0) -> NetworkView:
        """Counters, open questions, and what happened after the event of that number.

        Example:
            for event in (await sb.network.status()).events:
                print(event.name, event.allowed, event.reason)
        """
        where = exchange.query(after=after)
        return await self._transport.call("GET", f"{self._path}/network{where}", NetworkView)

    async def answer(self, ask_id: str, answer: Literal["once", "always", "refuse"]) -> AskView:
        """Answer a connection that waits for a person's word.

        Example:
            for ask in (await sb.network.status()).asks:
                await sb.network.answer(ask.id, "once")
        """
        path = f"{self._path}/network/asks/{exchange.segment(ask_id)}"
        return await self._transport.call("POST", path, AskView, AskAnswer(answer=answer))
