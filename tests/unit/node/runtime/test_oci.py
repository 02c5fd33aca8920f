"""The configuration of a box holds nothing that a restore could not repeat, and nothing that weakens it."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

from atoll.model.resources import Resources
from atoll.node.runtime import oci
from atoll.node.runtime.base import Bind, Bundle


async def dial(port: int) -> socket.socket:
    raise NotImplementedError(port)


BUNDLE = Bundle(
    box_id="bx1",
    folder=Path("/data/run/boxes/bx1"),
    root=Path("/data/pool/sandboxes/bx1"),
    netns="/run/netns/x",
    cgroup="atoll-x/bx1",
    argv=("/.atoll/runtime/bin/python3", "guest"),
    binds=(Bind(Path("/app"), "/.atoll/app"),),
    resources=Resources(),
    hostname="sandbox",
    guest_port=999,
    dial=dial,
)


def test_binds_are_read_only_unless_said_otherwise() -> None:
    mounts = {mount["destination"]: mount for mount in oci.config(BUNDLE)["mounts"]}
    assert "ro" in mounts["/.atoll/app"]["options"]
    writable = replace(BUNDLE, binds=(Bind(Path("/v"), "/v", read_only=False),))
    mounts = {mount["destination"]: mount for mount in oci.config(writable)["mounts"]}
    assert "rw" in mounts["/v"]["options"]
    assert {"nosuid", "nodev"} <= set(mounts["/v"]["options"])


def test_no_capability_reaches_beyond_the_sentry() -> None:
    granted = set(oci.config(BUNDLE)["process"]["capabilities"]["bounding"])
    assert not granted & {"CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_TIME", "CAP_BPF"}


def test_what_a_restore_compares_is_the_same_for_two_boxes() -> None:
    other = replace(BUNDLE, box_id="bx2", root=Path("/x"), netns="/run/netns/y", cgroup="atoll-x/bx2")
    one, two = oci.config(BUNDLE), oci.config(other)
    assert one["process"] == two["process"]
    assert [mount["destination"] for mount in one["mounts"]] == [mount["destination"] for mount in two["mounts"]]
