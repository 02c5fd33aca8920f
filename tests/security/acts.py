"""What a program tries on the network, one act after another: run inside a sandbox, or outside as the control.

Reads acts as JSON from standard input and prints what came of each. Whether that is good is judged by the other end,
which says what it has heard. Standard library only, and of any Python: it runs wherever it is put.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

QUIET_S = 1.0  # after this long without an answer there is none
AFTER_S = 0.1  # and after this long without more of it, that was all
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


def tcp(
    address: str,
    port: int,
    say: str = "",
    sni: str | None = None,
    family: int = 4,
    source: str = "",
    options: str = "",
    tls: bool = False,
) -> str:
    """Connect, say something, and hear what comes back until there is no more."""
    with socket.socket(_FAMILIES[family], socket.SOCK_STREAM) as sock:
        sock.settimeout(QUIET_S * 2)
        if source:
            sock.bind((source, 0))
        if options:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes.fromhex(options))
        sock.connect((address, port))
        link = _tls(sock, sni) if tls else sock
        link.settimeout(QUIET_S)
        link.sendall(say.encode("latin-1"))
        return _all(link)


def _tls(sock: socket.socket, sni: str | None) -> ssl.SSLSocket:
    context = ssl._create_unverified_context()
    context.set_alpn_protocols(["http/1.1"])
    return context.wrap_socket(sock, server_hostname=sni)


def _all(sock: socket.socket) -> str:
    heard = b""
    try:
        while len(heard) < 20_000 and (data := sock.recv(4096)):
            heard += data
            sock.settimeout(AFTER_S)
    except OSError as error:
        if not heard:
            raise ConnectionError(f"no answer: {error}") from None
    if not heard:
        raise ConnectionError("closed without an answer")
    return heard.decode("latin-1")


def udp(address: str, port: int, say: str = "", size: int = 0, family: int = 4) -> str:
    with socket.socket(_FAMILIES[family], socket.SOCK_DGRAM) as sock:
        sock.settimeout(QUIET_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.sendto(say.encode("latin-1") + b"." * size, (address, port))
        return sock.recv(4096).decode("latin-1")


def icmp(address: str) -> str:
    """An echo with the kind of socket that needs no right; the other kind, where that is refused."""
    packet = struct.pack("!BBHHH", 8, 0, 0xF7FF, 0, 0)
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    except PermissionError:
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with sock:
        sock.settimeout(QUIET_S)
        sock.sendto(packet, (address, 0))
        sock.recv(100)
        return "answered"


def opened(family: int, kind: int, protocol: int) -> str:
    """A socket of a kind that forges what others cannot."""
    socket.socket(family, kind, protocol).close()
    return "opened"


def address_added(address: str) -> str:
    """Give this machine a second address, as root may."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        body = struct.pack("BBBBi", socket.AF_INET, 30, 0, 0, socket.if_nametoindex("eth0"))
        for kind in (1, 2):
            body += struct.pack("HH4s", 8, kind, socket.inet_aton(address))
        sock.send(struct.pack("IHHII", 16 + len(body), 20, 0x405, 1, 0) + body)
        (code,) = struct.unpack_from("i", sock.recv(4096), 16)
        if code:
            raise OSError(-code, "refused")
        return "added"


def dns(server: str, name: str, kind: int = 1, over_tcp: bool = False, port: int = 53) -> str:
    """The code of the answer and how many records it has."""
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split(".")) + b"\0"
    question = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0" + labels + struct.pack("!2H", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM) as sock:
        sock.settimeout(QUIET_S)
        sock.connect((server, port))
        sock.sendall((struct.pack("!H", len(question)) if over_tcp else b"") + question)
        answer = sock.recv(4096)[2 if over_tcp else 0 :]
    if len(answer) < 12:
        raise ConnectionError("no answer")
    return f"{answer[3] & 15} {struct.unpack_from('!H', answer, 6)[0]}"


def run(line: str) -> str:
    """A command, for what real programs do better."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise OSError(done.returncode, done.stderr[-300:])
    return done.stdout


_ACTS = {act.__name__: act for act in (tcp, udp, icmp, opened, address_added, dns, run)}


def tried(act: dict[str, Any]) -> list[str]:
    """What came of it: "did" and what was heard, or "failed" and why."""
    try:
        return ["did", _ACTS[act.pop("do")](**act)]
    except Exception as error:
        return ["failed", f"{type(error).__name__}: {error}"]


def main() -> None:
    acts = json.load(sys.stdin)
    with ThreadPoolExecutor(40) as pool:
        print(json.dumps(dict(zip(acts, pool.map(tried, acts.values())))))  # noqa: B905 - of any Python


if __name__ == "__main__":
    main()
