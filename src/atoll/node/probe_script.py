"""What hostile code tries first, tried from inside a sandbox: run there by `probes`, never on a host.

Prints one JSON object: for each probe, what happened. Whether that is good is judged outside, where the canaries are.
Standard library only; it runs on the guest's own interpreter, so that any template can be probed.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from functools import partial

CLONE_NEWUSER = 0x10000000


def attempt(act: Callable[[], object]) -> str:
    """The name of the error that an act met, or "done"."""
    try:
        act()
    except OSError as error:
        return error.strerror or type(error).__name__
    return "done"


def truncate_by_open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))


def overwrite(path: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"changed")
    os.close(fd)


def read_only_binds(path: str) -> dict[str, str]:
    return {
        "open for writing": attempt(lambda: overwrite(path)),
        "open and truncate": attempt(lambda: truncate_by_open(path)),
        "truncate": attempt(lambda: os.truncate(path, 0)),
        "chmod": attempt(lambda: os.chmod(path, 0o777)),
        "utime": attempt(lambda: os.utime(path, (0, 0))),
        "unlink": attempt(lambda: os.unlink(path)),
        "rename": attempt(lambda: os.rename(path, path + ".x")),
        "xattr": attempt(lambda: os.setxattr(path, "user.x", b"x")),
    }


def open_device(number: tuple[int, int]) -> None:
    major, minor = number
    path = f"/root/probe-{major}-{minor}"
    os.mknod(path, 0o20666, os.makedev(major, minor))
    try:
        fd = os.open(path, os.O_RDWR)
        os.close(fd)
    finally:
        os.unlink(path)


def devices() -> dict[str, str]:
    wanted = {"kvm": (10, 232), "mem": (1, 1), "kmsg": (1, 11), "cuse": (10, 203), "loop-control": (10, 237)}
    return {name: attempt(partial(open_device, number)) for name, number in wanted.items()}


def open_socket(family: int, kind: int, protocol: int) -> None:
    socket.socket(family, kind, protocol).close()


def raw_sockets() -> dict[str, str]:
    return {
        "raw": attempt(lambda: open_socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
        "packet": attempt(lambda: open_socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)),
    }


def raw_sockets_in_user_namespace() -> dict[str, str]:
    """The same in a user namespace of one's own, where a process has every capability it can name."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        entered = libc.unshare(CLONE_NEWUSER) == 0
        found = raw_sockets() if entered else {"raw": "no user namespace", "packet": "no user namespace"}
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(child, 0)
    result: dict[str, str] = json.loads(os.read(reader, 4096))
    return result


def connect(address: str, port: int) -> None:
    """Reach somebody. The gate takes a connection to see where it wants to go, so being let in counts for nothing."""
    with socket.create_connection((address, port), timeout=0.5) as sock:
        sock.sendall(b"?")
        if not sock.recv(1):
            raise ConnectionAbortedError("closed without an answer")


def network(host_port: int) -> dict[str, str]:
    targets = {
        "gateway": ("10.0.0.1", host_port),
        "host by loopback name": ("127.0.0.1", host_port),
        "metadata service": ("169.254.169.254", 80),
        "private range": ("192.168.0.1", 80),
        "public address": ("192.0.2.1", 443),
    }
    return {name: attempt(partial(connect, *target)) for name, target in targets.items()}


def environ_of_init() -> str:
    """As an ordinary user: what process 1 was started with is not for everybody."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.write(writer, attempt(lambda: open("/proc/1/environ", "rb").read()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reader, 4096).decode()


def main(bind_path: str, canary_path: str, host_port: str) -> None:
    print(
        json.dumps(
            {
                "read_only_binds": read_only_binds(bind_path),
                "devices": devices(),
                "raw_sockets": raw_sockets(),
                "raw_sockets_in_user_namespace": raw_sockets_in_user_namespace(),
                "network": network(int(host_port)),
                "environ_of_init": environ_of_init(),
                "canary_seen": os.path.exists(canary_path),
                "host_processes": [pid for pid in os.listdir("/proc") if pid.isdigit()],
                "kernel": os.uname().release,
            }
        )
    )


main(*sys.argv[1:])
