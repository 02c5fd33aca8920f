"""Any Jupyter kernel as a context: the guest's frames on one side, the kernel's own protocol on the other."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
from collections.abc import Callable
from typing import Any

from jupyter_client.manager import KernelManager

from atoll.guest.runners import kernel_env
from atoll.guest.runners.link import STDERR, STDOUT, Link

_READY_S_MAX = 55.0
_STREAMS = {"stdout": STDOUT, "stderr": STDERR}


class Bridge:
    def __init__(self, link: Link, kernel_name: str) -> None:
        self._link = link
        self._shows_values = kernel_name == "ir"  # R's kernel displays the values of expressions
        self._manager = KernelManager(kernel_name=kernel_name)
        self._manager.start_kernel(cwd=os.getcwd(), stdout=sys.stdout.fileno(), stderr=sys.stderr.fileno())
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_READY_S_MAX)
        self._language = str((self._manager.kernel_spec.language if self._manager.kernel_spec else "") or "").lower()
        self._stdin: list[str] | None = None
        self._refused = False
        self._interrupted = False
        self._told_error = False
        signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, _number: int, _frame: object) -> None:
        self._interrupted = True
        self._manager.interrupt_kernel()

    def serve(self) -> None:
        self._link.send_control(type="ready")
        while True:
            request = self._link.receive()
            if request is None:
                break
            if request["do"] == "run":
                self._run_with(request)
        self._manager.shutdown_kernel(now=True)

    def _run_with(self, request: dict[str, Any]) -> None:
        """One run with variables and input of its own. What the guest lets through, the kernel's language can do."""
        if self._language in ("python", "r"):
            self._silently(kernel_env.lasting(self._language, request.get("base_env") or {}))
        before, after = kernel_env.commands(self._language, request.get("env") or {})
        stdin = request.get("stdin")
        self._stdin = None if stdin is None else stdin.splitlines()
        self._refused = self._interrupted = self._told_error = False
        self._silently(before)
        # R ends a text at a NUL byte, and would run the half before it; without it the rest is what it was.
        code = request["code"].replace("\0", "") if self._language == "r" else request["code"]
        try:
            count, exit_code = self._run(code)
        finally:
            self._silently(after)
        self._link.send_done(count, exit_code)

    def _silently(self, code: str) -> None:
        """Something of ours, which leaves no trace in the history and shows nothing."""
        if code:
            message_id = self._client.execute(code, silent=True, store_history=False, allow_stdin=False)
            self._listen(message_id, lambda _kind, _content: None)
            self._reply(message_id)

    def _run(self, code: str) -> tuple[int, int]:
        message_id = self._client.execute(code, allow_stdin=True, store_history=True)
        self._listen(message_id, self._pass_on)
        content = self._reply(message_id)
        failed = self._refused or content.get("status") != "ok"
        if failed and not self._refused and not self._told_error:
            self._tell_why(content)
        return int(content.get("execution_count") or 0), 1 if failed else 0

    def _tell_why(self, content: dict[str, Any]) -> None:
        """Some kernels, R's among them, only answer that an interrupted run has not worked."""
        if self._interrupted:
            self._link.send_error("KeyboardInterrupt", "the code was interrupted", "")
        else:
            name, value = content.get("ename") or "Error", content.get("evalue") or "the kernel says that it failed"
            self._link.send_error(str(name), str(value), "")

    def _listen(self, message_id: str, pass_on: Callable[[str, dict[str, Any]], None]) -> None:
        """Everything that a run shows, until it is over."""
        while True:
            self._answer()
            try:
                message = self._client.get_iopub_msg(timeout=0.1)
            except queue.Empty:
                if not self._manager.is_alive():
                    self._end_as_the_kernel()
                continue
            if message["parent_header"].get("msg_id") != message_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            pass_on(kind, content)

    def _end_as_the_kernel(self) -> None:
        """The guest sees this process only, and says what became of it: so the same becomes of it."""
        process = getattr(self._manager.provisioner, "process", None)
        code = getattr(process, "returncode", None)
        if code is not None and code < 0:
            with contextlib.suppress(OSError):  # SIGKILL has no handler to reset
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(1 if code is None or code < 0 else code)

    def _answer(self) -> None:
        """Give the kernel the next line of what was given, if it asks for one; when there is none, that is its end.

        Where nothing was given a kernel is stopped that asks. It may ask, because some that may not go on with nothing.
        """
        if not self._client.stdin_channel.msg_ready():
            return
        if self._client.get_stdin_msg(timeout=1.0)["msg_type"] != "input_request":
            return
        if self._stdin is not None:
            end = "\x04" if self._language == "python" else ""
            self._client.input(self._stdin.pop(0) if self._stdin else end)
            return
        if not self._refused:
            self._link.send_error("InputNotPossible", "input is not possible here: nobody is there to answer", "")
        self._refused = True
        self._manager.interrupt_kernel()

    def _pass_on(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            self._link.send(_STREAMS.get(content["name"], STDOUT), content["text"].encode("utf-8", "replace"))
        elif kind in ("execute_result", "display_data", "update_display_data"):
            display_id = str(content.get("transient", {}).get("display_id") or "")
            self._link.send_result(
                content["data"],
                main=kind == "execute_result" or (kind == "display_data" and self._shows_values),
                display_id=display_id,
                update=kind == "update_display_data",
            )
        elif kind == "clear_output":
            self._link.send_control(type="cleared", wait=bool(content.get("wait")))
        elif kind == "error" and not self._refused:
            self._told_error = True
            traceback = "\n".join(content.get("traceback") or [])
            self._link.send_error(str(content["ename"]), str(content["evalue"]), traceback)

    def _reply(self, message_id: str) -> dict[str, Any]:
        """What the kernel says of a run that is over."""
        while True:
            reply = self._client.get_shell_msg(timeout=30.0)
            if reply["parent_header"].get("msg_id") == message_id:
                return dict(reply["content"])


def main(kernel_name: str) -> None:
    link = Link()
    Bridge(link, kernel_name).serve()
