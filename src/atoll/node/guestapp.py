"""The guest's code as a folder that sandboxes mount read-only: a few modules of this package, compiled in advance.

The folder is named after its content, so that an upgrade of the server makes a new one and leaves the one that running
sandboxes have mounted as it is.
"""

from __future__ import annotations

import hashlib
import os
import py_compile
import shutil
from pathlib import Path

MOUNT = "/.atoll/app"
RUNTIME_MOUNT = "/.atoll/runtime"

_PACKAGE = Path(__file__).parent.parent
_PARTS = (
    "__init__.py",
    "model/__init__.py",
    "model/files.py",
    "model/headroom.py",
    "model/limits.py",
    "wire/__init__.py",
    "wire/framing.py",
    "wire/guest.py",
)


def sources() -> list[Path]:
    """The modules that run inside, relative to the package."""
    folder = _PACKAGE / "guest"
    kinds = ("*.py", "runners/*.js", "runners/*.java")  # runners of other languages are run by the template's own
    guest = sorted(path.relative_to(_PACKAGE) for kind in kinds for path in folder.rglob(kind))
    return [Path(part) for part in _PARTS] + guest


def publish(folder: Path) -> Path:
    """Put the guest's code below `folder`, if it is not there yet, and say where it is."""
    target = folder / _fingerprint()
    if not target.exists():
        fresh = folder / f".{target.name}-{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        for part in sources():
            (fresh / "atoll" / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_PACKAGE / part, fresh / "atoll" / part)
        _compile(fresh)
        fresh.chmod(0o755)
        fresh.rename(target)
    return target


def _compile(folder: Path) -> None:
    for path in folder.rglob("*.py"):
        inside = f"{MOUNT}/{path.relative_to(folder)}"
        # Unchecked: the folder never changes, and a look at the source costs time at every start.
        py_compile.compile(
            str(path), dfile=inside, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for part in sources():
        digest.update(str(part).encode() + b"\0" + (_PACKAGE / part).read_bytes() + b"\0")
    return digest.hexdigest()[:16]
