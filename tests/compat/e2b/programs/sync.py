"""The synchronous Python client: sandboxes, commands, files, watching, terminals, code."""

from __future__ import annotations

import functools
import io
import urllib.request
from typing import Any

import runner
from e2b import (
    AuthenticationException,
    CommandExitException,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    PtySize,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxQuery,
    SandboxState,
    Template,
    TimeoutException,
)
from e2b_code_interpreter import Sandbox
from runner import raised, wait_until


@functools.cache
def box() -> Any:
    return Sandbox.create("base", timeout=300, envs={"COLOUR": "blue"}, metadata={"run": "a b&c"})


@functools.cache
def code() -> Any:
    return Sandbox.create(timeout=300)


def close() -> None:
    for sandbox in (box(), code()):
        sandbox.kill()


def case_a_command_has_output_environment_user_and_folder() -> None:
    done = box().commands.run("echo $COLOUR $E2B_SANDBOX $E2B_SANDBOX_ID; whoami; pwd; echo oops >&2")
    assert done.stdout == f"blue true {box().sandbox_id}\nuser\n/home/user\n"
    assert (done.stderr, done.exit_code, done.error) == ("oops\n", 0, None)
    done = box().commands.run("echo $X; whoami; pwd", envs={"X": "1"}, user="root", cwd="/tmp")
    assert done.stdout == "1\nroot\n/tmp\n"


def case_a_command_that_fails_raises_with_its_output() -> None:
    error = raised(CommandExitException, lambda: box().commands.run("echo out; echo err >&2; exit 3"))
    assert (error.exit_code, error.stdout, error.stderr, error.error) == (3, "out\n", "err\n", "exit status 3")


def case_output_is_streamed_to_callbacks() -> None:
    out: list[str] = []
    err: list[str] = []
    box().commands.run("echo 1; echo 2 >&2; echo 3", on_stdout=out.append, on_stderr=err.append)
    assert "".join(out) == "1\n3\n"
    assert "".join(err) == "2\n"


def case_a_command_ends_at_its_timeout() -> None:
    raised(TimeoutException, lambda: box().commands.run("sleep 30", timeout=0.5))
    wait_until(lambda: not any("sleep 30" in entry.args for entry in box().commands.list()))


def case_wrong_users_and_folders_are_refused() -> None:
    assert "invalid username: 'nobody9'" in str(
        raised(AuthenticationException, lambda: box().commands.run("true", user="nobody9"))
    )
    raised(InvalidArgumentException, lambda: box().commands.run("true", cwd="/nowhere"))


def case_a_command_in_the_background_takes_input_and_is_listed() -> None:
    running = box().commands.run("cat; echo end", background=True, stdin=True)
    assert running.pid in {entry.pid for entry in box().commands.list()}
    running.send_stdin("one\n")
    box().commands.stream_input(running.pid, iter(["two\n", b"three\n"]))
    box().commands.close_stdin(running.pid)
    assert running.wait().stdout == "one\ntwo\nthree\nend\n"


def case_a_command_can_be_killed_once() -> None:
    running = box().commands.run("sleep 60", background=True)
    assert box().commands.kill(running.pid) is True
    error = raised(CommandExitException, running.wait)
    assert (error.exit_code, error.error) == (-1, "signal: killed")
    assert box().commands.kill(running.pid) is False
    assert box().commands.kill(999_999) is False


def case_a_running_command_can_be_joined() -> None:
    first = box().commands.run("read line; echo got $line", background=True, stdin=True)
    first.disconnect()
    second = box().commands.connect(first.pid)
    second.send_stdin("it\n")
    assert second.wait().stdout == "got it\n"
    raised(Exception, lambda: box().commands.connect(999_999))


