"""New random numbers for a copy of a live Python: when the guest says so, or by a signal while code runs.

It imports nothing that user code may be in the middle of importing: a signal comes between any two instructions.
"""

from __future__ import annotations

import _thread
import os
import random
import signal
import sys
from typing import Any

from atoll.guest.runners.link import Link

# Not one of those that programs use themselves: a handler of theirs would keep a copy from being made.
SIGNAL = signal.SIGRTMAX - 1


def listen(link: Link) -> None:
    """From here on a signal is as good as a message, whatever the main thread is doing."""

    def hear(_number: int, _frame: Any) -> None:
        if _drawn():  # not said from here: this thread may be in the middle of saying something else
            _thread.start_new_thread(_tell, (link,))

    signal.signal(SIGNAL, hear)


def obey(link: Link) -> None:
    """A message has come."""
    if _drawn():
        _tell(link)


def _tell(link: Link) -> None:
    link.send_control(type="reseeded")


def _drawn() -> bool:
    """Nothing of ours is to be seen in user code; a copy of which nobody hears that it has drawn is refused."""
    try:
        reseed()
    except Exception:
        return False
    return True


def reseed() -> None:
    """For everything that keeps its state in user space."""
    ssl = sys.modules.get("_ssl")
    if ssl is not None:
        ssl.RAND_add(os.urandom(32), 32.0)
    bindings = sys.modules.get("cryptography.hazmat.bindings._rust")
    if bindings is not None:  # it brings an OpenSSL of its own
        bindings._openssl.lib.RAND_add(os.urandom(32), 32, 32.0)
    random.seed()
    seed = getattr(sys.modules.get("numpy.random.mtrand"), "seed", None)
    if seed is not None:
        seed(list(os.urandom(16)))
