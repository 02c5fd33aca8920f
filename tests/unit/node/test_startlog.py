"""The log of a start that failed says what happened, and nothing of the host."""

from __future__ import annotations

from atoll.model import limits
from atoll.model.errors import Internal
from atoll.node import startlog

DETAIL = """starting container: exit status 1
alf a record","level":"info","time":"x"}
{"msg":"Creating /var/lib/atoll/run/x","level":"info","time":"t"}
{"msg":"cannot open /var/lib/atoll/run/boxes/bx1/config.json: no space","level":"error","time":"t"}
{"msg":"cannot open /var/lib/atoll/run/boxes/bx1/config.json: no space","level":"error","time":"t"}
Traceback: boom"""


def test_steps_then_the_failure_then_what_was_said() -> None:
    text = startlog.compose({"disk": 3.25, "cgroup": 0.5}, Internal("it broke", code="start_failed", detail=DETAIL))
    assert text.splitlines() == [
        "disk                       3.2 ms",
        "cgroup                     0.5 ms",
        "failed: it broke (start_failed)",
        "  starting container: exit status 1",
        "  cannot open <path>: no space",
        "  Traceback: boom",
    ]


def test_it_is_bounded() -> None:
    text = startlog.compose({}, Internal("x", detail="\n".join(f"line {n} " + "y" * 500 for n in range(5000))))
    assert len(text) <= limits.START_LOG_CHARS_MAX
    assert "line 4999" in text