def case_files_are_written_and_read() -> None:
    files = box().files
    written = files.write("notes/a.txt", "héllo")
    assert (written.path, written.name, written.type) == ("/home/user/notes/a.txt", "a.txt", FileType.FILE)
    assert files.read("notes/a.txt") == "héllo"
    assert files.read("/home/user/notes/a.txt", format="bytes") == bytearray("héllo".encode())
    assert b"".join(files.read("notes/a.txt", format="stream")) == "héllo".encode()
    files.write("notes/a.txt", b"")
    assert files.read("notes/a.txt") == ""
    big = bytes(range(256)) * 8192
    files.write("big.bin", io.BytesIO(big))
    assert files.read("big.bin", format="bytes") == bytearray(big)
    files.write("zipped", big, gzip=True)
    assert files.read("zipped", format="bytes", gzip=True) == bytearray(big)
    several = files.write_files([{"path": "m/1", "data": "1"}, {"path": "m/2", "data": b"\r\n--2"}])
    assert [entry.name for entry in several] == ["1", "2"]
    assert files.read("m/2") == "\r\n--2"
    assert "Linux" in files.read("/proc/version")


def case_files_have_owners_rights_links_and_labels() -> None:
    files = box().files
    files.write("labelled", "x", metadata={"Kind": "test"})
    found = files.get_info("labelled")
    assert (found.owner, found.group, found.permissions, found.size) == ("user", "user", "-rw-r--r--", 1)
    assert found.metadata == {"kind": "test"}
    files.write("labelled", "y")
    assert not files.get_info("labelled").metadata
    files.write("/root/r", "x", user="root")
    assert files.read("/root/r", user="root") == "x"
    box().commands.run("ln -sf labelled link")
    link = files.get_info("link")
    assert (link.type, link.symlink_target) == (FileType.SYMLINK, "labelled")


def case_files_anywhere_are_the_users() -> None:
    """As E2B's agent does it: what the user may not do itself is done for it, and what is made is the user's."""
    files = box().files
    files.write("/path/to/file", "1")
    files.write("/opt/x", "2")
    files.make_dir("/srv/a/b")
    for path in ("/path", "/path/to", "/path/to/file", "/opt/x", "/srv/a", "/srv/a/b"):
        found = files.get_info(path)
        assert (found.owner, found.group) == ("user", "user"), found
    assert files.get_info("/opt").owner == "root"
    box().commands.run("mkdir -m 700 /root/d; echo r > /root/d/x; chmod 600 /root/d/x", user="root")
    assert files.read("/root/d/x") == "r\n"
    assert [entry.owner for entry in files.list("/root/d")] == ["root"]
    assert files.rename("/root/d/x", "/root/e/y").owner == "root"
    assert files.get_info("/root/e").owner == "user"
    files.write("/root/e/y", "mine", metadata={"k": "v"})
    found = files.get_info("/root/e/y")
    assert (found.owner, found.permissions, found.metadata) == ("user", "-rw-------", {"k": "v"})
    assert files.read("/root/e/y") == "mine"
    watcher = files.watch_dir("/root/e")
    files.remove("/root/e/y")
    wait_until(watcher.get_new_events)
    watcher.stop()
    files.remove("/root/d")
    assert not files.exists("/root/d")


def case_folders_are_made_listed_moved_and_removed() -> None:
    files = box().files
    assert files.make_dir("tree/deep") is True
    assert files.make_dir("tree/deep") is False
    files.write("tree/deep/f", "1")
    assert [entry.name for entry in files.list("tree")] == ["deep"]
    assert {entry.path for entry in files.list("tree", depth=2)} == {
        "/home/user/tree/deep",
        "/home/user/tree/deep/f",
    }
    box().commands.run("ln -sfn tree link-to-tree")
    assert {entry.path for entry in files.list("link-to-tree", depth=2)} == {
        "/home/user/link-to-tree/deep",
        "/home/user/link-to-tree/deep/f",
    }
    moved = files.rename("tree/deep/f", "tree/g")
    assert (moved.path, files.exists("tree/g"), files.exists("tree/deep/f")) == ("/home/user/tree/g", True, False)
    files.remove("tree")
    assert not files.exists("tree")


