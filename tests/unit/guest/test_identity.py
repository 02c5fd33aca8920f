"""A sandbox gets its owner: a new token and environment; the old token is worth nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.guest.failure import Refused
from atoll.guest.identity import names_take
from atoll.model import errors
from atoll.node.guestlink import GuestLink
from atoll.wire import guest as wire
from tests.listed import listed

pytestmark = pytest.mark.anyio


async def test_the_new_token_counts_and_the_old_one_does_not(guest: Any) -> None:
    new = GuestLink(guest.connect, "new-token")
    await guest.link.call("identity", {"token_hash": wire.token_hash("new-token"), "env": {"FROM_IDENTITY": "1"}})
    try:
        with pytest.raises(errors.GuestFailed):
            await guest.link.call("ping")
        async with new.stream("process.start", {"cmd": "echo $FROM_IDENTITY"}) as stream:
            output = [message.payload async for message in stream if isinstance(message, wire.Data)]
        assert output == [b"1\n"]
        assert await new.call("environment") == {"env": {"FROM_IDENTITY": "1"}}
    finally:
        await new.call("identity", {"token_hash": wire.token_hash(guest.token), "env": {}})
    assert await guest.link.call("ping") == {}


@pytest.mark.parametrize(
    "params",
    [
        {"token_hash": "short"},
        {"hostname": "-x"},
        {"hostname": "a b"},
        {"machine_id": "x"},
        {"env": {"A": 1}},
        {"processes_max": -1},
    ],
)
async def test_nothing_changes_when_one_value_is_wrong(link: GuestLink, params: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        await link.call("identity", params)
    assert await link.call("ping") == {}


async def test_what_is_done_after_the_answer_is_there_for_the_next_operation(guest: Any) -> None:
    async with guest.link.stream("process.start", {"argv": ["true"], "tag": "of the life before"}) as stream:
        async for _ in stream:
            pass
    await guest.link.call("identity", {})
    processes, _ = await listed(guest.link, "process.list")
    assert not [one for one in processes if one["tag"] == "of the life before"]


def no_space(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("call", "instead"),
    [("write", no_space), ("write", lambda *_: 0), ("pread", lambda *_: b"\0" * 33), ("rename", no_space)],
)
def test_a_copy_that_cannot_have_an_id_of_its_own_is_refused(
    call: str, instead: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was there is whole: an id that is cut to nothing is no better than another's."""
    file = tmp_path / "machine-id"
    file.write_text("of before")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, instead)
        with pytest.raises(Refused) as caught:
            names_take("", "a" * 32, str(tmp_path))
    assert caught.value.code == "reseed_failed"
    assert file.read_text() == "of before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_in_the_place_of_the_id_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "machine-id").symlink_to("elsewhere")
    names_take("", "a" * 32, str(tmp_path))
    assert (tmp_path / "machine-id").read_text() == "a" * 32 + "\n"
    assert not (tmp_path / "machine-id").is_symlink()
    assert (tmp_path / "elsewhere").read_text() == "kept"
