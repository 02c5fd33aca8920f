"""What a guest is told about who it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from atoll.model.sandbox import OWN_ID
from atoll.node.journal import Entry
from atoll.wire import guest


def identity_of(entry: Entry, env: Mapping[str, str]) -> dict[str, Any]:
    """What makes a sandbox itself. The machine id follows from the sandbox's id, so it is the same after a restart."""
    return {
        "token_hash": guest.token_hash(entry.token),
        "hostname": entry.hostname,
        "machine_id": hashlib.sha256((entry.sandbox_id or entry.box_id).encode()).hexdigest()[:32],
        "processes_max": entry.resources.pids,
        "env": {name: entry.sandbox_id if value == OWN_ID else value for name, value in env.items()},
    }
