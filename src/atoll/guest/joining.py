"""Several files become one: their bytes in order under one name, and they are gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from atoll.guest.channel import Channel
from atoll.guest.failure import Refused
from atoll.guest.listing import describe
from atoll.guest.params import Params, path, resolve, texts
from atoll.guest.reading import open_regular
from atoll.guest.users import User
from atoll.guest.writing import store
from atoll.model import limits


def join(user: User, params: Params, channel: Channel) -> None:
    """`paths` into `target`, which may be one of them. All or nothing: a full disk leaves them all as they were."""
    sources = [resolve(given, user.home, "paths") for given in texts(params, "paths")]
    target = path(params, user.home, "target")
    if not 1 <= len(sources) <= limits.JOINED_FILES_MAX:
        raise Refused("invalid_argument", f"1 to {limits.JOINED_FILES_MAX} files can be joined")
    for source in sources:  # of what is missing nothing is done
        os.close(open_regular(source)[0])
    name = store(target, {}, _content(sources), user)
    joined = os.path.realpath(name)
    for source in sources:
        if os.path.realpath(source) != joined:
            with suppress(FileNotFoundError):  # it was named twice
                os.unlink(source)
    channel.send_ok(describe(name, os.stat(name)))


def _content(sources: list[str]) -> Iterator[bytes]:
    for source in sources:
        fd, _ = open_regular(source)
        try:
            while data := os.read(fd, limits.FRAME_BYTES_MAX):
                yield data
        finally:
            os.close(fd)
