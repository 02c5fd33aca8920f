"""The part of a node's port that is about networks: what each sandbox may reach, what it did, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.model.policy import Compiled
from atoll.node.host import Host
from atoll.node.instance import Instance
from atoll.node.introductions import Introductions
from atoll.wire.network import Ask, NetworkEvent, NetworkOrder, NetworkStatus, Tested, Trial


class NetworkPort:
    """A node's words about networks; the node itself adds the rest."""

    _host: Host
    _instances: Mapping[str, Instance]
    _introductions: Introductions

    def network_set(self, sandbox_id: str, order: NetworkOrder) -> None:
        self._host.egress.set(sandbox_id, order)

    async def network_tell(self, sandbox_id: str) -> None:
        await self._introductions.wait(sandbox_id)
        instance = self._instances.get(sandbox_id)
        if instance is not None:
            await instance.network_tell()

    def network_rules(self, sandbox_id: str) -> Compiled:
        return self._host.egress.order(sandbox_id).rules

    async def network_status(self, sandbox_id: str, after: int) -> NetworkStatus:
        await self._introductions.wait(sandbox_id)
        return self._host.egress.status(sandbox_id, after)

    async def network_test(self, sandbox_id: str, trial: Trial) -> Tested:
        await self._introductions.wait(sandbox_id)
        return await self._host.egress.test(sandbox_id, trial)

    def network_answer(self, sandbox_id: str, ask_id: str, allowed: bool) -> Ask:
        return self._host.egress.answer(sandbox_id, ask_id, allowed)

    async def network_event(self) -> tuple[str, NetworkEvent]:
        return await self._host.egress.wait_event()

    async def network_shut(self) -> list[tuple[str, NetworkEvent]]:
        return await self._host.egress.shut()

    def secret_values(self, sandbox_id: str) -> tuple[bytes, ...]:
        """What must be covered in the output of a sandbox's programs."""
        return self._host.egress.values(sandbox_id)
