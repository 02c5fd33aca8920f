"""Any Jupyter kernel as a context: the guest's frames on one side, the kernel's own protocol on the other."""

from __future__ import annotations

import os
import queue
import signal
import sys
from typing import Any

from jupyter_client.manager import KernelManager

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
        signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, _number: int, _frame: object) -> None:
        self._manager.interrupt_kernel()

    def serve(self) -> None:
        self._link.send_control(type="ready")
        while True:
            request = self._link.receive()
            if request is None:
                break
            if request["do"] == "run":
                self._run(request["code"])
        self._manager.shutdown_kernel(now=True)

    def _run(self, code: str) -> None:
        """Its environment is that of its start: the protocol has no word for a variable of one run."""
        message_id = self._client.execute(code, allow_stdin=False, store_history=True)
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=1.0)
            except queue.Empty:
                if not self._manager.is_alive():
                    os._exit(1)  # the guest says what became of it
                continue
            if message["parent_header"].get("msg_id") != message_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            self._pass_on(kind, content)
        self._finish(message_id)

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
        elif kind == "error":
            traceback = "\n".join(content.get("traceback") or [])
            self._link.send_error(str(content["ename"]), str(content["evalue"]), traceback)

    def _finish(self, message_id: str) -> None:
        count, failed = 0, False
        while True:
            reply = self._client.get_shell_msg(timeout=30.0)
            if reply["parent_header"].get("msg_id") == message_id:
                count = int(reply["content"].get("execution_count") or 0)
                failed = reply["content"].get("status") != "ok"
                break
        self._link.send_done(count, 1 if failed else 0)


def main(kernel_name: str) -> None:
    link = Link()
    Bridge(link, kernel_name).serve()
