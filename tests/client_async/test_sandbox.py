"""The SDK from create to kill, against a stand-in server with real processes and files."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.client import AsyncSandbox, Output, ProcessExited
from atoll.model.errors import (
    AtollError,
    CommandFailed,
    Conflict,
    ConnectionFailed,
    InvalidArgument,
    NotFound,
    Unauthenticated,
)

pytestmark = pytest.mark.anyio


async def test_create_shows_where_time_went_and_the_block_kills() -> None:
    async with await AsyncSandbox.create("code", name="first", metadata={"run": "7"}, memory="512MiB", cpu=2) as sb:
        assert sb.id.startswith("sb")
        assert sb.name == "first"
        assert sb.steps_ms
        info = await sb.info()
        assert (info.state, info.metadata) == ("running", {"run": "7"})
        assert (info.resources.memory_bytes, info.resources.cpu) == (512 * 1024**2, 2)
        again = await AsyncSandbox.connect("first")
        assert again.id == sb.id
        await again.aclose()
    ended = await AsyncSandbox.connect(sb.id)
    assert (await ended.info()).end_reason == "killed_by_user"
    with pytest.raises(Conflict) as caught:
        await ended.commands.run("true")
    assert caught.value.code == "not_running"
    await ended.kill()
    await ended.aclose()


async def test_the_block_kills_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError):
        async with await AsyncSandbox.create() as sb:
            raise ZeroDivisionError
    ended = await AsyncSandbox.connect(sb.id)
    assert (await ended.info()).state == "killed"
    await ended.aclose()


async def test_list_goes_through_all_pages_and_filters() -> None:
    made = [await AsyncSandbox.create(metadata={"group": "pages"}) for _ in range(5)]
    try:
        found = [view.id async for view in AsyncSandbox.list(metadata={"group": "pages"}, state="running")]
        assert found == [sb.id for sb in reversed(made)]
        few = [view.id async for view in AsyncSandbox.list(metadata={"group": "pages"}, limit=4)]
        assert few == found[:4]
        assert not [view async for view in AsyncSandbox.list(metadata={"group": "none"})]
    finally:
        for sb in made:
            await sb.kill()
            await sb.aclose()


async def test_templates_are_listed() -> None:
    assert "code" in [template.name for template in await AsyncSandbox.templates()]


async def test_errors_have_the_class_code_and_hint_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound) as missing:
        await AsyncSandbox.connect("nobody")
    assert (missing.value.code, bool(missing.value.hint)) == ("sandbox_not_found", True)
    with pytest.raises(InvalidArgument) as unknown:
        await AsyncSandbox.create("no-such-template")
    assert unknown.value.code == "template_not_found"
    with pytest.raises(Unauthenticated):
        await AsyncSandbox.create(api_key="atoll_wrong")
    with pytest.raises(ConnectionFailed) as nobody:
        await AsyncSandbox.create(url="http://127.0.0.1:9")
    assert nobody.value.code == "no_server"
    assert "atoll serve" in nobody.value.hint


async def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    with pytest.raises(NotFound):
        await AsyncSandbox.connect("../templates")
    with pytest.raises(InvalidArgument):
        await AsyncSandbox.connect("..")


async def test_set_timeout_moves_the_deadline() -> None:
    async with await AsyncSandbox.create(timeout_s=10) as sb:
        before = (await sb.info()).deadline_at
        assert (await sb.set_timeout(600)).deadline_at > before


async def test_run_gives_output_and_exit_code_apart() -> None:
    async with await AsyncSandbox.create(env={"A": "1"}) as sb:
        result = await sb.commands.run("echo $A $B; echo oops >&2; exit 3", env={"B": "ü"})
        assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("1 ü\n", "oops\n", 3, False)
        assert (await sb.commands.run(["printf", "%s", "a b"])).stdout == "a b"
        assert (await sb.commands.run(["printf", "\\377"])).stdout_bytes == b"\xff"


async def test_check_raises_with_the_result() -> None:
    async with await AsyncSandbox.create() as sb:
        with pytest.raises(CommandFailed) as caught:
            await sb.commands.run("echo why >&2; exit 4", check=True)
        assert caught.value.result.exit_code == 4
        assert "why" in str(caught.value)
        assert isinstance(caught.value, AtollError)


async def test_output_is_streamed_to_callbacks() -> None:
    seen: list[tuple[str, str]] = []
    async with await AsyncSandbox.create() as sb:
        await sb.commands.run(
            "printf a; sleep 0.1; printf b >&2",
            on_stdout=lambda text: seen.append(("out", text)),
            on_stderr=lambda text: seen.append(("err", text)),
        )
    assert seen == [("out", "a"), ("err", "b")]


async def test_a_time_limit_is_told() -> None:
    async with await AsyncSandbox.create() as sb:
        result = await sb.commands.run(["sleep", "20"], timeout_s=0.2)
        assert result.timed_out
        assert result.exit_code != 0


async def test_stdin_larger_than_any_pipe_while_output_comes_back() -> None:
    data = bytes(range(256)) * 8192
    async with await AsyncSandbox.create() as sb:
        result = await sb.commands.run("cat", stdin=data)
        assert result.stdout_bytes == data
        assert (await sb.commands.run("wc -c", stdin=io.BytesIO(b"12345"))).stdout.strip() == "5"
        # A command that does not read is no error, as with a pipe.
        assert (await sb.commands.run("exit 0", stdin=data)).ok


async def test_input_goes_on_where_its_connection_broke() -> None:
    """Nothing of it is lost and nothing comes twice: half of it had arrived. And while the output breaks as well."""
    given = "CUT" + "0123456789" * 1000
    async with await AsyncSandbox.create() as sb:
        assert (await sb.commands.run("cat", stdin=given)).stdout == given
        assert (await sb.commands.run("echo CUT; sleep 0.1; cat", stdin=given)).stdout == "CUT\n" + given
        process = await sb.commands.start("cat", stdin=True)
        await process.write("one\n")
        await process.write("CUT two\n")
        await process.write("three\n", close=True)
        assert (await process.wait()).stdout == "one\nCUT two\nthree\n"
        process = await sb.commands.start("cat", stdin=True)
        await process.write("one\n")
        await (await sb.commands.attach(process.id)).write("CUT two\n", close=True)
        assert (await process.wait()).stdout == "one\nCUT two\n"


async def test_who_does_not_know_what_arrived_says_so() -> None:
    """Somebody else has written since: to go on by the offset would swallow what was theirs, or ours."""
    async with await AsyncSandbox.create() as sb:
        process = await sb.commands.start("cat", stdin=True)
        other = await sb.commands.attach(process.id)
        await other.write("somebody else\n")
        with pytest.raises(ConnectionFailed):
            await process.write("CUT two\n")
        await process.kill()


async def test_a_command_may_end_with_its_connection() -> None:
    async with await AsyncSandbox.create() as sb:
        with pytest.raises(ConnectionFailed):
            await sb.commands.run("echo CUT; sleep 60", kill_on_disconnect=True)
        (ended,) = await sb.commands.list()
        assert (await (await sb.commands.attach(ended.id)).wait()).signal == 9


async def test_a_broken_stream_is_taken_up_where_it_broke() -> None:
    async with await AsyncSandbox.create() as sb:
        result = await sb.commands.run("echo CUT one; sleep 0.2; echo two; echo three >&2")
        assert (result.stdout, result.stderr) == ("CUT one\ntwo\n", "three\n")
        process = await sb.commands.start("echo CUT one; sleep 0.2; echo two")
        assert (await process.wait()).stdout == "CUT one\ntwo\n"


async def test_start_events_wait_and_attach() -> None:
    async with await AsyncSandbox.create() as sb:
        process = await sb.commands.start("echo one; sleep 0.1; echo two >&2", tag="job")
        assert process.pid > 0
        events = [event async for event in process]
        assert [(e.stream, e.text, e.offset) for e in events if isinstance(e, Output)] == [
            ("stdout", "one\n", 0),
            ("stderr", "two\n", 0),
        ]
        assert isinstance(events[-1], ProcessExited)
        assert process.exit_code == 0
        for name in ("job", process.id, process.pid):
            assert (await (await sb.commands.attach(name)).wait()).stdout == "one\n"
        with pytest.raises(NotFound):
            await sb.commands.attach("nothing")
        assert [view.tag for view in await sb.commands.list()] == ["job"]


async def test_reading_can_stop_and_go_on() -> None:
    async with await AsyncSandbox.create() as sb:
        process = await sb.commands.start("echo one; sleep 0.2; echo two")
        async for _event in process:
            break
        result = await process.wait()
        assert result.stdout == "two\n"
        assert await process.wait() is result


async def test_write_close_and_signal() -> None:
    async with await AsyncSandbox.create() as sb:
        process = await sb.commands.start("cat; echo end", stdin=True)
        await process.write("some ")
        await process.write(b"text\n")
        await process.close_stdin()
        assert (await process.wait()).stdout == "some text\nend\n"
        sleeper = await sb.commands.start(["sleep", "60"])
        await sleeper.signal("TERM")
        assert (await sleeper.wait()).signal == 15
        other = await sb.commands.start(["sleep", "60"])
        await other.kill()
        with pytest.raises(CommandFailed):
            await other.wait(check=True)


async def pieces() -> AsyncIterator[bytes]:
    for number in range(3):
        yield b"%d" % number


async def test_files_round_trip_from_every_kind_of_source() -> None:
    async with await AsyncSandbox.create() as sb:
        sources: list[tuple[Any, bytes]] = [
            ("text ü", "text ü".encode()),
            (b"\x00\xff", b"\x00\xff"),
            ([b"a", b"b"], b"ab"),
            (io.BytesIO(b"file"), b"file"),
            (pieces(), b"012"),
            ("", b""),
        ]
        for source, expected in sources:
            written = await sb.files.write("d/e/f.bin", source)
            assert written.size == len(expected)
            assert await sb.files.read_bytes("d/e/f.bin") == expected
        await sb.files.write("d/e/f.bin", "abc")
        await sb.files.write("d/e/f.bin", "def", append=True)
        assert await sb.files.read("d/e/f.bin") == "abcdef"
        assert await sb.files.read_bytes("d/e/f.bin", offset=2, length=3) == b"cde"
        with pytest.raises(InvalidArgument, match="bytes"):
            await sb.files.write("x", io.StringIO("text"))  # type: ignore[arg-type]


async def test_names_that_are_not_utf8_survive() -> None:
    name = b"odd \xff & ?#%.txt".decode("utf-8", "surrogateescape")
    async with await AsyncSandbox.create() as sb:
        await sb.files.write(f"n/{name}", "x")
        assert [view.name for view in await sb.files.list("n")] == [name]
        await sb.files.mkdir(f"folder {name}")
        await sb.files.move(f"n/{name}", f"folder {name}/{name}")
        assert await sb.files.read(f"folder {name}/{name}") == "x"


async def test_stat_exists_remove_move_mkdir() -> None:
    async with await AsyncSandbox.create() as sb:
        await sb.files.write("run.sh", "#!/bin/sh\n", mode=0o750)
        found = await sb.files.stat("run.sh")
        assert (found.type, found.size, found.mode) == ("file", 10, 0o750)
        await sb.files.mkdir("a/b")
        await sb.files.move("run.sh", "a/b/run.sh")
        assert await sb.files.exists("a/b/run.sh")
        assert not await sb.files.exists("run.sh")
        await sb.files.remove("a", recursive=True)
        assert not await sb.files.exists("a")
        with pytest.raises(NotFound):
            await sb.files.read("a")


async def test_a_list_that_was_cut_says_so() -> None:
    """It is a list all the same. Positive control: one that holds everything."""
    async with await AsyncSandbox.create() as sb:
        await sb.commands.run("mkdir a b; cd a; touch $(seq 51); cd ../b; touch x.py y.py")
        assert (len(cut := await sb.files.list("a")), cut.truncated) == (50, True)
        assert (len(whole := await sb.files.list("b")), whole.truncated) == (2, False)
        assert isinstance(cut, list)
        assert (len(cut := await sb.files.find("b", "*.py", limit=1)), cut.truncated) == (1, True)
        assert (len(whole := await sb.files.find("b", "*.py")), whole.truncated) == (2, False)


async def test_upload_and_download_stream_large_files(tmp_path: Path) -> None:
    local = tmp_path / "big.bin"
    local.write_bytes(bytes(range(256)) * 40_000)
    async with await AsyncSandbox.create() as sb:
        assert (await sb.files.upload(local, "big.bin")).size == local.stat().st_size
        back = tmp_path / "back.bin"
        assert await sb.files.download("big.bin", back) == local.stat().st_size
        assert back.read_bytes() == local.read_bytes()
        with pytest.raises(AtollError):
            await sb.files.download("big.bin", tmp_path / "small.bin", size_bytes_max=1000)
        with pytest.raises(NotFound):
            await sb.files.download("missing", tmp_path / "missing.bin")
        with pytest.raises(InvalidArgument):
            await sb.files.upload(tmp_path / "nowhere", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.bin", "big.bin"]
