"""Set-up, step by step: check the host, then runsc, pool, templates and the guest's interpreter.

Each step looks first whether its result is there, so that a second run does nothing, and makes it in one final rename,
so that a run can be cut off anywhere and started again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from atoll.node import inventory
from atoll.node.disks.pool import Pool
from atoll.node.install import definitions, gvisor, host, runtime, swap, template_build, workplace
from atoll.node.install.layout import Layout


def run(
    layout: Layout,
    say: Callable[[str], None],
    *,
    template_names: Sequence[str] = definitions.BUILT_IN,
    runsc_url: str = "",
    pool_bytes: int = 0,
    swap_offer: bool = True,
) -> None:
    """Make this host ready for `layout`; raises AtollError with a hint where it cannot go on."""
    host.check()
    with workplace.turn(layout.cache, say):
        gvisor.ensure(layout, runsc_url, say)
        pool = Pool.open(layout.data, pool_bytes)
        say(f"pool: ready at {pool.root}, {pool.free_bytes() >> 30} GiB free")
        template_build.ensure("base", layout, pool, say)
        if not layout.runtime_slot().exists():
            _runtime_build(layout, pool, say)
        say("guest interpreter: ready")
        for name in template_names:
            if name != "base":
                template_build.ensure(name, layout, pool, say)
    swap.restore(layout.data, say)
    if swap_offer and not swap.active_areas():
        say("swap: none, so standby freezes only; `atoll setup --zram SIZE` or `--swap SIZE` makes some")


def remove(layout: Layout, say: Callable[[str], None]) -> None:
    """Take away one server's data; the machine's cache stays, so that the next set-up is quick."""
    host.root_check()
    swap.remove(layout.data, say)
    inventory.unmount_below(layout.data / "run")
    if (layout.data / "pool").exists():
        Pool.open(layout.data).remove()
    workplace.remove(layout.data)
    say(f"removed {layout.data}")


def _runtime_build(layout: Layout, pool: Pool, say: Callable[[str], None]) -> None:
    say("guest interpreter: building, some seconds ...")
    slot = layout.runtime_slot()
    slot.parent.mkdir(parents=True, exist_ok=True)
    with workplace.folder(layout.work_dir(), "runtime") as work:
        runtime.build(pool.template_path("base"), work / "runtime", layout.machine)
        os.rename(work / "runtime", slot)
