"""Names under `.localhost` lead to this machine (RFC 6761), for Python programs on a host whose resolver forgets it.

Python imports this file at start when its folder is on PYTHONPATH, which `atoll env` asks for only where it is needed.
It stands in the place of another file of this name, so it lets that one run, too.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import socket
import sys
from typing import Any

_LOOPBACK = "127.0.0.1"
_resolve = socket.getaddrinfo


def _is_local(host: Any) -> bool:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    return isinstance(name, str) and name.rstrip(".").lower().endswith(".localhost")


def _getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    return _resolve(_LOOPBACK if _is_local(host) else host, *arguments, **options)


def _run_the_other() -> None:
    own = __file__.rpartition("/")[0]
    others = [path for path in sys.path if path.rstrip("/") != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


socket.getaddrinfo = _getaddrinfo
_run_the_other()
