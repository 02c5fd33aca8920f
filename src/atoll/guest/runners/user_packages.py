"""Packages that `pip install` puts into the user's own folder while the interpreter runs.

Python looks for that folder once, at its start, and leaves it out if it is not there yet, as in every fresh sandbox.
"""

from __future__ import annotations

import importlib
import os
import site
import sys

_SYSTEM = ("dist-packages", "site-packages")


def find() -> None:
    """Let imports look into the folder from when it exists, before the packages of the system, as at a fresh start."""
    folder = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    if not folder or folder in sys.path or not os.path.isdir(folder):
        return
    before = len(sys.path)
    site.addsitedir(folder)
    added = sys.path[before:]
    del sys.path[before:]
    place = next((index for index, path in enumerate(sys.path) if path.endswith(_SYSTEM)), before)
    sys.path[place:place] = added
    importlib.invalidate_caches()
