"""The log of a start that failed, for the owner of the sandbox: which steps were done, and what was said at the end.

It tells nothing of the host: of the runtime's own log only the words of its errors are taken, and paths are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from atoll.model import limits
from atoll.model.errors import AtollError

_PATH = re.compile(r"(?<![\w.])/[\w.@+-]+(?:/[\w.@+-]+)+")
_LEVELS = ("warning", "error", "fatal")


def compose(steps_ms: Mapping[str, float], error: AtollError) -> str:
    """The steps with their times, then what went wrong, then what the runtime and the guest said about it."""
    lines = [f"{step:<20} {ms:9.1f} ms" for step, ms in steps_ms.items()]
    lines.append(f"failed: {error.message} ({error.code})")
    lines += [f"  {line}" for line in _said(error.detail)]
    return "\n".join(lines)[-limits.START_LOG_CHARS_MAX :]


def _said(detail: str) -> list[str]:
    said: list[str] = []
    for line in detail.splitlines():
        text = _words(line.strip())
        if text and text not in said:
            said.append(text)
    return said[-limits.START_LOG_LINES_MAX :]


def _words(line: str) -> str:
    """The words of one line: of a record of the runtime's log its message, if it is a complaint."""
    if '"level"' in line:
        begin = max(0, line.find('{"'))
        try:
            record = json.loads(line[begin:])
        except ValueError:
            return ""  # the first line of a tail is half a record
        complaint = isinstance(record, dict) and record.get("level") in _LEVELS
        line = f"{line[:begin]}{record.get('msg', '') if complaint else ''}".strip()
    return _PATH.sub("<path>", line)
