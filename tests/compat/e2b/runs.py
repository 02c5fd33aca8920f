"""Which programs run with which clients: a part of them in `make test`, all in `make test-compat`."""

from __future__ import annotations

from typing import Final

from tests.compat.e2b.clients import WHOLE, Client

NEW: Final = Client("python", "new")
OLD: Final = Client("python", "old")
NODE: Final = Client("node", "new")
OLD_NODE: Final = Client("node", "old")

PART: Final = [
    (NEW, "headers_mode", "sync.py"),
    (NEW, "headers_mode", "aio_brief.py"),
    (NODE, "headers_mode", "main.mjs"),
]
REST: Final = [
    (NEW, "headers_mode", "aio.py"),
    (NEW, "headers_mode", "states.py"),
    (NEW, "headers_mode", "options.py"),
    (NEW, "headers_mode", "aio_options.py"),
    (NODE, "headers_mode", "options.mjs"),
    (NEW, "headers_mode", "volumes.py"),
    (NODE, "headers_mode", "volumes.mjs"),
    (NEW, "headers_mode", "calls.py sync"),
    (NEW, "headers_mode", "calls.py async"),
    (NEW, "headers_mode", "calls_new.py sync"),
    (NEW, "headers_mode", "calls_new.py async"),
    (NEW, "errors_mode", "errors.py sync"),
    (NEW, "errors_mode", "errors.py async"),
    (NODE, "errors_mode", "errors.mjs"),
    (OLD, "domain_mode", "calls.py sync"),
    (OLD, "domain_mode", "calls.py async"),
    (OLD, "domain_mode", "errors_old.py sync"),
    (OLD, "domain_mode", "errors_old.py async"),
    (OLD_NODE, "domain_mode", "errors_old.mjs"),
    (NEW, "domain_mode", "domain.py"),
    (OLD, "domain_mode", "domain.py"),
    (NODE, "headers_mode", "calls.mjs"),
    (NODE, "headers_mode", "calls_new.mjs"),
    (OLD_NODE, "domain_mode", "calls.mjs"),
    (NEW, "headers_mode", "wakes.py"),
    (NODE, "headers_mode", "wakes.mjs"),
    (NEW, "domain_mode", "wakes.py"),
    (NODE, "domain_mode", "wakes.mjs"),
    (NEW, "domain_mode", "states.py"),
    (NEW, "domain_mode", "volumes.py"),
    (NODE, "domain_mode", "volumes.mjs"),
    (NEW, "domain_mode", "errors.py sync"),
    (NODE, "domain_mode", "errors.mjs"),
    (NODE, "domain_mode", "options.mjs"),
    (NODE, "domain_mode", "main.mjs"),
    (OLD_NODE, "domain_mode", "main.mjs"),
]
RUNS: Final = PART + REST if WHOLE else PART
