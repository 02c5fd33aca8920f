"""Contexts of a real guest: kept through a change of identity, bounded in number, started in advance."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from atoll.model import limits
from atoll.model.errors import InvalidArgument, LimitExceeded, NotFound
from atoll.node.guestlink import GuestLink
from atoll.wire import framing
from atoll.wire import guest as wire
from tests.listed import listed

pytestmark = pytest.mark.anyio


async def run(link: GuestLink, code: str, **params: Any) -> tuple[bytes, dict[str, Any]]:
    output = b""
    async with link.stream("contexts.run", {"context": "bash", "code": code, **params}) as stream:
        async for message in stream:
            if isinstance(message, wire.Data) and message.kind == framing.STDOUT:
                output += message.payload
            elif isinstance(message, wire.End):
                return output, message.value
    raise AssertionError("no end")


async def test_a_new_identity_keeps_state_and_brings_its_environment(link: GuestLink) -> None:
    warm = (await link.call("contexts.warm", {"languages": ["bash", "cobol"]}))["contexts"]
    assert warm["bash"] == "ready"
    assert "no language 'cobol'" in warm["cobol"]
    await run(link, "kept=1; RANDOM=7; first=$RANDOM; RANDOM=7")
    await link.call("identity", {"env": {"GIVEN": "x y"}})
    output, end = await run(link, 'echo "$kept $GIVEN $((RANDOM == first))"')
    assert (output, end["status"]) == (b"1 x y 0\n", "ok")
    await link.call("identity", {"env": {}})


async def test_a_copy_says_what_is_not_warm_any_more_until_it_is_or_somebody_uses_it(link: GuestLink) -> None:
    await link.call("contexts.warm", {"languages": ["bash"]})
    assert (await link.call("identity", {"copied": False}))["cold"] is False
    assert (await link.call("identity", {"copied": True}))["cold"] is True
    await link.call("contexts.warm_again")
    assert (await link.call("identity", {"copied": False}))["cold"] is False
    assert (await link.call("identity", {"copied": True}))["cold"] is True
    assert (await run(link, "echo 1"))[0] == b"1\n"
    assert (await link.call("identity", {"copied": False}))["cold"] is False


async def states(link: GuestLink) -> dict[str, str]:
    return {entry["id"]: entry["state"] for entry in (await link.call("contexts.list"))["entries"]}


async def test_what_each_copy_would_have_to_end_is_ended_before_there_are_any_if_nobody_has_used_it(
    link: GuestLink,
) -> None:
    """JavaScript, which cannot draw new random numbers; not a shell, which can."""
    await link.call("contexts.warm", {"languages": ["bash", "javascript"]})
    assert (await link.call("contexts.cool"))["cold"] is True
    assert {name: state for name, state in (await states(link)).items() if name in ("bash", "javascript")} == {
        "bash": "idle",
        "javascript": "stopped",
    }
    assert (await link.call("contexts.cool"))["cold"] is False
    await link.call("contexts.warm_again")
    assert (await states(link))["javascript"] == "idle"
    await run(link, "kept = 1", context="javascript")
    assert (await link.call("contexts.cool"))["cold"] is False
    assert (await run(link, "console.log(kept)", context="javascript"))[0] == b"1\n"
    await link.call("contexts.remove", {"context": "javascript"})


async def test_for_copies_it_is_not_even_started(link: GuestLink) -> None:
    wish = {"languages": ["bash", "javascript"], "for_copies": True}
    assert (await link.call("contexts.warm", wish))["contexts"] == {"bash": "ready", "javascript": "later"}
    assert (await states(link))["javascript"] == "stopped"
    assert (await link.call("identity", {"copied": True}))["cold"] is True
    await link.call("contexts.warm_again")
    assert (await states(link))["javascript"] == "idle"
    await link.call("contexts.remove", {"context": "javascript"})


async def test_contexts_are_bounded_and_processes_of_callers_are_others(link: GuestLink) -> None:
    there = len((await link.call("contexts.list"))["entries"])
    bash = {"language": "bash"}
    made = [(await link.call("contexts.create", bash))["id"] for _ in range(limits.CONTEXTS_MAX - there)]
    with pytest.raises(LimitExceeded):
        await link.call("contexts.create", bash)
    for ident in made:
        await link.call("contexts.remove", {"context": ident})
    with pytest.raises(NotFound):
        await link.call("contexts.remove", {"context": made[0]})
    with pytest.raises(InvalidArgument):
        await link.call("contexts.create", {"language": "cobol"})
    await run(link, "true")
    entries, _ = await listed(link, "process.list")
    assert not any("bash --norc" in " ".join(entry["argv"]) for entry in entries)


async def test_long_code_comes_after_the_request(link: GuestLink) -> None:
    code = "x=" + "y" * (2 * limits.MIB) + "; echo ${#x}"
    async with link.stream("contexts.run", {"context": "bash", "upload": True}) as stream:
        await stream.send(code.encode())
        await stream.commit()
        output = [message.payload async for message in stream if isinstance(message, wire.Data)]
    assert b"".join(output) == b"%d\n" % (2 * limits.MIB)


async def test_a_template_without_ipython_warms_nothing(link: GuestLink) -> None:
    warm = (await link.call("contexts.warm", {}))["contexts"]
    assert set(warm) == {"python"}
    assert "IPython" in warm["python"] or "ended at its start" in warm["python"]
    assert "python" not in {entry["id"] for entry in (await link.call("contexts.list"))["entries"]}


async def started(link: GuestLink, code: str, sign: Path) -> None:
    """Code that runs in the background and has said by a file that it does."""
    await link.call("contexts.run", {"context": "bash", "code": f"touch {sign}; {code}", "detach": True})
    while not sign.exists():
        await asyncio.sleep(0.005)


async def test_a_copy_of_a_busy_shell_keeps_its_state_and_draws_before_its_next_command(
    link: GuestLink, tmp_path: Path
) -> None:
    go, drawn = tmp_path / "go", tmp_path / "drawn"
    await run(link, "kept=1; RANDOM=7; first=$RANDOM; RANDOM=7")
    code = f"while [ ! -e {go} ]; do sleep 0.01; done; echo $((RANDOM == first)) > {drawn}"
    await started(link, code, tmp_path / "on")
    await link.call("identity", {"copied": True})
    go.touch()
    assert (await run(link, "echo $kept"))[0] == b"1\n"
    assert drawn.read_text() == "0\n"


async def test_nobody_waits_for_the_program_that_a_shell_waits_for(link: GuestLink, tmp_path: Path) -> None:
    await run(link, "kept=1")
    await started(link, "sleep 60", tmp_path / "on")
    async with asyncio.timeout(limits.CONTEXT_RESEED_S_MAX - 1):
        await link.call("identity", {"copied": True})
    await link.call("contexts.interrupt", {"context": "bash"})
    assert (await run(link, "echo $kept"))[0] == b"1\n"


async def test_who_misses_the_first_interrupt_gets_another_before_the_interpreter_is_ended(
    link: GuestLink, tmp_path: Path
) -> None:
    """As a program does that was between its fork and its exec."""
    deaf_once = f"trap 'trap - INT' INT; touch {tmp_path / 'on'}; while :; do sleep 0.05; done"
    await run(link, "kept=2")
    await link.call("contexts.run", {"context": "bash", "code": f'bash -c "{deaf_once}"', "detach": True})
    while not (tmp_path / "on").exists():
        await asyncio.sleep(0.005)
    await link.call("contexts.interrupt", {"context": "bash"})
    assert (await run(link, "echo $kept"))[0] == b"2\n"


async def test_code_that_waits_for_an_interpreter_to_start_does_not_notice_that_another_comes(link: GuestLink) -> None:
    ident = (await link.call("contexts.create", {"language": "bash"}))["id"]
    begun = await link.call("contexts.run", {"context": ident, "code": "echo here", "detach": True})
    await link.call("identity", {"copied": True})
    output = b""
    async with link.stream("contexts.attach", {"context": ident, "execution": begun["id"]}) as stream:
        async for message in stream:
            if isinstance(message, wire.Data):
                output += message.payload
            elif isinstance(message, wire.End):
                assert message.value["status"] == "ok"
    assert output == b"here\n"
    await link.call("contexts.remove", {"context": ident})
