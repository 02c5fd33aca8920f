"""What the resolver says of a name is told apart: refused, found, and nobody there."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from atoll.guest.runners import pip_reason


@pytest.mark.parametrize("code", [0, 3, 5])
def test_the_answer_of_the_resolver_is_read(tmp_path: Path, code: int) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text("# nothing\nsearch x\nnameserver 127.0.0.1\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind(("127.0.0.1", 0))

        def answer() -> None:
            question, asker = resolver.recvfrom(512)
            assert b"\x05index\x04test\0" in question
            resolver.sendto(question[:2] + bytes([0x81, 0x80 | code]) + question[4:], asker)

        answering = threading.Thread(target=answer)
        answering.start()
        assert pip_reason.name_code("index.test", str(conf), resolver.getsockname()[1]) == code
        answering.join()


def test_nobody_to_ask_is_no_network(tmp_path: Path) -> None:
    assert pip_reason.name_code("index.test", str(tmp_path / "none")) is None
    (tmp_path / "empty").write_text("")
    assert pip_reason.name_code("index.test", str(tmp_path / "empty")) is None


@pytest.mark.parametrize("command", ["pip list", "echo pip", "pip show install", "cat pip.txt && false"])
def test_other_commands_are_not_explained(command: str) -> None:
    assert pip_reason.explain(command) == ""
