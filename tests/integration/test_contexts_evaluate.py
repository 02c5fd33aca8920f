"""`evaluate`, `atoll run` and the examples, on a real server; and interpreters that are copied or started early."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import evaluate
from atoll.client import Evaluation
from atoll.model.errors import InvalidArgument
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
ATOLL = str(Path(sys.executable).parent / "atoll")


def ask(server: Server, code: str, **options: object) -> Evaluation:
    return evaluate(code, url=server.url, api_key=server.key, **options)  # type: ignore[arg-type]


def run(
    server: Server, *argv: str, stdin: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    feed = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run(
        argv, env=environment, cwd=cwd, capture_output=True, text=True, timeout=90, check=False, **feed
    )


@pytest.fixture(scope="module")
def nothing_left(server: Server) -> Iterator[None]:
    yield
    wait_until(lambda: not server.sandboxes(), 20, "sandboxes of evaluations are gone")


@pytest.mark.usefixtures("nothing_left")
class TestEvaluate:
    def test_everything_comes_back(self, server: Server) -> None:
        code = "import sys\nprint(input() + open('in/a.txt').read())\nprint('e', file=sys.stderr)\n"
        code += "open('out.bin', 'wb').write(bytes([0, 255]))\n6 * 7"
        done = ask(server, code, stdin="x", files={"in/a.txt": "y", "same.txt": "z"})
        assert (done.stdout, done.stderr, done.text, done.exit_code, done.ok) == ("xy\n", "e\n", "42", 0, True)
        assert done.files == {"out.bin": b"\x00\xff"}

    @pytest.mark.parametrize(
        ("language", "code", "out"),
        [
            ("bash", "read a; echo $a$((1 + 1)); exit 7", "in2\n"),
            ("javascript", "console.log(require('fs').readFileSync(0, 'utf8')); process.exit(7)", "in\n\n"),
            ("python", "print(input()); raise SystemExit(7)", "in\n"),
        ],
    )
    def test_exit_codes_and_input(self, server: Server, language: str, code: str, out: str) -> None:
        done = ask(server, code, language=language, stdin="in\n")
        assert (done.stdout, done.exit_code, done.ok) == (out, 7, False)

    def test_limits(self, server: Server) -> None:
        done = ask(server, "import time; time.sleep(60)", timeout_s=1)
        assert (done.status, done.ok) == ("timed_out", False)
        done = ask(server, f"open('big', 'wb').truncate({64 << 20})")
        assert (done.files, done.files_left_out) == ({}, ["big"])
        for path in ("../x", "/etc/x", "", "a/../../x"):
            with pytest.raises(InvalidArgument):
                ask(server, "1", files={path: b""})


class TestRun:
    def test_output_results_and_exit_code(self, server: Server, tmp_path: Path) -> None:
        code = "import os, sys; print(6*7, os.environ['A'], sys.argv[1:]); sys.exit(4)"
        done = run(server, ATOLL, "run", code, "x", "-e", "A=1")
        assert (done.stdout, done.returncode) == ("42 1 ['x']\n", 4), done.stderr
        assert run(server, ATOLL, "run", "-", stdin="1+1").stdout == "2\n"
        script = tmp_path / "script.sh"
        script.write_text("read line; echo $line $1; exit 3")
        done = run(server, ATOLL, "run", "--rm", str(script), "arg", stdin="in\n")
        assert (done.stdout, done.returncode) == ("in arg\n", 3)
        failed = run(server, ATOLL, "run", "--rm", "1/0")
        assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")

    def test_pictures_are_saved(self, server: Server, tmp_path: Path) -> None:
        code = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"
        done = run(server, ATOLL, "run", "--save", "pictures", code, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "pictures/atoll-1.png").read_bytes().startswith(b"\x89PNG")

    def test_keep_leaves_it(self, server: Server) -> None:
        done = run(server, ATOLL, "run", "--keep", "print(1)")
        kept = server.connect(done.stderr.strip().removeprefix("kept: "))
        assert kept.code.run("1").text == "1"
        kept.kill()


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (["data_analysis.py"], "bar chart: Sales in k€"),
        (["agent_loop.py"], "answer: (168, 76127)"),
        (["streaming.py"], "ended: interrupted"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_examples(server: Server, example: list[str], words: str) -> None:
    done = run(server, sys.executable, str(ROOT / "examples" / example[0]), *example[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert words in done.stdout
