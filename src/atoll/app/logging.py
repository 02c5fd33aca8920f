"""The log: structured entries on standard error, with nothing secret in them."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast

import structlog

from atoll.app.settings import Settings

_SECRET = re.compile(r"(?:^|_)(?:token|key|secret|authorization|password|cookie)$", re.IGNORECASE)
_KEY = re.compile(r"atoll_[A-Za-z0-9_-]{43}")
HIDDEN = "[hidden]"


def configure(settings: Settings) -> None:
    """Set up logging for this process."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    as_text = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    ending: list[structlog.typing.Processor] = (
        [redact, _console()]
        if as_text
        else [structlog.processors.format_exc_info, redact, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Forgiving(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    # Libraries log through the standard module; only what they complain about is of interest.
    logging.basicConfig(
        level=max(level, logging.WARNING), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )


class Forgiving:
    """Where the log goes. An entry that cannot be written, on a full disk, is lost; the server goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def _console() -> structlog.dev.ConsoleRenderer:
    """For people. Tracebacks are plain: the default also prints local variables, and those may hold secrets."""
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)


def redact(_logger: Any, _method: str, entry: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Hide the values of fields that are named like secrets, and keys wherever they stand in a text."""
    return {name: _hidden(name, value) for name, value in entry.items()}


def _hidden(name: str, value: Any) -> Any:
    if _SECRET.search(name):
        return HIDDEN
    if isinstance(value, str):
        return _KEY.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {key: _hidden(str(key), item) for key, item in value.items()}
    return value
