"""Data directories for tests and measurements, on the disks of a host that is set up.

They lie inside the host's own pool, which is btrfs: so their templates are snapshots that cost nothing, and a server on
one of them uses the filesystem as it is.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from atoll.node import inventory
from atoll.node.disks import btrfs
from atoll.node.disks.pool import Pool
from atoll.node.install.layout import Layout

KINDS = ("templates", "sandboxes", "snapshots", "volumes")


def data_dir_create(layout: Layout) -> Path:
    """A new data directory with all the templates of the host."""
    source = Pool.open(layout.data).root
    folder = source / "tests" / secrets.token_hex(4)
    folder.mkdir(parents=True)
    own = Pool.open(folder).root / "templates"
    for manifest in (source / "templates").glob("*.json"):
        btrfs.snapshot_create(manifest.with_suffix(""), own / manifest.stem, read_only=True)
        shutil.copy(manifest, own)
    return folder


def data_dir_remove(folder: Path) -> None:
    """Remove it with all its subvolumes; no server may run on it."""
    inventory.unmount_below(folder)
    for kind in KINDS:
        for entry in (folder / "pool" / kind).iterdir() if (folder / "pool" / kind).exists() else ():
            if btrfs.is_subvolume(entry):
                btrfs.subvolume_delete(entry)
    shutil.rmtree(folder)
