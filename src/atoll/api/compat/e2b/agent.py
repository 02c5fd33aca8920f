"""The rest of E2B's agent: whether the sandbox lives, what it uses, and what its environment is."""

from __future__ import annotations

from typing import Final

from atoll.api.compat.e2b import filesystem, processes, samples, shapes, transfer
from atoll.api.compat.e2b.ask import Ask, Operation


async def health(ask: Ask) -> None:
    """Without a token, as with E2B: ids are not guessable, and a client asks this of a sandbox that may be gone."""
    ask.principal = await ask.control.ingress.tokens.principal(ask.sandbox_id)
    await ask.guest()
    await ask.answer(None, 204)


async def metrics(ask: Ask) -> None:
    sandbox = await ask.control.sandbox_get(ask.principal, ask.sandbox_id)
    found = shapes.metric(sandbox, await samples.now(ask, sandbox))
    names = {
        "ts": "timestampUnix",
        "cpu_count": "cpuCount",
        "cpu_used_pct": "cpuUsedPct",
        "mem_total": "memTotal",
        "mem_used": "memUsed",
        "mem_cache": "memCache",
        "disk_used": "diskUsed",
        "disk_total": "diskTotal",
    }
    await ask.answer({theirs: found[name] for theirs, name in names.items()})


async def envs(ask: Ask) -> None:
    """The environment that the sandbox was made with."""
    found = (await (await ask.guest()).call("environment", {})).get("env")
    pairs = found.items() if isinstance(found, dict) else ()
    await ask.answer({name: value for name, value in pairs if isinstance(name, str) and isinstance(value, str)})


OPERATIONS: Final = (
    Operation("GET", "/health", health),
    Operation("GET", "/envs", envs),
    Operation("GET", "/metrics", metrics),
    *transfer.OPERATIONS,
    *processes.OPERATIONS,
    *filesystem.OPERATIONS,
)