def case_missing_files_and_wrong_kinds_are_told_apart() -> None:
    files = box().files
    raised(FileNotFoundException, lambda: files.read("nothing"))
    raised(FileNotFoundException, lambda: files.list("nothing"))
    raised(FileNotFoundException, lambda: files.get_info("nothing"))
    raised(InvalidArgumentException, lambda: files.read("/home"))
    raised(InvalidArgumentException, lambda: files.list("/etc/passwd"))
    raised(AuthenticationException, lambda: files.read("x", user="nobody9"))
    raised(FileNotFoundException, lambda: files.watch_dir("nothing"))


def case_changes_of_a_folder_are_seen() -> None:
    files = box().files
    files.make_dir("watched/below")
    handle = files.watch_dir("watched", recursive=True, include_entry=True)
    files.write("watched/below/w.txt", "1")
    seen: list[Any] = []

    def written() -> bool:
        seen.extend(handle.get_new_events())
        return "write" in [event.type.value for event in seen]

    wait_until(written)
    assert {event.name for event in seen} == {"below/w.txt"}
    assert [event.type.value for event in seen] == ["create", "chmod", "write"]
    assert seen[0].entry.path == "/home/user/watched/below/w.txt"
    seen.clear()
    files.write("watched/below/w.txt", "2")
    wait_until(written)
    assert [event.type.value for event in seen] == ["chmod", "write", "write"], seen  # it is emptied first
    files.remove("watched/below/w.txt")
    wait_until(lambda: "remove" in [event.type.value for event in handle.get_new_events()])
    handle.stop()


def case_a_terminal_has_a_size_and_an_exit_code() -> None:
    terminal = box().pty.create(PtySize(rows=30, cols=100))
    box().pty.resize(terminal.pid, PtySize(rows=31, cols=101))
    box().pty.send_stdin(terminal.pid, b"stty size; echo $TERM; exit 4\n")
    output: list[bytes] = []
    error = raised(CommandExitException, lambda: terminal.wait(on_pty=output.append))
    assert error.exit_code == 4
    assert b"31 101" in b"".join(output)
    assert b"xterm" in b"".join(output)


