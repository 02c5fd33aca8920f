"""The network of a node without a machine: orders are kept, decisions are the real ones, and nothing is connected."""

from __future__ import annotations

import anyio

from atoll.model.errors import NotFound
from atoll.model.policy import Compiled, decide
from atoll.wire.network import Ask, NetworkEvent, NetworkOrder, NetworkStatus, Tested, Trial


class FakeNetwork:
    """The part of a node's port that is about networks."""

    def __init__(self) -> None:
        super().__init__()
        self.networks: dict[str, NetworkOrder] = {}
        self.deaf: dict[str, anyio.Event] = {}
        """Those whose inside is slow to hear of its network."""
        self.told: list[str] = []
        self.asks: dict[str, Ask] = {}
        self.answers: list[tuple[str, bool]] = []
        self.network_events: list[tuple[str, NetworkEvent]] = []

    def network_set(self, sandbox_id: str, order: NetworkOrder) -> None:
        self.networks[sandbox_id] = order

    async def network_tell(self, sandbox_id: str) -> None:
        if sandbox_id in self.deaf:
            await self.deaf[sandbox_id].wait()
        self.told.append(sandbox_id)

    def network_rules(self, sandbox_id: str) -> Compiled:
        return self.networks.get(sandbox_id, NetworkOrder()).rules

    async def network_status(self, sandbox_id: str, after: int) -> NetworkStatus:
        events = tuple(event for target, event in self.network_events if target == sandbox_id and event.number > after)
        return NetworkStatus(asks=tuple(self.asks.values()), events=events)

    async def network_test(self, sandbox_id: str, trial: Trial) -> Tested:
        verdict = decide(self.networks.get(sandbox_id, NetworkOrder()).rules, trial.host, None, trial.port)
        return Tested(verdict.allowed, verdict.reason, verdict.rule, (), False)

    def network_answer(self, sandbox_id: str, ask_id: str, allowed: bool) -> Ask:  # noqa: ARG002 - one for all
        ask = self.asks.pop(ask_id, None)
        if ask is None:
            raise NotFound("this question is not open any more", code="ask_not_found")
        self.answers.append((ask_id, allowed))
        return ask

    async def network_shut(self) -> list[tuple[str, NetworkEvent]]:
        return []

    async def network_event(self) -> tuple[str, NetworkEvent]:
        await anyio.sleep_forever()
        raise AssertionError
