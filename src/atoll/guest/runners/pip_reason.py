"""Why `pip install` reached nothing: pip itself can only say that a name was not found, whoever refused it."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from urllib.parse import urlsplit

_INSTALL = re.compile(r"\bpip3?(?:\.\d+)?\s+(?:-\S+\s+)*(?:install|download)\b([^;|&\n]*)")
# pip's own parser knows its options, variables and files, in which an index may be named.
_ASK = (
    "import sys; from pip._internal.commands import create_command; "
    "print(create_command('install').parser.parse_args(sys.argv[1:])[0].index_url)"
)
_ASK_S_MAX = 20.0
_DNS_S_MAX = 3.0
_REFUSED = 5  # what a sandbox is answered about a name that its policy does not let it reach


def explain(command: str) -> str:
    """A line for who called pip without success; empty where the policy is not the reason, or nobody can tell."""
    found = _INSTALL.search(command)
    host = _index_host(found[1]) if found else ""
    if not host:
        return ""
    code = name_code(host)
    if code is None:
        why = "this sandbox has no network"
    elif code == _REFUSED:
        why = f"this sandbox's network policy does not allow {host}"
    else:
        return ""
    return f"pip could not reach its package index: {why}. Whoever owns the sandbox can allow it in the policy.\n"


def _index_host(arguments: str) -> str:
    try:
        asked = [sys.executable, "-c", _ASK, *shlex.split(arguments)]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_S_MAX, check=False).stdout
        return urlsplit(said.strip()).hostname or ""
    except (ValueError, OSError, subprocess.SubprocessError):
        return ""


def name_code(host: str, resolv_conf: str = "/etc/resolv.conf", port: int = 53) -> int | None:
    """What the resolver answers about a name, which getaddrinfo does not tell; None if there is none, or no answer."""
    try:
        with open(resolv_conf, encoding="utf-8", errors="replace") as file:
            servers = [line.split()[1] for line in file if line.startswith("nameserver ") and len(line.split()) > 1]
        labels = b"".join(bytes([len(label)]) + label for label in host.encode("idna").split(b"."))
        question = b"\0\x2a\x01\0\0\x01\0\0\0\0\0\0" + labels + b"\0\0\x01\0\x01"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(_DNS_S_MAX)
            asking.connect((servers[0], port))
            asking.send(question)
            return asking.recv(512)[3] & 0x0F
    except (OSError, ValueError, IndexError):
        return None