def case_signed_addresses_open_one_file() -> None:
    box().files.write("signed.txt", "s")
    with urllib.request.urlopen(box().download_url("signed.txt", use_signature_expiration=60)) as answer:
        assert answer.read() == b"s"
    boundary = "b0"
    body = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="u"\r\n\r\nup\r\n--{boundary}--\r\n'
    request = urllib.request.Request(
        box().upload_url("uploaded.txt"),
        body.encode(),
        {"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    urllib.request.urlopen(request).close()
    assert box().files.read("uploaded.txt") == "up"
    address = box().download_url("signed.txt")
    for wrong in (address.replace("signed.txt", "uploaded.txt"), address[:-3], address.partition("&")[0]):
        error = raised(urllib.error.HTTPError, lambda wrong=wrong: urllib.request.urlopen(wrong))
        assert error.code == 401
        error.close()


def case_a_sandbox_is_described() -> None:
    found = box().get_info()
    assert (found.sandbox_id, found.template_id, found.state) == (box().sandbox_id, "base", SandboxState.RUNNING)
    assert found.metadata == {"run": "a b&c"}
    assert 0 < (found.end_at - found.started_at).total_seconds() <= 300.1
    assert found.memory_mb >= 512
    assert box().is_running()
    used = box().get_metrics()[-1]
    assert used.cpu_count >= 1
    assert 0 < used.mem_used < used.mem_total
    assert 0 <= used.disk_used < used.disk_total


def case_sandboxes_are_listed_by_metadata_state_and_page() -> None:
    pages = Sandbox.list(query=SandboxQuery(metadata={"run": "a b&c"}, state=[SandboxState.RUNNING]))
    assert [entry.sandbox_id for entry in pages.next_items()] == [box().sandbox_id]
    assert Sandbox.list(query=SandboxQuery(metadata={"run": "other"})).next_items() == []
    code()
    pages = Sandbox.list(limit=1)
    seen = [pages.next_items()[0].sandbox_id]
    assert pages.has_next
    seen.append(pages.next_items()[0].sandbox_id)
    assert set(seen) == {box().sandbox_id, code().sandbox_id}


def case_a_deadline_moves_and_a_connection_only_extends_it() -> None:
    box().set_timeout(120)
    assert Sandbox.connect(box().sandbox_id, timeout=10).commands.run("echo 1").stdout == "1\n"
    left = (box().get_info().end_at - box().get_info().started_at).total_seconds()
    assert left >= 110
    box().set_timeout(300)


def case_what_does_not_exist_is_said_so() -> None:
    raised(SandboxNotFoundException, lambda: Sandbox.connect("sbnothing"))
    raised(SandboxNotFoundException, lambda: Sandbox.get_info("sbnothing"))
    assert Sandbox.kill("sbnothing") is False
    assert "nothing-like-it" in str(raised(SandboxException, lambda: Sandbox.create("nothing-like-it")))
    raised(AuthenticationException, lambda: Sandbox.create("base", api_key="e2b_" + "0" * 64))
    raised(SandboxException, lambda: Sandbox.create("base", timeout=10**9))


def case_templates_are_known_by_their_names() -> None:
    assert Template.exists("base")
    assert Template.exists("code-interpreter-v1")
    assert not Template.exists("nothing-like-it")
    error = raised(Exception, lambda: Template.build(Template().from_base_image(), "mine"))
    assert "cannot be built" in str(error)


def case_a_killed_sandbox_cuts_its_streams_and_is_gone() -> None:
    sandbox = Sandbox.create("base", timeout=60, idempotency_key="once-only")
    again = Sandbox.create("base", timeout=60, idempotency_key="once-only")
    assert again.sandbox_id == sandbox.sandbox_id
    running = sandbox.commands.run("sleep 60", background=True)
    assert sandbox.kill() is True
    raised(TimeoutException, running.wait)
    assert sandbox.is_running() is False
    assert sandbox.kill() is False
    raised(SandboxNotRunningException, lambda: sandbox.commands.run("true"))
    raised(SandboxNotRunningException, lambda: sandbox.files.read("/etc/passwd"))
    raised(SandboxNotFoundException, lambda: Sandbox.get_info(sandbox.sandbox_id))


def case_code_keeps_its_state_and_gives_results() -> None:
    done = code().run_code("x = 41\nprint('hi')\nx + 1")
    assert (done.text, done.logs.stdout, done.error) == ("42", ["hi\n"], None)
    assert done.execution_count >= 1
    assert code().run_code("x").text == "41"
    assert code().run_code("'text'").text == "text"
    failed = code().run_code("1 / 0")
    assert (failed.error.name, failed.error.value) == ("ZeroDivisionError", "division by zero")
    assert "ZeroDivisionError" in failed.error.traceback
    seen: list[str] = []
    code().run_code(
        "import os, sys\nprint(os.environ['Q'])\nprint('e', file=sys.stderr)",
        envs={"Q": "7"},
        on_stdout=lambda message: seen.append(message.line),
        on_stderr=lambda message: seen.append(message.line),
    )
    assert sorted(seen) == ["7\n", "e\n"]


def case_code_that_takes_too_long_is_interrupted() -> None:
    raised(TimeoutException, lambda: code().run_code("import time\ntime.sleep(60)", timeout=0.5))
    assert code().run_code("2 + 2").text == "4"


def case_contexts_are_apart() -> None:
    context = code().create_code_context(cwd="/tmp")
    assert (context.language, context.cwd) == ("python", "/tmp")
    code().run_code("y = 1", context=context)
    assert code().run_code("y", context=context).text == "1"
    assert code().run_code("y").error.name == "NameError"
    assert context.id in {entry.id for entry in code().list_code_contexts()}
    code().restart_code_context(context)
    assert code().run_code("y", context=context).error.name == "NameError"
    code().remove_code_context(context)
    assert "not found" in str(raised(Exception, lambda: code().run_code("1", context=context)))


def case_other_languages() -> None:
    assert code().run_code("echo $((40 + 2))", language="bash").logs.stdout == ["42\n"]
    assert code().run_code("const x = 41; x + 1", language="js").text == "42"
    error = raised(SandboxException, lambda: code().run_code("1", language="cobol"))
    assert str(error).startswith("500"), error
    assert "cobol" in str(error), error
    assert code().run_code('"it\'s"').text == "it's"


def case_code_knows_its_sandbox() -> None:
    line = "import os; [os.environ[f'E2B_{name}'] for name in ('SANDBOX', 'SANDBOX_ID', 'TEAM_ID', 'TEMPLATE_ID')]"
    known = ["true", code().sandbox_id, "default", "code"]
    assert code().run_code(line).results[0].json == known
    names = "$E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEAM_ID $E2B_TEMPLATE_ID"
    assert code().commands.run(f"echo {names}").stdout.split() == known
    (copy,) = code().fork(timeout=60)
    try:
        assert copy.run_code("os.environ['E2B_SANDBOX_ID']").text == copy.sandbox_id
    finally:
        copy.kill()


def case_pictures_and_tables_are_results() -> None:
    drawn = code().run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.title('T')\nplt.show()")
    assert drawn.error is None
    assert drawn.results[0].png.startswith("iVBOR")
    assert (drawn.results[0].chart.type.value, drawn.results[0].chart.title) == ("line", "T")
    table = code().run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert table.results[0].data == {"a": [1, 2]}
    assert "<table" in table.results[0].html


CHARTS = """
import matplotlib.pyplot as plt
plt.figure(); plt.scatter([1, 2], [3, 4], label='s'); plt.show()
plt.figure(); plt.bar(['a', 'b'], [1, 2]); plt.show()
plt.figure(); plt.pie([1, 3], labels=['a', 'b']); plt.show()
plt.figure(); plt.boxplot([[1, 2, 3], [2, 3, 9]]); plt.show()
fig, (one, two) = plt.subplots(1, 2); one.plot([1], [2]); two.bar(['a'], [1]); plt.show()
"""


def case_charts_of_every_kind() -> None:
    charts = [result.chart for result in code().run_code(CHARTS).results]
    scatter, bar, pie, box_plot, several = charts
    kinds = [chart.type.value for chart in charts]
    assert kinds == ["scatter", "bar", "pie", "box_and_whisker", "superchart"]
    assert scatter.elements[0].points == [(1, 3), (2, 4)]
    assert [(entry.label, float(entry.value)) for entry in bar.elements] == [("a", 1), ("b", 2)]
    assert [(entry.label, round(entry.angle)) for entry in pie.elements] == [("a", 90), ("b", 270)]
    assert [entry.median for entry in box_plot.elements] == [2, 3]
    assert [entry.type.value for entry in several.elements] == ["line", "bar"]


def case_values_are_json_and_saved_pictures_are_shown() -> None:
    shown = code().run_code("{'a': [1, None], 2: 'b'}").results[0]
    assert (shown.json, shown.text) == ({"a": [1, None], "2": "b"}, "{'a': [1, None], 2: 'b'}")
    assert code().run_code("[object()]").results[0].json is None
    saved = code().run_code("from PIL import Image\nImage.new('RGB', (2, 2)).save('/tmp/a.png')")
    assert [bool(result.png) for result in saved.results] == [True]


if __name__ == "__main__":
    runner.main(globals())
