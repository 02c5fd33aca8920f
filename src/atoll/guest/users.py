"""Users of the sandbox: looked up in its own /etc/passwd and /etc/group, without the C library's name services."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from atoll.guest.failure import Refused

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FILE_BYTES_MAX = 4 * 1024 * 1024
_ID_MAX = 2**32 - 2
_FOUND_MAX = 256  # a caller may ask for every number there is


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    def to_message(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "uid": self.uid,
            "gid": self.gid,
            "groups": list(self.groups),
            "home": self.home,
            "shell": self.shell,
        }


def from_message(value: dict[str, Any]) -> User:
    groups = tuple(value["groups"])
    return User(value["name"], value["uid"], value["gid"], groups, value["home"], value["shell"])


def parse_passwd(text: str) -> list[User]:
    """Entries of /etc/passwd, without their supplementary groups; broken lines are passed over."""
    users = []
    for line in text.split("\n"):
        fields = line.split(":")
        if len(fields) < 7 or not fields[0] or not fields[2].isdecimal() or not fields[3].isdecimal():
            continue
        users.append(
            User(fields[0], int(fields[2]), int(fields[3]), (), fields[5] or "/", fields[6].strip() or "/bin/sh")
        )
    return users


def parse_groups(text: str, name: str) -> tuple[int, ...]:
    """The groups of /etc/group that list this user as a member."""
    found = []
    for line in text.split("\n"):
        fields = line.split(":")
        if len(fields) >= 4 and fields[2].isdecimal() and name in fields[3].strip().split(","):
            found.append(int(fields[2]))
    return tuple(found)


def parse_group_names(text: str) -> dict[int, str]:
    names: dict[int, str] = {}
    for line in text.split("\n"):
        fields = line.split(":")
        if len(fields) >= 3 and fields[2].isdecimal():
            names.setdefault(int(fields[2]), fields[0])
    return names


def find(wanted: str, passwd: str, group: str) -> User:
    """The user with this name or number. A number that nobody has is a user too: without a name, at home in /."""
    users = parse_passwd(passwd)
    match = next((user for user in users if user.name == wanted), None)
    if match is None and wanted.isdecimal() and wanted.isascii() and int(wanted) <= _ID_MAX:
        uid = int(wanted)
        match = next((user for user in users if user.uid == uid), None) or User(wanted, uid, uid, (), "/", "/bin/sh")
    if match is None:
        raise Refused("unknown_user", f"there is no user {wanted!r} in this sandbox")
    groups = (match.gid, *(gid for gid in parse_groups(group, match.name) if gid != match.gid))
    return User(match.name, match.uid, match.gid, groups, match.home, match.shell)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_FILE_BYTES_MAX)
    except OSError:
        return ""


class _LookUps:
    """Who was found, while neither file has changed: each command asks, and reading both takes a millisecond."""

    def __init__(self) -> None:
        self._version: object = None
        self._found: dict[str, User] = {}

    def find(self, wanted: str) -> User:
        version = (_version("/etc/passwd"), _version("/etc/group"))
        if version != self._version or len(self._found) >= _FOUND_MAX:
            self._version, self._found = version, {}
        user = self._found.get(wanted)
        if user is None:
            passwd = _read("/etc/passwd") or "root:x:0:0:root:/root:/bin/sh\n"
            user = self._found[wanted] = find(wanted, passwd, _read("/etc/group"))
        return user


_look_ups = _LookUps()


def _version(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def look_up(wanted: str | int) -> User:
    """As `find`, in this sandbox as it is now. Without any passwd file there is at least root."""
    return _look_ups.find(str(wanted))


def names() -> tuple[dict[int, str], dict[int, str]]:
    """User and group names by number, for listings."""
    users: dict[int, str] = {}
    for user in parse_passwd(_read("/etc/passwd")):
        users.setdefault(user.uid, user.name)
    return users, parse_group_names(_read("/etc/group"))


def base_environment(user: User, *, terminal: bool) -> dict[str, str]:
    """What every program of this user finds, before defaults and the caller's own variables are laid over it."""
    environment = {
        "PATH": DEFAULT_PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
        "LANG": "C.UTF-8",
    }
    if terminal:
        environment["TERM"] = "xterm-256color"
    return environment


def command_shell(user: User) -> str:
    """The shell for a command line: the user's own if it is one, else the first that exists."""
    if os.path.basename(user.shell) in ("bash", "sh", "dash", "ash", "zsh", "ksh") and os.access(user.shell, os.X_OK):
        return user.shell
    return next((shell for shell in ("/bin/bash", "/bin/sh", "/bin/ash") if os.access(shell, os.X_OK)), "/bin/sh")
