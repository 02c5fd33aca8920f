"""Webhooks: signed, tried again with growing pauses, given up, visible, and removed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from atoll.control.posting import Post, Posted
from atoll.control.service import Control, Keyring, Query
from atoll.control.store.engine import Store, sqlite_url
from atoll.control.vault import key_new
from atoll.control.webhooks import retry_s
from atoll.model import limits
from atoll.model.errors import InvalidArgument, LimitExceeded, NotFound
from atoll.model.sandbox import SandboxSpec
from atoll.telemetry import Metrics
from atoll.testing.clock import VirtualClock
from atoll.testing.nodes import FakeNode
from tests.unit.control.conftest import ME

pytestmark = pytest.mark.anyio


class Receiver:
    """Takes posts, and answers as it was told."""

    def __init__(self, hooks: Any) -> None:
        self.got: list[Post] = []
        self.answers: list[Posted] = []
        hooks._send = self.send

    async def send(self, post: Post) -> Posted:
        self.got.append(post)
        return self.answers.pop(0) if self.answers else Posted(200)

    async def wait(self, number: int) -> None:
        with anyio.fail_after(5):
            while len(self.got) < number:
                await anyio.sleep(0.005)


@pytest.fixture
def receiver(world: Any) -> Receiver:
    return Receiver(world.control.accounts.webhooks)


async def settled(world: Any, hook: Any, state: str) -> Any:
    with anyio.fail_after(5):
        while True:
            found = await world.control.accounts.webhooks.deliveries(world.me.owner, hook.id)
            if found and all(one.delivery.state == state for one in found):
                return [one.delivery for one in found]
            await anyio.sleep(0.005)


async def test_where_nobody_listens_what_happens_wakes_nobody(world: Any, receiver: Receiver) -> None:
    looks: list[None] = []
    read = world.control.accounts.webhooks._store.read

    async def counted(query: Any, *arguments: Any) -> Any:
        if query.__name__ == "_work":
            looks.append(None)
        return await read(query, *arguments)

    world.control.accounts.webhooks._store.read = counted
    for _ in range(3):
        await world.control.sandbox_create(world.me, SandboxSpec())
    await anyio.wait_all_tasks_blocked()
    assert not looks
    await world.control.accounts.webhooks.create(world.me, "https://example.org/x", ("sandbox.running",))
    await world.control.sandbox_create(world.me, SandboxSpec())
    await receiver.wait(1)


async def test_a_delivery_is_signed_and_says_what_happened(world: Any, receiver: Receiver) -> None:
    hook = await world.control.accounts.webhooks.create(world.me, "https://example.org/x", ("sandbox.running",))
    sandbox, _ = await world.control.sandbox_create(world.me, SandboxSpec())
    await world.control.sandbox_create(world.other, SandboxSpec())
    await receiver.wait(1)
    await settled(world, hook, "delivered")
    (post,) = receiver.got
    body = json.loads(post.body)
    assert (body["type"], body["event"]["target"]) == ("sandbox.running", sandbox.id)
    headers = post.headers
    assert body["id"] == headers["webhook-id"]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + post.body
    key = base64.b64decode(hook.secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def kept_secret(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "atoll.db")) as database:
        return str(database.execute("select secret from webhooks").fetchone()[0])


@asynccontextmanager
async def control_with(folder: Path, keys: bytes) -> AsyncIterator[Control]:
    node = FakeNode()
    async with node.running(), Store.open(sqlite_url(folder / "atoll.db")) as store:
        keyring = Keyring(secrets=keys)
        async with Control.open(store, node, VirtualClock(), Metrics(), folder / "key", keyring=keyring) as control:
            yield control


async def test_what_signs_is_encrypted_in_the_database_and_follows_a_change_of_keys(tmp_path: Path) -> None:
    old, new = key_new(), key_new()
    async with control_with(tmp_path, old) as control:
        hook = await control.accounts.webhooks.create(ME, "https://example.org/x", ())
    sealed = kept_secret(tmp_path)
    assert hook.secret.startswith("whsec_")
    async with control_with(tmp_path, new + old) as control:
        assert (await control.accounts.webhooks.every("default"))[0].secret == hook.secret
    assert kept_secret(tmp_path) != sealed
    async with control_with(tmp_path, new) as control:
        assert (await control.accounts.webhooks.every("default"))[0].secret == hook.secret
    body = hook.secret.removeprefix("whsec_").encode()
    assert not any(body in path.read_bytes() for path in tmp_path.glob("atoll.db*"))


async def test_what_an_older_version_kept_in_the_clear_is_encrypted_at_start(tmp_path: Path) -> None:
    key = key_new()
    async with control_with(tmp_path, key) as control:
        hook = await control.accounts.webhooks.create(ME, "https://example.org/x", ())
    with closing(sqlite3.connect(tmp_path / "atoll.db")) as database, database:
        database.execute("update webhooks set secret = ?", (hook.secret,))
    async with control_with(tmp_path, key) as control:
        assert (await control.accounts.webhooks.every("default"))[0].secret == hook.secret
    body = hook.secret.removeprefix("whsec_").encode()
    assert not any(body in path.read_bytes() for path in tmp_path.glob("atoll.db*"))


async def test_without_its_key_nothing_is_sent_unsigned(tmp_path: Path) -> None:
    async with control_with(tmp_path, key_new()) as control:
        hook = await control.accounts.webhooks.create(ME, "https://example.org/x", ("sandbox.running",))
    async with control_with(tmp_path, key_new()) as control:
        webhooks = control.accounts.webhooks
        receiver = Receiver(webhooks)
        await control.sandbox_create(ME, SandboxSpec())
        with anyio.fail_after(5):
            while not (found := await webhooks.deliveries("default", hook.id)) or not found[0].delivery.error:
                await anyio.sleep(0.005)
        assert "cannot be decrypted" in found[0].delivery.error
        assert receiver.got == []


async def test_what_fails_is_tried_again_later_and_then_given_up(world: Any, receiver: Receiver) -> None:
    hook = await world.control.accounts.webhooks.create(world.me, "https://example.org/x", ("sandbox.running",))
    receiver.answers = [Posted(500, "status 500")] * limits.WEBHOOK_ATTEMPTS_MAX
    await world.control.sandbox_create(world.me, SandboxSpec(timeout_s=10**6))
    for attempt in range(1, limits.WEBHOOK_ATTEMPTS_MAX + 1):
        await receiver.wait(attempt)
        with anyio.fail_after(5):  # until the outcome is on record, so that time moves on after it
            while (await world.control.accounts.webhooks.deliveries("default", hook.id))[0].delivery.error == "":
                await anyio.sleep(0.005)
        await anyio.sleep(0.02)
        assert len(receiver.got) == attempt
        await world.clock.advance(retry_s(attempt))
    (delivery,) = await settled(world, hook, "failed")
    assert (delivery.attempts, delivery.status, delivery.error) == (limits.WEBHOOK_ATTEMPTS_MAX, 500, "status 500")


async def test_a_receiver_that_hangs_holds_up_only_itself(
    world: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much waits for it, and however long: what others are sent goes out meanwhile, and the rest follows."""
    monkeypatch.setattr(limits, "WEBHOOK_AT_ONCE_MAX", 2)
    monkeypatch.setattr(limits, "WEBHOOKS_AT_ONCE_MAX", 3)
    hooks = world.control.accounts.webhooks
    answers = anyio.Event()
    hanging: list[str] = []

    async def send(post: Post) -> Posted:
        if post.url.endswith("/hangs"):
            hanging.append(post.headers["webhook-id"])
            await answers.wait()
        return await receiver.send(post)

    hooks._send = send
    slow = await hooks.create(world.me, "https://example.org/hangs", ("sandbox.running",))
    for _ in range(5):
        await world.control.sandbox_create(world.me, SandboxSpec())
    with anyio.fail_after(5):
        while len(hanging) < 2:
            await anyio.sleep(0.005)
    hook = await hooks.create(world.me, "https://example.org/y", ("sandbox.killed",))
    for sandbox in (await world.control.sandbox_list(world.me, Query(), None, 10)).items[:3]:
        await world.control.sandbox_kill(world.me, sandbox.id)
    await settled(world, hook, "delivered")
    assert (len(receiver.got), len(hanging)) == (3, 2)
    answers.set()
    await settled(world, slow, "delivered")
    assert len(set(hanging)) == len(hanging) == 5


