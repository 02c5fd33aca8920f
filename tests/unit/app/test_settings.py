"""Settings: from four places, in order, typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.app.settings import Settings, load, parse_listen, table, variable
from atoll.model.errors import InvalidArgument


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "atoll.toml"
    file.write_text('listen = "127.0.0.1:1"\nlog_level = "debug"\nmemory_overcommit = 2\n')
    environment = {
        "ATOLL_LISTEN": "127.0.0.1:2",
        "ATOLL_LOG_LEVEL": "error",
        "ATOLL_POOL_SIZE_BYTES": "5",
        "ATOLL_URL": "x",
    }
    settings = load({"listen": "127.0.0.1:3", "data": None}, environment, file)
    assert settings.listen == "127.0.0.1:3"
    assert settings.log_level == "error"
    assert settings.memory_overcommit == 2.0
    assert settings.pool_size_bytes == 5
    assert settings.data == Path("/var/lib/atoll")


@pytest.mark.parametrize(
    "flags",
    [
        {"listen": "nowhere"},
        {"listen": "127.0.0.1:99999"},
        {"trusted_proxies": "proxy.example"},
        {"log_level": "loud"},
        {"memory_overcommit": 0},
        {"pool_size_bytes": -1},
        {"stop_s": -1},
        {"colour": "red"},
    ],
)
def test_what_is_wrong_is_said(flags: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        load(flags, {"ATOLL_CONFIG": "/nonexistent"})
    assert caught.value.code == "invalid_settings"


def test_a_file_that_is_asked_for_must_be_there_and_readable(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        load({}, {}, tmp_path / "none")
    (tmp_path / "bad").write_text("= no toml")
    with pytest.raises(InvalidArgument):
        load({}, {}, tmp_path / "bad")


def test_addresses() -> None:
    assert parse_listen("[::1]:70") == ("::1", 70)
    assert parse_listen("localhost:0") == ("localhost", 0)


@pytest.mark.parametrize(
    ("listen", "metrics", "is_open"),
    [
        ("127.0.0.1:1", "auto", True),
        ("[::1]:1", "auto", True),
        ("0.0.0.0:1", "auto", False),
        ("example.org:1", "auto", False),
        ("0.0.0.0:1", "open", True),
        ("127.0.0.1:1", "key", False),
    ],
)
def test_metrics_are_open_on_this_machine_only(listen: str, metrics: str, is_open: bool) -> None:
    assert load({"listen": listen, "metrics": metrics}, {"ATOLL_CONFIG": "/nonexistent"}).metrics_open == is_open


def test_every_setting_is_described() -> None:
    assert all(description for _, _, _, description in table())
    assert variable("log_level") == "ATOLL_LOG_LEVEL"
    assert Settings().checked() == Settings()
