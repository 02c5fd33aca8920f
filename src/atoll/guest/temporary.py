"""The folder of temporary files: on the sandbox's disk, with its quota, as everything else is.

The boundary lays memory over it where the template's is empty. What lies there would be nobody's process: no guard
could end it, and it has no bound of its own, so that one large download would end the whole sandbox.
"""

from __future__ import annotations

import errno
import os

PATH = "/tmp"
_MNT_DETACH = 2


def lay_bare() -> None:
    """At a boot only: what was restored has the folder that its programs know."""
    try:
        if os.path.ismount(PATH):
            _unmount(PATH)
        os.makedirs(PATH, exist_ok=True)
        os.chmod(PATH, 0o1777)
    except OSError as error:
        os.write(2, f"guest: {PATH} stays in memory: {error}\n".encode())


def _unmount(path: str) -> None:
    import ctypes  # here, because the rest of the guest does without

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(path), _MNT_DETACH) != 0:
        code = ctypes.get_errno() or errno.EIO
        raise OSError(code, os.strerror(code), path)