async def test_a_refused_address_is_not_tried_again(world: Any, receiver: Receiver) -> None:
    hook = await world.control.accounts.webhooks.create(world.me, "http://127.0.0.1/x", ("sandbox.running",))
    receiver.answers = [Posted(None, "private", final=True)]
    await world.control.sandbox_create(world.me, SandboxSpec())
    (delivery,) = await settled(world, hook, "failed")
    assert delivery.attempts == 1


async def test_what_is_anothers_does_not_exist(world: Any) -> None:
    hooks = world.control.accounts.webhooks
    hook = await hooks.create(world.me, "https://example.org/x", ())
    for owner, hook_id in (("other", hook.id), ("default", "wh" + "0" * 36), ("default", "x\0")):
        with pytest.raises(NotFound):
            await hooks.deliveries(owner, hook_id)
    with pytest.raises(NotFound):
        await hooks.remove(world.other, hook.id)
    await hooks.remove(world.me, hook.id)
    assert await hooks.every("default") == []


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://u:p@x/", "http://x:99999/", "http://é/", "x" * 3000])
async def test_what_is_no_address_is_refused(world: Any, url: str) -> None:
    with pytest.raises(InvalidArgument):
        await world.control.accounts.webhooks.create(world.me, url, ())


async def test_webhooks_are_bounded_and_hear_of_sandboxes_only(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WEBHOOKS_PER_TENANT_MAX", 1)
    hooks = world.control.accounts.webhooks
    with pytest.raises(InvalidArgument):
        await hooks.create(world.me, "https://example.org/x", ("key.created",))
    await hooks.create(world.me, "https://example.org/x", ())
    with pytest.raises(LimitExceeded):
        await hooks.create(world.me, "https://example.org/x", ())


def test_pauses_grow_to_a_bound() -> None:
    pauses = [retry_s(attempt) for attempt in range(1, 30)]
    assert pauses == sorted(pauses)
    assert pauses[0] == limits.WEBHOOK_RETRY_S_MIN
    assert pauses[-1] == limits.WEBHOOK_RETRY_S_MAX


async def test_a_webhook_that_is_changed_or_switched_off_follows_at_once(world: Any, receiver: Receiver) -> None:
    hooks = world.control.accounts.webhooks
    hook = await hooks.create(world.me, "https://example.org/x", ("sandbox.running",), name="mine")
    await hooks.change(world.me, replace(hook, enabled=False))
    await world.control.sandbox_create(world.me, SandboxSpec())
    await hooks.change(world.me, replace(hook, url="https://example.org/y"))
    await world.control.sandbox_create(world.me, SandboxSpec())
    await settled(world, hook, "delivered")
    assert [post.url for post in receiver.got] == ["https://example.org/y"]
    found = await hooks.get(world.me.owner, hook.id)
    assert (found.name, found.secret, found.enabled) == ("mine", hook.secret, True)
    with pytest.raises(NotFound):
        await hooks.change(world.other, hook)
    for wrong in (replace(hook, name="x" * 200), replace(hook, secret="own"), replace(hook, url="nowhere")):
        with pytest.raises(InvalidArgument):
            await hooks.change(world.me, wrong)


async def test_a_form_that_nobody_speaks_waits_and_another_tells_in_its_own_words(
    world: Any, receiver: Receiver
) -> None:
    hooks = world.control.accounts.webhooks
    waits = await hooks.create(world.me, "https://example.org/x", ("sandbox.running",), form="lost")
    hooks.forms["theirs"] = lambda hook, *_: Post(hook.url, {}, b"in their words")
    hook = await hooks.create(world.me, "https://example.org/y", ("sandbox.running",), form="theirs", secret="own")
    await world.control.sandbox_create(world.me, SandboxSpec())
    await settled(world, hook, "delivered")
    assert [post.body for post in receiver.got] == [b"in their words"]
    (delivery,) = await settled(world, waits, "pending")
    assert delivery.status is None
