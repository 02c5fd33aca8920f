"""Code in real interpreters in a real sandbox: state, order, results, limits, interrupts, death and rebirth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx2
import pytest

from atoll import Sandbox
from atoll.client import ExecutionEnded, ExecutionOutput, ExecutionResult
from atoll.model import limits
from atoll.model.errors import CodeFailed, InvalidArgument, NotFound
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("code", memory="1GiB", timeout_s=600, env={"OWN": "1"}) as made:
        yield made


def test_state_stays_between_calls(sandbox: Sandbox) -> None:
    assert sandbox.code.run("x = 41", check=True).text is None
    ex = sandbox.code.run("x + 1", check=True)
    assert (ex.text, ex.results[0].main, ex.exit_code) == ("42", True, 0)
    again = sandbox.code.run("x", check=True)
    assert again.execution_count == (ex.execution_count or 0) + 1


def test_events_come_in_order_and_as_they_happen(sandbox: Sandbox) -> None:
    code = (
        "import sys, time\nfrom IPython.display import display\n"
        "print('a')\n!echo b\ndisplay('c')\nprint('d', file=sys.stderr)\ntime.sleep(1)\nprint('e')\n'f'"
    )
    seen: list[tuple[str, float]] = []
    for event in sandbox.code.start(code):
        if isinstance(event, ExecutionOutput):
            seen += [(letter, time.monotonic()) for letter in event.text.split()]
        elif isinstance(event, ExecutionResult):
            seen.append((str(event.text).strip("'"), time.monotonic()))
    assert [letter for letter, _ in seen] == list("abcdef")
    assert seen[4][1] - seen[3][1] > 0.5, "what was written before the pause came before it was over"


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        ("1/0", "ZeroDivisionError", "division by zero"),
        ("def f(:", "SyntaxError", "invalid syntax"),
        ("input('?')", "InputNotPossible", "nobody is there"),
        ("import sys; sys.exit(3)", "SystemExit", "3"),
        ("a = '\0'", "ValueError", "null bytes"),
    ],
)
def test_errors_are_named(sandbox: Sandbox, code: str, name: str, words: str) -> None:
    ex = sandbox.code.run(code)
    assert ex.error is not None
    assert (ex.status, ex.error.name) == ("error", name)
    assert words in ex.error.value
    assert "\x1b" not in ex.error.traceback
    assert ex.exit_code == (3 if name == "SystemExit" else 1)
    with pytest.raises(CodeFailed):
        ex.checked()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import asyncio; await asyncio.sleep(0); 5", "5"),
        ("%precision 2\n3.14159", "3.14"),
        ("y = !echo shell\ny[0]", "'shell'"),
        ("'''\"'`$\\\\'''", repr("\"'`$\\")),
        ("len('" + "x" * 1_500_000 + "')", "1500000"),
        ("import os; os.environ['OWN']", "'1'"),
    ],
)
def test_what_ipython_can(sandbox: Sandbox, code: str, text: str) -> None:
    assert sandbox.code.run(code, check=True).text == text


PACKAGES = (
    *("numpy", "pandas", "polars", "scipy", "sklearn", "matplotlib", "seaborn", "plotly", "PIL", "openpyxl"),
    *("requests", "httpx", "bs4", "lxml", "sympy", "nltk", "networkx"),
)


def test_the_promised_packages_are_there(sandbox: Sandbox) -> None:
    context = sandbox.code.create_context()
    code = f"import importlib\nfor name in {PACKAGES}: importlib.import_module(name)"
    assert sandbox.code.run(code, context=context, check=True).stderr == ""
    sandbox.code.remove_context(context)


def test_env_of_one_run_is_gone_after_it(sandbox: Sandbox) -> None:
    code = "import os; os.environ.get('ONCE')"
    assert sandbox.code.run(code, env={"ONCE": "1"}).text == "'1'"
    assert sandbox.code.run(code).text is None
    assert sandbox.code.run("echo $ONCE", language="bash", env={"ONCE": "a 'b'"}).stdout == "a 'b'\n"
    assert sandbox.code.run("echo -$ONCE-", language="bash").stdout == "--\n"


def test_output_has_a_limit_and_says_so(sandbox: Sandbox) -> None:
    ex = sandbox.code.run(f"print('x' * {limits.EXECUTION_STREAM_BYTES_MAX * 2}); 1")
    assert ex.truncated
    assert ex.stdout.endswith("[cut: stdout is over its limit]\n")
    assert len(ex.stdout) < limits.EXECUTION_STREAM_BYTES_MAX + 100
    assert ex.text == "1", "what comes after it still comes"
    big = sandbox.code.run("'x' * 20_000_000")
    assert "[cut: text/plain of 20000004 bytes is over the limit" in (big.text or "")


def test_output_that_is_no_text(sandbox: Sandbox) -> None:
    assert sandbox.code.run("import os; n = os.write(1, b'a\\xffb\\n')").stdout == "a\ufffdb\n"


def test_displays_can_be_updated_and_cleared(sandbox: Sandbox) -> None:
    code = "from IPython.display import *\nh = display('a', display_id=True)\nh.update('b')"
    assert [result.text for result in sandbox.code.run(code, check=True).results] == ["'b'"]
    (later,) = sandbox.code.run("h.update('c')", check=True).results
    assert (later.text, later.update, later.display_id) == (
        "'c'",
        True,
        sandbox.code.run("print(h.display_id)").stdout.strip(),
    ), "of what was shown before"
    ex = sandbox.code.run("print('a'); display('x'); clear_output(); print('b')", check=True)
    assert (ex.stdout, ex.results) == ("b\n", [])


@pytest.mark.parametrize(
    ("code", "field", "value"),
    [
        ("HTML('<b>x</b>')", "html", "<b>x</b>"),
        ("Markdown('# x')", "markdown", "# x"),
        ("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", "svg", '<svg xmlns="http://www.w3.org/2000/svg"/>'),
        ("Latex('$x$')", "latex", "$x$"),
        ("JSON({'a': [1]})", "json", {"a": [1]}),
        ("Javascript('1')", "javascript", "1"),
        ("display({'application/pdf': 'JVBE', 'x/y': 'z'}, raw=True)", "pdf", "JVBE"),
    ],
)
def test_each_form_of_a_result(sandbox: Sandbox, code: str, field: str, value: object) -> None:
    result = sandbox.code.run(f"from IPython.display import *\n{code}", check=True).results[0]
    assert getattr(result, field) == value
    assert field != "pdf" or result.extra == {"x/y": "z"}


def test_pictures_have_their_bytes(sandbox: Sandbox) -> None:
    from atoll.client import pictures

    code = "from PIL import Image\nfrom IPython.display import Image as Show\nimport io\nb = io.BytesIO()\n"
    code += "Image.new('RGB', (8, 8)).save(b, 'JPEG')\nShow(b.getvalue())"
    ((kind, data),) = pictures(sandbox.code.run(code, check=True).results[0])
    assert (kind, data[:3]) == ("jpeg", b"\xff\xd8\xff")


def test_data_frames_are_data(sandbox: Sandbox) -> None:
    pandas = (
        "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': pd.to_datetime(['2024-01-01'] * 2)})"
    )
    result = sandbox.code.run(pandas, check=True).results[0]
    columns = {"a": [1, 2], "b": ["x", None], "c": ["2024-01-01T00:00:00"] * 2}
    assert result.data == {"columns": columns, "index": [0, 1], "rows": 2, "cut": False}
    assert result.html is not None
    twice = sandbox.code.run("pd.DataFrame([[1, 2]], columns=['a', 'a'])", check=True).results[0]
    assert twice.data is not None
    assert twice.data["columns"] == {"a": [1], "a.1": [2]}
    result = sandbox.code.run("import polars\npolars.DataFrame({'a': [1.5, None]})", check=True).results[0]
    assert result.data == {"columns": {"a": [1.5, None]}, "rows": 2, "cut": False}


def test_contexts_are_apart_and_run_side_by_side(sandbox: Sandbox) -> None:
    one, two = (sandbox.code.create_context(cwd="/tmp") for _ in range(2))
    try:
        sandbox.code.run("import os; z = 1", context=one, check=True)
        missing = sandbox.code.run("z", context=two)
        assert missing.error is not None
        assert missing.error.name == "NameError"
        assert sandbox.code.run("os.getcwd()", context=one).text == "'/tmp'"
        slow = [sandbox.code.start("import time; time.sleep(1)", context=context) for context in (one, one, two)]
        started_s = time.monotonic()
        assert [run.wait().status for run in slow] == ["ok"] * 3
        assert 1.5 < time.monotonic() - started_s < 2.9, "in one context in order, in two at once"
        assert {one.id, two.id} <= {context.id for context in sandbox.code.contexts()}
        sandbox.code.restart(one)
        assert sandbox.code.run("z", context=one).status == "error"
    finally:
        for context in (one, two):
            sandbox.code.remove_context(context)
    with pytest.raises(NotFound):
        sandbox.code.run("1", context=one)


def test_an_interrupt_keeps_the_state(sandbox: Sandbox) -> None:
    sandbox.code.run("k = 1")
    run = sandbox.code.start("import time\nwhile True: time.sleep(0.1)")
    wait_until(lambda: any(context.state == "busy" for context in sandbox.code.contexts()), 5)
    assert run.interrupt()
    ended = run.wait()
    assert ended.error is not None
    assert (ended.status, ended.error.name) == ("interrupted", "KeyboardInterrupt")
    assert sandbox.code.run("k").text == "1"


def test_a_loop_in_c_is_ended_at_its_time_limit(sandbox: Sandbox) -> None:
    """It does not look at signals, so its interpreter has to go; the next call finds a new one."""
    context = sandbox.code.create_context()
    sandbox.code.run("1", context=context)
    started_s = time.monotonic()
    ex = sandbox.code.run("sum(range(10**12))", context=context, timeout_s=0.5)
    assert ex.status == "timed_out"
    assert ex.error is not None
    assert "did not react" in ex.error.value
    assert time.monotonic() - started_s < limits.CONTEXT_INTERRUPT_GRACE_S + 5
    assert sandbox.code.run("2", context=context).text == "2"
    sandbox.code.remove_context(context)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_a_dead_interpreter_is_reported_and_born_again(sandbox: Sandbox, code: str, words: str) -> None:
    ex = sandbox.code.run(code)
    assert ex.error is not None
    assert (ex.status, ex.error.name) == ("died", "ContextDied")
    assert words in ex.error.value
    assert sandbox.code.run("'alive'").text == "'alive'"


def test_a_caller_who_leaves_interrupts_unless_asked_otherwise(server: Server, sandbox: Sandbox) -> None:
    path = f"/v1/sandboxes/{sandbox.id}/contexts/python/executions"
    for stays in (False, True):
        body = {"code": "import time\nfor i in range(20): time.sleep(0.1)\n'end'", "interrupt_on_disconnect": not stays}
        ended = sandbox.code.attach(_ask_and_leave(server, path, body)).wait()
        assert (ended.status, ended.text) == (("ok", "'end'") if stays else ("interrupted", None))


def _ask_and_leave(server: Server, path: str, body: dict[str, object]) -> str:
    headers = {"authorization": f"Bearer {server.key}"}
    with httpx2.stream("POST", server.url + path, headers=headers, json=body) as response:
        return str(json.loads(next(response.iter_lines()))["id"])


def test_an_execution_can_be_read_again_from_any_event(sandbox: Sandbox) -> None:
    run = sandbox.code.start("from IPython.display import display\nfor i in range(3): display(i)")
    assert len(run.wait().results) == 3
    again = sandbox.code.attach(run.id)
    again._reader.seen = 2
    rest = list(again)
    assert [type(event) for event in rest] == [ExecutionResult, ExecutionEnded]
    with pytest.raises(NotFound):
        sandbox.code.attach("0" * 12).wait()


def test_an_unknown_language_says_which_there_are(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match=r"there are bash, java, javascript, python, r, typescript"):
        sandbox.code.run("1", language="cobol")


LANGUAGES = [
    ("javascript", "console.log('hello')", "const x = await Promise.resolve(41)", "x + 1", "throw new TypeError('no')"),
    ("typescript", "console.log('hello')", "const x: number = 41", "x + 1", "throw new TypeError('no')"),
    ("bash", "echo hello", "x=41", "echo $((x + 1))", "false"),
    ("r", "cat('hello\\n')", "x <- 41", "x + 1", "stop('no')"),
    ("java", 'System.out.println("hello");', "int x = 41;", "x + 1", "int y = 1 / 0;"),
]


@pytest.mark.parametrize(("language", "hello", "define", "use", "fail"), LANGUAGES, ids=[row[0] for row in LANGUAGES])
def test_each_language_has_hello_state_and_errors(
    sandbox: Sandbox, language: str, hello: str, define: str, use: str, fail: str
) -> None:
    assert sandbox.code.run(hello, language=language, check=True).stdout == "hello\n"
    assert sandbox.code.run(define, language=language, check=True).ok
    ex = sandbox.code.run(use, language=language, check=True)
    assert (ex.text or ex.stdout).split()[-1] == "42"
    failed = sandbox.code.run(fail, language=language)
    assert failed.status == "error"
    assert failed.error is not None
    assert failed.error.name
    assert sandbox.code.run(use, language=language).ok, "an error does not end the interpreter"
    if language in ("r", "java"):
        sandbox.code.remove_context(language)  # the largest ones; the next test needs the memory


QUESTIONS = "require('readline/promises').createInterface({input: process.stdin}).question('?')"
INPUT = [
    # the language, the variable ONCE, one line of standard input, and what asks for one
    ("python", "import os; print(os.environ.get('ONCE'))", "print(input())", "input()"),
    ("javascript", "console.log(process.env.ONCE)", f"console.log(await {QUESTIONS})", f"await {QUESTIONS}"),
    ("bash", "echo ${ONCE-None}", "read line; echo $line", "read line"),
    ("r", "cat(Sys.getenv('ONCE', 'None'), sep = '\\n')", "cat(readline(), sep = '\\n')", "readline()"),
    (
        "java",
        'System.out.println(System.getenv("ONCE"));',
        "System.out.println(new Scanner(System.in).nextLine());",
        "new Scanner(System.in).nextLine()",
    ),
]
ODD = "a 'b' \"c\" \\ é \U0001f600"


@pytest.mark.parametrize(("language", "show", "read", "ask"), INPUT, ids=[row[0] for row in INPUT])
def test_variables_and_input_of_one_run(sandbox: Sandbox, language: str, show: str, read: str, ask: str) -> None:
    """Given for one run, gone after it; and who asks for input that nobody gave hears so at once."""
    try:
        assert sandbox.code.run(show, language=language, env={"ONCE": ODD}, check=True).stdout == f"{ODD}\n"
        assert sandbox.code.run(show, language=language).stdout.strip() in ("None", "undefined", "null")
        assert sandbox.code.run(read, language=language, stdin="one é\ntwo\n", check=True).stdout == "one é\n"
        asked = sandbox.code.run(ask, language=language, timeout_s=60)
        assert asked.status == "error"
        assert sandbox.code.run(show, language=language).ok, "nothing of it is left in the interpreter"
    finally:
        if language in ("r", "java"):
            sandbox.code.remove_context(language)


def test_any_installed_kernel_is_found_by_its_name(sandbox: Sandbox) -> None:
    """What a kernel cannot be given is refused; what it can is gone after the run."""
    where = "/usr/local/share/jupyter/kernels"
    for name, language in (("plain", "python"), ("odd", "odd")):
        make = f'mkdir {where}/{name}; sed \'s/"language": "python"/"language": "{language}"/\' '
        sandbox.commands.run(
            f"{make} {where}/python3/kernel.json > {where}/{name}/kernel.json", user="root", check=True
        )
    code = "import os; os.environ.get('ONCE')"
    assert sandbox.code.run(code, language="plain", env={"ONCE": ODD}).text == repr(ODD)
    assert sandbox.code.run(code, language="plain").text is None
    assert sandbox.code.run("input()", language="plain", stdin="x\n").text == "'x'"
    ended = sandbox.code.run("input(), input()", language="plain", stdin="x\n")
    assert ended.error is not None
    assert ended.error.name == "EOFError"
    sandbox.code.remove_context("plain")
    with pytest.raises(InvalidArgument) as caught:
        sandbox.code.run(code, language="odd", env={"ONCE": "1"})
    assert caught.value.code == "unsupported"
    asked = sandbox.code.run("input()", language="odd", timeout_s=60)
    assert asked.error is not None
    assert (asked.status, asked.error.name) == ("error", "InputNotPossible")
    sandbox.code.remove_context("odd")


def test_cells_of_javascript_can_be_run_twice(sandbox: Sandbox) -> None:
    code = "import { sep } from 'path'; const a = 1; let b = 2; class C {}; function f() { return a + b }\nawait 0; f()"
    for _ in range(2):
        assert sandbox.code.run(code, language="js", check=True).text == "3"
    assert sandbox.code.run("for (;;) {}", language="js", timeout_s=0.5).status == "timed_out"
    assert sandbox.code.run("[a, sep]", language="js").text == "[ 1, '/' ]"


def test_an_interrupted_shell_keeps_its_variables(sandbox: Sandbox) -> None:
    ex = sandbox.code.run("kept=1\nsleep 30\necho never", language="bash", timeout_s=0.5)
    assert (ex.status, ex.stdout) == ("timed_out", "")
    assert sandbox.code.run("echo $kept", language="bash").stdout == "1\n"


def test_a_copy_draws_new_random_numbers(sandbox: Sandbox) -> None:
    """The signal is what a busy interpreter gets when its sandbox is copied; an idle one gets a message."""
    code = "import os, signal, random, numpy\n"
    code += "def draw():\n    random.seed(1); numpy.random.seed(1)\n"
    code += "    if copied: os.kill(os.getpid(), signal.SIGRTMAX - 1)\n"
    code += "    return random.random(), numpy.random.random()\n"
    code += "copied = False; a, b = draw(), draw(); copied = True; c = draw()\na == b, a[0] != c[0], a[1] != c[1]"
    assert sandbox.code.run(code, check=True).text == "(True, True, True)"
