"""A sandbox gets its owner: a new token and environment; the old token is worth nothing."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import errors
from atoll.node.guestlink import GuestLink
from atoll.wire import guest as wire

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
    processes, _ = await guest.link.collect("process.list")
    assert not [one for one in processes if one["tag"] == "of the life before"]
