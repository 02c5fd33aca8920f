"""Which languages this sandbox can run, and how the interpreter of each is started.

Ours are in the table; any other name is that of a Jupyter kernel that the template has installed.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass

from atoll.guest.failure import Refused
from atoll.guest.users import User

ALIASES = {
    "py": "python",
    "python3": "python",
    "ipython": "python",
    "js": "javascript",
    "node": "javascript",
    "nodejs": "javascript",
    "ts": "typescript",
    "sh": "bash",
    "shell": "bash",
}
OURS = {"python": "python3", "javascript": "node", "typescript": "node", "bash": "bash", "java": "java"}
# The Jupyter protocol has no word for a variable of one run; in these languages the bridge knows how to set one.
KERNELS_WITH_ENV = frozenset({"python", "r"})
_APP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_RUNNERS = f"{_APP}/atoll/guest/runners"
_IMPORT = f"import sys; sys.path.insert(0, {_APP!r}); from atoll.guest.runners.{{0}} import main; main({{1}})"
# Node cannot move a descriptor: the shell puts the connection where it is found, and nothing on standard input.
_NODE = 'exec node --no-warnings --experimental-vm-modules "$0" "$1" 3<&0 </dev/null'
_KERNEL_FILE_BYTES_MAX = 64 * 1024
_NAME_CHARS_MAX = 64


@dataclass(frozen=True, slots=True)
class Language:
    """How code of one language is run. `reseed` says what a copy of a live interpreter needs."""

    name: str
    argv: tuple[str, ...]
    protocol: str = "frames"
    reseed: str = "restart"  # or "message"
    confirms: bool = True  # whether it says while it is busy that it has new random numbers
    takes_env: bool = True  # whether variables can be given for one run


def canonical(name: str) -> str:
    lowered = name.strip().lower()
    return ALIASES.get(lowered, lowered)


def find(name: str, user: User, path: str) -> Language:
    """The language of this name; Refused says which there are."""
    wanted = canonical(name)
    if wanted in OURS:
        if shutil.which(OURS[wanted], path=path) is None:
            raise Refused("unsupported", f"the program {OURS[wanted]}, which {wanted} needs, is not in this template")
        return _ours(wanted)
    kernel = _kernel(wanted, user)
    if kernel is not None:
        argv = ("python3", "-c", _IMPORT.format("jupyter", repr(kernel)))
        spoken = kernels(user)[kernel].get("language")
        return Language(wanted, argv, takes_env=isinstance(spoken, str) and spoken.lower() in KERNELS_WITH_ENV)
    raise Refused("unsupported", f"there is no language {wanted[:64]!r} here; there are {', '.join(known(user, path))}")


def _ours(name: str) -> Language:
    if name == "python":
        return Language(name, ("python3", "-c", _IMPORT.format("python", "")), reseed="message")
    if name == "bash":
        argv = ("bash", "--norc", "--noprofile", "--noediting", "-i")
        return Language(name, argv, protocol="bash", reseed="message", confirms=False)
    if name == "java":
        options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        opens = ("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED")
        return Language(name, ("java", *options, *opens, f"{_RUNNERS}/JavaRunner.java"))
    return Language(name, ("sh", "-c", _NODE, f"{_RUNNERS}/node.js", name))


def known(user: User, path: str) -> list[str]:
    """The names that can be asked for."""
    ours = [name for name, program in OURS.items() if shutil.which(program, path=path)]
    others = {_language_of(spec) or name for name, spec in kernels(user).items()}
    return sorted({*ours, *others} - set(ALIASES))


def kernels(user: User) -> dict[str, dict[str, object]]:
    """The kernels that are installed, by name: those of the user first, as Jupyter has it."""
    found: dict[str, dict[str, object]] = {}
    for folder in (f"{user.home}/.local/share/jupyter", "/usr/local/share/jupyter", "/usr/share/jupyter"):
        try:
            names = sorted(os.listdir(f"{folder}/kernels"))[:256]
        except OSError:
            continue
        for name in names:
            spec = _read_spec(f"{folder}/kernels/{name}/kernel.json")
            if spec is not None and len(name) <= _NAME_CHARS_MAX:
                found.setdefault(name.lower(), spec)
    return found


def _read_spec(path: str) -> dict[str, object] | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, encoding="utf-8") as file:
            spec = json.loads(file.read(_KERNEL_FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    return spec if isinstance(spec, dict) else None


def _language_of(spec: dict[str, object]) -> str:
    language = spec.get("language")
    name = language.lower() if isinstance(language, str) else ""
    return "" if name in OURS or len(name) > _NAME_CHARS_MAX else name


def _kernel(wanted: str, user: User) -> str | None:
    """A kernel by its own name, else one whose language is asked for."""
    installed = kernels(user)
    if wanted in installed:
        return wanted
    return next((name for name, spec in installed.items() if _language_of(spec) == wanted), None)
