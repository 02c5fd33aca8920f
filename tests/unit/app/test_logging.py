"""Nothing secret is in the log."""

from __future__ import annotations

import errno
import io

import pytest

from atoll.app.logging import HIDDEN, Forgiving, redact

KEY = "atoll_" + "k" * 43


@pytest.mark.parametrize("name", ["key", "api_key", "token", "guest_token", "Authorization", "secret", "password"])
def test_fields_that_are_named_like_secrets_are_hidden(name: str) -> None:
    assert redact(None, "info", {name: "x", "event": "e"}) == {name: HIDDEN, "event": "e"}


def test_keys_are_hidden_wherever_they_stand() -> None:
    entry = redact(None, "info", {"event": f"GET /?k={KEY}", "headers": {"authorization": KEY, "x": KEY, "n": 1}})
    assert KEY not in str(entry)
    assert entry["headers"]["n"] == 1


def test_other_fields_stay() -> None:
    entry = {"event": "x", "monkey": "a", "key_id": "ak1", "count": 5}
    assert redact(None, "info", dict(entry)) == entry


def test_a_full_disk_loses_entries_and_not_the_server() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    print("entry", file=Forgiving(Full()), flush=True)
    kept = io.StringIO()
    print("entry", file=Forgiving(kept), flush=True)
    assert kept.getvalue() == "entry\n"
