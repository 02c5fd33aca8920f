"""What a sandbox knows of its network: whom to trust, and the placeholders that stand for its secrets.

The certificate goes where programs look for certificates (`trust`), and variables lead those there that bring their own
(Python's requests, Node, git). It is public; the key that belongs to it never comes in here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from atoll.guest import trust
from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.params import Params, environment, record, text
from atoll.model import limits

if TYPE_CHECKING:
    from atoll.guest.agent import Agent


def change(agent: Agent, params: Params, channel: Channel) -> None:
    """All values are checked before the first is set. Programs that run already keep what they have."""
    certificate = text(params, "ca", "", chars_max=64 * limits.KIB)
    env = environment(params) if "env" in params else {}
    files = record(params, "files")
    if certificate and "PRIVATE KEY" in certificate:
        raise Refused("invalid_argument", "a certificate is wanted here")
    for path, content in files.items():
        if not path.startswith("/") or not isinstance(content, str) or len(content) > limits.KIB:
            raise Refused("invalid_argument", "files are short texts by absolute path")
    notes: list[str] = []
    if certificate:
        env = {**trust.variables(), **env}
        notes += trust.install(certificate)
    for path, content in files.items():
        try:
            _write(path, content, agent)
        except OSError as error:
            notes.append(f"{path}: {os.strerror(error.errno or 0)}")
    agent.env = {**agent.env, **env}
    channel.send_ok({"notes": notes})


def _write(path: str, content: str, agent: Agent) -> None:
    """A small file that belongs to the default user, in folders that are made where they are missing."""
    user = agent.user_of({})
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, user.uid, user.gid)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchown(fd, user.uid, user.gid)
        os.write(fd, content.encode())
    finally:
        os.close(fd)
