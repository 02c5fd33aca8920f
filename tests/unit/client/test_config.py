"""Which server and which key are chosen, and where the key of the local server may go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atoll.client._config import Config, discover
from atoll.model.errors import ConnectionFailed, InvalidArgument, Unauthenticated

LOCAL = "http://127.0.0.1:7070"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "server.json").write_text(json.dumps({"url": LOCAL, "pid": 1}))
    (tmp_path / "key").write_text("atoll_local\n")
    return tmp_path


def test_arguments_come_before_the_environment(data: Path) -> None:
    environ = {"ATOLL_URL": "http://b:1", "ATOLL_API_KEY": "env", "ATOLL_DATA": str(data)}
    assert discover("http://a:1/", "arg", environ) == Config("http://a:1", "arg")
    assert discover(None, None, environ) == Config("http://b:1", "env")


def test_the_local_server_is_found_by_itself(data: Path) -> None:
    assert discover(None, None, {"ATOLL_DATA": str(data)}) == Config(LOCAL, "atoll_local")
    assert discover(LOCAL, None, {"ATOLL_DATA": str(data)}) == Config(LOCAL, "atoll_local")


def test_the_local_key_is_not_sent_elsewhere(data: Path) -> None:
    with pytest.raises(Unauthenticated) as caught:
        discover("https://elsewhere.example", None, {"ATOLL_DATA": str(data)})
    assert caught.value.code == "no_key"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"url": 5}'])
def test_no_server_says_how_to_start_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "server.json").write_text(content)
    with pytest.raises(ConnectionFailed) as caught:
        discover(None, None, {"ATOLL_DATA": str(tmp_path)})
    assert "atoll serve" in caught.value.hint


def test_a_missing_key_file_is_told(data: Path) -> None:
    (data / "key").unlink()
    with pytest.raises(Unauthenticated, match="key"):
        discover(None, None, {"ATOLL_DATA": str(data)})


@pytest.mark.parametrize(
    "url", ["ftp://a", "a:1", "http://", "http://a:99999", "http://u:p@a", "http://a?x=1", "http://["]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        discover(url, "key", {})


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(Config(LOCAL, "secret"))
    assert Config("http://localhost:1", "k").is_loopback
    assert not Config("http://10.0.0.1:1", "k").is_loopback
