"""Waking from standby when all of a sandbox's memory went to swap, on swap that is there or that is made for this."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_bare import Bare
from bench_row import Row, p50, timed_ms

from atoll import Sandbox
from atoll.model import limits
from atoll.model.errors import AtollError
from atoll.node import admission
from atoll.node.install import swap
from atoll.testing.server import Server

SIZE_BYTES = limits.GIB
BUDGET = "p50 under 40 ms when all was reclaimed"


def reclaimed(server: Server, sandbox: Sandbox, bare: Bare, rounds: int, call_ms: float) -> Row:
    """The same call as awake; and how much stayed resident, which the kernel would not take."""
    name = "wake from standby, reclaimed"
    wakes, left, before = [], [], []
    with _swap() as kind:
        if not kind:
            return Row(name, float("nan"), call_ms, "ms", BUDGET, False, "this host can have no swap: not measured")
        box = server.box_of(sandbox.id)
        for _ in range(rounds):
            assert sandbox.code.run("int(frame['n'].sum())").text  # all of it is in memory again
            sandbox.standby()
            before.append(bare.resident_mib(box))
            bare.reclaim(box)
            left.append(bare.resident_mib(box))
            wakes.append(timed_ms(lambda: sandbox.files.exists("/etc")))
        kernel_ms = []
        for _ in range(rounds):
            sandbox.standby()
            bare.reclaim(box)
            kernel_ms.append(timed_ms(lambda: sandbox.code.run("len(frame)")))
    note = (
        f"swap: {kind}; resident {p50(before):.0f} -> {p50(left):.0f} MiB; "
        f"when the call is for the kernel {p50(kernel_ms):.0f} ms"
    )
    return Row(name, p50(wakes), call_ms, "ms", BUDGET, p50(wakes) < 40, note)


@contextmanager
def _swap() -> Iterator[str]:
    """What kind of swap there is while this lasts; empty if there can be none."""
    if admission.host_swap_bytes():
        yield "the host's own"
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        data = Path(folder)
        kind = next((one for one in (swap.ZRAM, swap.FILE) if _ensured(data, one)), "")
        try:
            yield kind
        finally:
            if kind:
                swap.remove(data, lambda _: None)


def _ensured(data: Path, kind: str) -> bool:
    try:
        swap.ensure(data, kind, SIZE_BYTES, lambda _: None)
    except AtollError:
        return False
    return True
