"""A sandbox as its driver gets it: the command line of the guest, the mounts, the network, the limits."""

from __future__ import annotations

from pathlib import Path

from atoll.node import guestapp, volumes
from atoll.node.host import Host
from atoll.node.install.layout import loader_name
from atoll.node.journal import Entry
from atoll.node.network import plan
from atoll.node.network.netns import Network
from atoll.node.runtime.base import Bind, Bundle
from atoll.wire import guest

GUEST_PORT = 999  # below 1024: a program that runs as an ordinary user cannot take it if the guest is gone


def bundle_of(host: Host, entry: Entry, network: Network, root: Path) -> Bundle:
    """What the driver needs; built from the journal's entry alone, so that it is the same after a restart."""
    python = guest.runtime_python(guestapp.RUNTIME_MOUNT, loader_name(host.machine))
    argv = guest.boot_argv(
        python,
        guestapp.MOUNT,
        port=GUEST_PORT,
        token_sha256=entry.boot.token_hash,
        peer=plan.OUTER_ADDRESS,
    )
    return Bundle(
        box_id=entry.box_id,
        folder=host.names.box_folder(entry.box_id),
        root=root,
        netns=network.pair.inner_path,
        cgroup=host.names.cgroup(entry.box_id),
        argv=tuple(argv),
        binds=(
            Bind(Path(entry.boot.guest_app), guestapp.MOUNT),
            Bind(Path(entry.boot.runtime_dir), guestapp.RUNTIME_MOUNT),
            *volumes.binds(host.pool, entry.volumes),
        ),
        resources=entry.resources,
        hostname="sandbox",  # the same for all, as a restore demands; each gets its own with its identity
        guest_port=GUEST_PORT,
        dial=network.dial,
    )
