"""How code ends that does not end well, in every language: interrupted, dead, out of memory; and odd bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from atoll import Sandbox
from atoll.client import Execution, ExecutionOutput
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("code", memory="2GiB", timeout_s=600) as made:
        yield made


def interrupted(sandbox: Sandbox, code: str, language: str = "python") -> Execution:
    """Started, seen to say `go`, and then stopped."""
    run = sandbox.code.start(code, language=language)
    for event in run:
        if isinstance(event, ExecutionOutput) and "go" in event.text:
            break
    assert run.interrupt()
    return run.wait()


PLAIN = [
    # the language, an endless loop that says go, an end of its own making and the word for it, a byte that is no text
    (
        "python",
        "print('go')\nwhile True: pass",
        "import os; os.abort()",
        "SIGABRT",
        "import os; n = os.write(1, b'\\xff')",
    ),
    (
        "javascript",
        "console.log('go'); for (;;) {}",
        "process.kill(process.pid, 'SIGKILL'); for (;;) {}",
        "SIGKILL",
        "void process.stdout.write(Buffer.from([255]))",
    ),
    (
        "typescript",
        "console.log('go'); for (;;) {}",
        "process.exit(5)",
        "exit code 5",
        "process.stdout.write(Buffer.from([255]))",
    ),
    ("bash", "echo go; while :; do :; done", "kill -SEGV $$; sleep 60", "SIGSEGV", "printf '\\xff'"),
    (
        "r",
        "cat('go\\n'); flush.console(); while (TRUE) {}",
        "tools::pskill(Sys.getpid(), 9); Sys.sleep(60)",
        "SIGKILL",
        "system(\"printf '\\\\377'\")",
    ),
    (
        "java",
        'System.out.println("go"); while (true) {}',
        "Runtime.getRuntime().halt(6);",
        "exit code 6",
        "System.out.write(255); System.out.flush();",
    ),
]
SHOWS_42 = {"bash": "echo $((x + 1))"}
DEFINES = {
    "javascript": "var x = 41",
    "typescript": "var x = 41",
    "java": "int x = 41;",
    "bash": "x=41",
    "r": "x <- 41",
}


@pytest.mark.parametrize(("language", "loop", "end", "words", "byte"), PLAIN, ids=[row[0] for row in PLAIN])
def test_each_language_is_interrupted_dies_and_is_there_again(
    sandbox: Sandbox, language: str, loop: str, end: str, words: str, byte: str
) -> None:
    try:
        sandbox.code.run(DEFINES.get(language, "x = 41"), language=language, check=True)
        stopped = interrupted(sandbox, loop, language)
        assert (stopped.status, stopped.stdout.strip(), stopped.exit_code == 0) == ("interrupted", "go", False)
        assert stopped.error is not None
        kept = sandbox.code.run(SHOWS_42.get(language, "x + 1"), language=language, check=True)
        assert (kept.text or kept.stdout).split()[-1] == "42", "an interrupt keeps the state"
        assert sandbox.code.run(byte, language=language, check=True).stdout == "\ufffd"
        halved = sandbox.code.run("1 \0 2", language=language)  # refused, or run as `1 2`; never the first half alone
        assert (halved.status, halved.results) == ("error", [])
        dead = sandbox.code.run(end, language=language, timeout_s=60)
        assert dead.error is not None
        assert (dead.status, dead.error.name) == ("died", "ContextDied")
        assert words in dead.error.value
        assert sandbox.code.run(byte, language=language, check=True).stderr == ""
    finally:
        sandbox.code.remove_context(language)


def test_a_loop_in_c_is_interrupted(sandbox: Sandbox) -> None:
    """One step of it is in C and takes long; the interrupt is heard after it, and the state stays."""
    sandbox.code.run("import numpy\nsteps = 0", check=True)
    code = "m = numpy.ones((1500, 1500))\nprint('go')\nwhile True:\n    m @ m\n    steps += 1"
    stopped = interrupted(sandbox, code)
    assert stopped.error is not None
    assert (stopped.status, stopped.error.name) == ("interrupted", "KeyboardInterrupt")
    assert sandbox.code.run("m.shape", check=True).text == "(1500, 1500)"


def test_out_of_memory_is_said_by_name(sandbox: Sandbox) -> None:
    context = sandbox.code.create_context()
    dead = sandbox.code.run(
        "import time\nheld = []\nwhile True: held.append(b'x' * (16 << 20)); time.sleep(0.02)", context=context
    )
    assert dead.error is not None
    assert (dead.status, dead.error.value) == (
        "died",
        "the interpreter was ended, because the sandbox ran out of memory",
    )
    assert sandbox.code.run("1 + 1", context=context, check=True).text == "2"
    sandbox.code.remove_context(context)


def test_one_that_died_while_nobody_used_it_says_so_to_the_next(sandbox: Sandbox) -> None:
    context = sandbox.code.create_context()
    pid = sandbox.code.run("import os; os.getpid()", context=context, check=True).text
    sandbox.commands.run(f"kill -9 {pid}", user="root", check=True)
    wait_until(lambda: {each.id: each.state for each in sandbox.code.contexts()}[context.id] == "stopped", 10)
    told = sandbox.code.run("'alive'", context=context, check=True)
    assert (told.text, told.stderr) == (
        "'alive'",
        "[the interpreter was ended by SIGKILL since the last run: its state is gone]\n",
    )
    assert sandbox.code.run("1", context=context, check=True).stderr == ""
    sandbox.code.remove_context(context)
