# Generated from tests/client_async/test_sandbox.py by tools/unasync.py: change that file, not this one.
"""The SDK from create to kill, against a stand-in server with real processes and files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.client import Sandbox, Output, ProcessExited
from atoll.model.errors import (
    AtollError,
    CommandFailed,
    Conflict,
    ConnectionFailed,
    InvalidArgument,
    NotFound,
    Unauthenticated,
)



def test_create_shows_where_time_went_and_the_block_kills() -> None:
    with Sandbox.create("code", name="first", metadata={"run": "7"}, memory="512MiB", cpu=2) as sb:
        assert sb.id.startswith("sb")
        assert sb.name == "first"
        assert sb.steps_ms
        info = sb.info()
        assert (info.state, info.metadata) == ("running", {"run": "7"})
        assert (info.resources.memory_bytes, info.resources.cpu) == (512 * 1024**2, 2)
        again = Sandbox.connect("first")
        assert again.id == sb.id
        again.close()
    ended = Sandbox.connect(sb.id)
    assert (ended.info()).end_reason == "killed_by_user"
    with pytest.raises(Conflict) as caught:
        ended.commands.run("true")
    assert caught.value.code == "not_running"
    ended.kill()
    ended.close()


def test_the_block_kills_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError):
        with Sandbox.create() as sb:
            raise ZeroDivisionError
    ended = Sandbox.connect(sb.id)
    assert (ended.info()).state == "killed"
    ended.close()


def test_list_goes_through_all_pages_and_filters() -> None:
    made = [Sandbox.create(metadata={"group": "pages"}) for _ in range(5)]
    try:
        found = [view.id for view in Sandbox.list(metadata={"group": "pages"}, state="running")]
        assert found == [sb.id for sb in reversed(made)]
        few = [view.id for view in Sandbox.list(metadata={"group": "pages"}, limit=4)]
        assert few == found[:4]
        assert not [view for view in Sandbox.list(metadata={"group": "none"})]
    finally:
        for sb in made:
            sb.kill()
            sb.close()


def test_templates_are_listed() -> None:
    assert "code" in [template.name for template in Sandbox.templates()]


def test_errors_have_the_class_code_and_hint_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound) as missing:
        Sandbox.connect("nobody")
    assert (missing.value.code, bool(missing.value.hint)) == ("sandbox_not_found", True)
    with pytest.raises(InvalidArgument) as unknown:
        Sandbox.create("no-such-template")
    assert unknown.value.code == "template_not_found"
    with pytest.raises(Unauthenticated):
        Sandbox.create(api_key="atoll_wrong")
    with pytest.raises(ConnectionFailed) as nobody:
        Sandbox.create(url="http://127.0.0.1:9")
    assert nobody.value.code == "no_server"
    assert "atoll serve" in nobody.value.hint


def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    with pytest.raises(NotFound):
        Sandbox.connect("../templates")
    with pytest.raises(InvalidArgument):
        Sandbox.connect("..")


def test_set_timeout_moves_the_deadline() -> None:
    with Sandbox.create(timeout_s=10) as sb:
        before = (sb.info()).deadline_at
        assert (sb.set_timeout(600)).deadline_at > before


def test_run_gives_output_and_exit_code_apart() -> None:
    with Sandbox.create(env={"A": "1"}) as sb:
        result = sb.commands.run("echo $A $B; echo oops >&2; exit 3", env={"B": "ü"})
        assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("1 ü\n", "oops\n", 3, False)
        assert (sb.commands.run(["printf", "%s", "a b"])).stdout == "a b"
        assert (sb.commands.run(["printf", "\\377"])).stdout_bytes == b"\xff"


def test_check_raises_with_the_result() -> None:
    with Sandbox.create() as sb:
        with pytest.raises(CommandFailed) as caught:
            sb.commands.run("echo why >&2; exit 4", check=True)
        assert caught.value.result.exit_code == 4
        assert "why" in str(caught.value)
        assert isinstance(caught.value, AtollError)


def test_output_is_streamed_to_callbacks() -> None:
    seen: list[tuple[str, str]] = []
    with Sandbox.create() as sb:
        sb.commands.run(
            "printf a; sleep 0.1; printf b >&2",
            on_stdout=lambda text: seen.append(("out", text)),
            on_stderr=lambda text: seen.append(("err", text)),
        )
    assert seen == [("out", "a"), ("err", "b")]


def test_a_time_limit_is_told() -> None:
    with Sandbox.create() as sb:
        result = sb.commands.run(["sleep", "20"], timeout_s=0.2)
        assert result.timed_out
        assert result.exit_code != 0


def test_stdin_larger_than_any_pipe_while_output_comes_back() -> None:
    data = bytes(range(256)) * 8192
    with Sandbox.create() as sb:
        result = sb.commands.run("cat", stdin=data)
        assert result.stdout_bytes == data
        assert (sb.commands.run("wc -c", stdin=io.BytesIO(b"12345"))).stdout.strip() == "5"
        # A command that does not read is no error, as with a pipe.
        assert (sb.commands.run("exit 0", stdin=data)).ok


def test_input_goes_on_where_its_connection_broke() -> None:
    """Nothing of it is lost and nothing comes twice: half of it had arrived. And while the output breaks as well."""
    given = "CUT" + "0123456789" * 1000
    with Sandbox.create() as sb:
        assert (sb.commands.run("cat", stdin=given)).stdout == given
        assert (sb.commands.run("echo CUT; sleep 0.1; cat", stdin=given)).stdout == "CUT\n" + given
        process = sb.commands.start("cat", stdin=True)
        process.write("one\n")
        process.write("CUT two\n")
        process.write("three\n", close=True)
        assert (process.wait()).stdout == "one\nCUT two\nthree\n"
        process = sb.commands.start("cat", stdin=True)
        process.write("one\n")
        (sb.commands.attach(process.id)).write("CUT two\n", close=True)
        assert (process.wait()).stdout == "one\nCUT two\n"


def test_who_does_not_know_what_arrived_says_so() -> None:
    """Somebody else has written since: to go on by the offset would swallow what was theirs, or ours."""
    with Sandbox.create() as sb:
        process = sb.commands.start("cat", stdin=True)
        other = sb.commands.attach(process.id)
        other.write("somebody else\n")
        with pytest.raises(ConnectionFailed):
            process.write("CUT two\n")
        process.kill()


def test_a_command_may_end_with_its_connection() -> None:
    with Sandbox.create() as sb:
        with pytest.raises(ConnectionFailed):
            sb.commands.run("echo CUT; sleep 60", kill_on_disconnect=True)
        (ended,) = sb.commands.list()
        assert ((sb.commands.attach(ended.id)).wait()).signal == 9


def test_a_broken_stream_is_taken_up_where_it_broke() -> None:
    with Sandbox.create() as sb:
        result = sb.commands.run("echo CUT one; sleep 0.2; echo two; echo three >&2")
        assert (result.stdout, result.stderr) == ("CUT one\ntwo\n", "three\n")
        process = sb.commands.start("echo CUT one; sleep 0.2; echo two")
        assert (process.wait()).stdout == "CUT one\ntwo\n"


def test_start_events_wait_and_attach() -> None:
    with Sandbox.create() as sb:
        process = sb.commands.start("echo one; sleep 0.1; echo two >&2", tag="job")
        assert process.pid > 0
        events = [event for event in process]
        assert [(e.stream, e.text, e.offset) for e in events if isinstance(e, Output)] == [
            ("stdout", "one\n", 0),
            ("stderr", "two\n", 0),
        ]
        assert isinstance(events[-1], ProcessExited)
        assert process.exit_code == 0
        for name in ("job", process.id, process.pid):
            assert ((sb.commands.attach(name)).wait()).stdout == "one\n"
        with pytest.raises(NotFound):
            sb.commands.attach("nothing")
        assert [view.tag for view in sb.commands.list()] == ["job"]


def test_reading_can_stop_and_go_on() -> None:
    with Sandbox.create() as sb:
        process = sb.commands.start("echo one; sleep 0.2; echo two")
        for _event in process:
            break
        result = process.wait()
        assert result.stdout == "two\n"
        assert process.wait() is result


def test_write_close_and_signal() -> None:
    with Sandbox.create() as sb:
        process = sb.commands.start("cat; echo end", stdin=True)
        process.write("some ")
        process.write(b"text\n")
        process.close_stdin()
        assert (process.wait()).stdout == "some text\nend\n"
        sleeper = sb.commands.start(["sleep", "60"])
        sleeper.signal("TERM")
        assert (sleeper.wait()).signal == 15
        other = sb.commands.start(["sleep", "60"])
        other.kill()
        with pytest.raises(CommandFailed):
            other.wait(check=True)


def pieces() -> Iterator[bytes]:
    for number in range(3):
        yield b"%d" % number


def test_files_round_trip_from_every_kind_of_source() -> None:
    with Sandbox.create() as sb:
        sources: list[tuple[Any, bytes]] = [
            ("text ü", "text ü".encode()),
            (b"\x00\xff", b"\x00\xff"),
            ([b"a", b"b"], b"ab"),
            (io.BytesIO(b"file"), b"file"),
            (pieces(), b"012"),
            ("", b""),
        ]
        for source, expected in sources:
            written = sb.files.write("d/e/f.bin", source)
            assert written.size == len(expected)
            assert sb.files.read_bytes("d/e/f.bin") == expected
        sb.files.write("d/e/f.bin", "abc")
        sb.files.write("d/e/f.bin", "def", append=True)
        assert sb.files.read("d/e/f.bin") == "abcdef"
        assert sb.files.read_bytes("d/e/f.bin", offset=2, length=3) == b"cde"
        with pytest.raises(InvalidArgument, match="bytes"):
            sb.files.write("x", io.StringIO("text"))  # type: ignore[arg-type]


def test_names_that_are_not_utf8_survive() -> None:
    name = b"odd \xff & ?#%.txt".decode("utf-8", "surrogateescape")
    with Sandbox.create() as sb:
        sb.files.write(f"n/{name}", "x")
        assert [view.name for view in sb.files.list("n")] == [name]
        sb.files.mkdir(f"folder {name}")
        sb.files.move(f"n/{name}", f"folder {name}/{name}")
        assert sb.files.read(f"folder {name}/{name}") == "x"


def test_stat_exists_remove_move_mkdir() -> None:
    with Sandbox.create() as sb:
        sb.files.write("run.sh", "#!/bin/sh\n", mode=0o750)
        found = sb.files.stat("run.sh")
        assert (found.type, found.size, found.mode) == ("file", 10, 0o750)
        sb.files.mkdir("a/b")
        sb.files.move("run.sh", "a/b/run.sh")
        assert sb.files.exists("a/b/run.sh")
        assert not sb.files.exists("run.sh")
        sb.files.remove("a", recursive=True)
        assert not sb.files.exists("a")
        with pytest.raises(NotFound):
            sb.files.read("a")


def test_a_list_that_was_cut_says_so() -> None:
    """It is a list all the same. Positive control: one that holds everything."""
    with Sandbox.create() as sb:
        sb.commands.run("mkdir a b; cd a; touch $(seq 51); cd ../b; touch x.py y.py")
        assert (len(cut := sb.files.list("a")), cut.truncated) == (50, True)
        assert (len(whole := sb.files.list("b")), whole.truncated) == (2, False)
        assert isinstance(cut, list)
        assert (len(cut := sb.files.find("b", "*.py", limit=1)), cut.truncated) == (1, True)
        assert (len(whole := sb.files.find("b", "*.py")), whole.truncated) == (2, False)


def test_upload_and_download_stream_large_files(tmp_path: Path) -> None:
    local = tmp_path / "big.bin"
    local.write_bytes(bytes(range(256)) * 40_000)
    with Sandbox.create() as sb:
        assert (sb.files.upload(local, "big.bin")).size == local.stat().st_size
        back = tmp_path / "back.bin"
        assert sb.files.download("big.bin", back) == local.stat().st_size
        assert back.read_bytes() == local.read_bytes()
        with pytest.raises(AtollError):
            sb.files.download("big.bin", tmp_path / "small.bin", size_bytes_max=1000)
        with pytest.raises(NotFound):
            sb.files.download("missing", tmp_path / "missing.bin")
        with pytest.raises(InvalidArgument):
            sb.files.upload(tmp_path / "nowhere", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.bin", "big.bin"]
