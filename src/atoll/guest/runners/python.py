"""The Python context: IPython's own shell, driven over a socket, so that magics, displays and `await` are all its own.

Started by the guest in the template's own Python. Without IPython there is no such context; the guest says so.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import signal
import subprocess
import sys
import warnings
from io import StringIO
from types import TracebackType
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

from atoll.guest.runners import charts, e2b, pip_reason, reseeding, tables, user_packages
from atoll.guest.runners.link import STDERR, STDOUT, Link
from atoll.guest.runners.streams import Stream

_FLUSHED = ("stdout", "stderr")
_SHELL = "/bin/bash" if os.path.exists("/bin/bash") else None


class InputNotPossible(EOFError):
    """Nobody is there to answer; an input() that waited would wait for ever."""


class ResultHook(DisplayHook):  # type: ignore[misc]
    """The value of a cell's last expression."""

    runner: Runner

    def write_output_prompt(self) -> None:
        """There is no prompt here."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:  # noqa: ARG002
        self.runner.show(format_dict, main=True)

    def finish_displayhook(self) -> None:
        """All is sent already."""


class Publisher(DisplayPublisher):  # type: ignore[misc]
    """What `display()` shows."""

    runner: Runner

    def publish(self, data: dict[str, Any], metadata: Any = None, source: Any = None, **options: Any) -> None:  # noqa: ARG002
        transient = options.get("transient") or {}
        display_id = str(transient.get("display_id") or "")
        self.runner.show(data, main=False, display_id=display_id, update=bool(options.get("update")))

    def clear_output(self, wait: bool = False) -> None:
        self.runner.flush()
        self.runner.link.send_control(type="cleared", wait=bool(wait))


class Shell(InteractiveShell):  # type: ignore[misc]
    """IPython without a terminal: tracebacks are values, and nothing waits for a keyboard."""

    displayhook_class = Type(ResultHook)
    display_pub_class = Type(Publisher)
    failure: tuple[str, str, str] | None = None

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        name = getattr(etype, "__name__", str(etype))
        self.failure = (name, _text_of(evalue), "\n".join(stb))

    def init_virtualenv(self) -> None:
        """The interpreter is the one that the template chose."""

    def init_sys_modules(self) -> None:
        super().init_sys_modules()
        sys.modules["__main__"] = self.user_module

    def system_piped(self, cmd: str) -> None:
        """`!cmd`: its output goes where that of every child goes; IPython's own way needs a terminal for it."""
        sys.stdout.flush()
        sys.stderr.flush()
        line = self.var_expand(cmd, depth=1)
        code = self.user_ns["_exit_code"] = subprocess.call(line, shell=True, executable=_SHELL)
        if code and "pip" in line:
            sys.stderr.write(pip_reason.explain(line))
        user_packages.find()

    system = system_piped

    def ask_exit(self) -> None:
        raise SystemExit(0)

    def set_next_input(self, s: str, replace: bool = False) -> None:
        """There is no next input to prefill."""


class Runner:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.streams = {"stdout": Stream(link, STDOUT, 1), "stderr": Stream(link, STDERR, 2)}
        self._stdin: StringIO | None = None
        sys.stdout, sys.stderr = self.streams["stdout"], self.streams["stderr"]
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        self.shell = Shell.instance(config=config)
        self.shell.displayhook.runner = self
        self.shell.display_pub.runner = self
        charts.register(self.shell.display_formatter)
        tables.register(self.shell.display_formatter)
        e2b.register(self.shell.display_formatter)
        builtins.input = self._input
        warnings.filterwarnings("ignore", message="To exit: use")
        self.shell.user_ns["exit"] = self.shell.user_ns["quit"] = sys.exit

    def flush(self) -> None:
        for name in _FLUSHED:
            self.streams[name].flush()
            current = getattr(sys, name)
            if current is not self.streams[name] and hasattr(current, "flush"):
                current.flush()

    def show(self, data: dict[str, Any], *, main: bool, display_id: str = "", update: bool = False) -> None:
        self.flush()
        self.link.send_result(dict(data), main=main, display_id=display_id, update=update)

    def _input(self, prompt: object = "", /) -> str:
        if self._stdin is None:
            raise InputNotPossible("input() is not possible here: nobody is there to answer")
        sys.stdout.write(str(prompt))
        line = self._stdin.readline()
        if not line:
            raise EOFError("EOF when reading a line")
        return line.rstrip("\n")

    def run(self, request: dict[str, Any]) -> None:
        os.environ.update(request.get("base_env") or {})
        before = _environment_set(request.get("env") or {})
        stdin = request.get("stdin")
        self._stdin = None if stdin is None else StringIO(stdin)
        user_packages.find()
        old_stdin = sys.stdin
        if self._stdin is not None:
            sys.stdin = self._stdin
        try:
            exit_code = self._execute(request["code"], request["id"])
        finally:
            sys.stdin = old_stdin
            _environment_restore(before)
            self.flush()
        self.link.send_done(self.shell.execution_count - 1, exit_code)

    def _check_interrupt(self, ident: str) -> None:
        """An interrupt that came before its signal could be heard."""
        while self.link.has_more():
            request = self.link.receive()
            if request is None or (request["do"] == "interrupt" and request["id"] == ident):
                raise KeyboardInterrupt

    def _execute(self, code: str, ident: str) -> int:
        self.shell.failure = None
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._check_interrupt(ident)
            result = self.shell.run_cell(code, store_history=True)
            error = result.error_before_exec or result.error_in_exec
        except (
            BaseException
        ) as raised:  # an interrupt between two steps of the shell, or a hook of the user's that failed
            error = raised
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt that comes too late shall hit nobody
        if error is None:
            return 0
        self.flush()
        name, value, traceback = self.shell.failure or (type(error).__name__, _text_of(error), "")
        self.link.send_error(name, value, traceback)
        if isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else (0 if error.code is None else 1)
        return 1

    def serve(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        reseeding.listen(self.link)
        self.link.send_control(type="ready")
        while True:
            request = self.link.receive()
            if request is None:
                return
            if request["do"] == "run":
                self.run(request)
            elif request["do"] == "warm":
                self.shell.run_cell("1", silent=True, store_history=False)  # the first cell of a process is slow
            elif request["do"] == "reseed":
                reseeding.obey(self.link)


def _environment_set(values: dict[str, str]) -> dict[str, str | None]:
    """Set variables; what they were before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    return before


def _environment_restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # user code: __str__ may do anything
        return f"<{type(error).__name__} that cannot be shown>"


def _hide_ourselves() -> None:
    """User code may have its own package of our name, and shall find that one."""
    for name in [name for name in sys.modules if name == "atoll" or name.startswith("atoll.")]:
        del sys.modules[name]
    sys.path[0] = ""
    sys.argv[:] = [""]


def _keep_the_process(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For threads of user code: their tracebacks go to standard error as everywhere."""
    sys.__excepthook__(kind, error, trace)


def main() -> None:
    link = Link()
    asyncio.set_event_loop(asyncio.new_event_loop())
    runner = Runner(link)
    sys.excepthook = _keep_the_process
    _hide_ourselves()
    runner.serve()
