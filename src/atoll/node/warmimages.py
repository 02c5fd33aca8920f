"""Warm images: a template with its guest already running, its interpreters loaded, and nothing in it that is anybody's.

An image is named after all that went into it, so that a new template, guest, runtime or processor leads to a new image
and the old one is removed. It is made once per data directory, in the background.
"""

from __future__ import annotations

import asyncio
import hashlib

import anyio
import structlog

from atoll.model import limits
from atoll.model.errors import AtollError, NotFound
from atoll.model.resources import Resources
from atoll.model.template import Template
from atoll.node import templates
from atoll.node.host import Host
from atoll.node.images import FORMAT, Image, cpu_features
from atoll.node.instance import Instance
from atoll.node.spares import Spares
from atoll.node.steps import Steps
from atoll.wire import guest

log = structlog.get_logger("atoll.node")

PREFIX = "warm-"


def image_id(host: Host, template: Template) -> str:
    """The name of a template's warm image on this host."""
    parts = (
        str(FORMAT),
        template.key,
        host.guest_app.name,
        str(host.runtime_dir),
        host.runtime_version,
        cpu_features(),
        *template.warm,
    )
    return f"{PREFIX}{template.name}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"


async def ensure(host: Host, spares: Spares, template: Template) -> Image:
    """The warm image of a template, made if need be; older ones of the same template go."""
    wanted = image_id(host, template)
    stale = [
        known for known in host.images.known() if known.startswith(f"{PREFIX}{template.name}-") and known != wanted
    ]
    for known in stale:
        await asyncio.to_thread(host.images.remove, known)
    try:
        image = host.images.find(wanted)
        await asyncio.to_thread(host.images.verify, image)
        return image
    except NotFound:
        pass
    except AtollError as error:
        log.warning("warm image is made again", template=template.name, error=repr(error))
        await asyncio.to_thread(host.images.remove, wanted)
    return await _make(host, spares, template, wanted)


async def _make(host: Host, spares: Spares, template: Template, wanted: str) -> Image:
    slot = spares.slot()
    await spares.ensure(slot)
    entry = host.entry("", template.name, Resources(), slot=slot, hostname="sandbox")
    instance = await Instance.create(host, entry, templates.find(host.pool, template.name), Steps(), env={})
    try:
        async with instance.hung_up_if_it_dies():
            await _warm_up(instance, template)
        image = await instance.capture(wanted)
    finally:
        with anyio.CancelScope(shield=True):
            await instance.demolish()
    log.info("warm image made", template=template.name, image=wanted)
    return image


async def _warm_up(instance: Instance, template: Template) -> None:
    """Start what every sandbox of this template will want: a worker for its user, and its interpreters."""
    await run_once(instance)
    operations = (await instance.guest.call("info")).get("operations", [])
    if "contexts.warm" in operations:
        wanted = {"languages": list(template.warm)} if template.warm else {}
        await instance.guest.call("contexts.warm", {**wanted, "for_copies": True}, timeout_s=limits.WARM_UP_S_MAX)


async def run_once(instance: Instance) -> None:
    """Start a program and look at a folder: the first call after a restore pays for pages that the next find ready."""
    for op, params in (("process.start", {"argv": ["true"], "timeout_s": 30}), ("file.list", {"path": "/"})):
        async with instance.guest.stream(op, params, idle_s=limits.GUEST_REPLY_S_MAX) as stream:
            async for message in stream:
                if isinstance(message, guest.End):
                    break
