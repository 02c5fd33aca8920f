"""runsc for this host: found, fetched or built, and never older than the fixes that our isolation rests on.

The order: the operator's own (`ATOLL_RUNSC`), one on PATH that is new enough, an official release from the address that
the operator set (`ATOLL_RUNSC_URL`, with `<address>.sha512` beside it), and a build from the pinned Go module. Whatever
it is, it is asked for its version before it is used.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from atoll.model import limits
from atoll.model.errors import Internal, Unavailable
from atoll.node import spawn
from atoll.node.install import definitions, gotool, workplace
from atoll.node.install.layout import Layout

OLDEST = datetime.date(2026, 8, 24)
_WHY_OLDEST = (
    f"a runsc from before {OLDEST} lets a guest truncate read-only files of the host, open the host's devices "
    "(CVE-2026-96812) and send spoofed packets"
)
_PACKAGE = "gvisor.dev/gvisor/runsc"


def ensure(layout: Layout, release_url: str, say: Callable[[str], None]) -> Path:
    """The runsc to use, put in its slot of the cache if the operator named none."""
    if layout.runsc is not None:
        say(f"runsc: {layout.runsc}, {version_checked(layout.runsc)}")
        return layout.runsc
    slot = layout.runsc_slot()
    if _usable(slot):
        say(f"runsc: ready, {version_checked(slot)}")
        return slot
    slot.parent.mkdir(parents=True, exist_ok=True)
    if (found := shutil.which("runsc")) and _usable(Path(found)):
        workplace.link(Path(found).resolve(), slot)
    elif release_url:
        say(f"runsc: fetching {release_url}")
        _fetch(release_url, slot)
    else:
        say("runsc: building from the pinned module, about a minute ...")
        _build(layout, slot, say)
    say(f"runsc: {version_checked(slot)}")
    return slot


def version_date(version: str) -> datetime.date | None:
    """The day a runsc version is of, from any of the forms in use; None if it does not say.

    release-20260905.0, release-20260905.0-160fafc42237, v0.0.0-20260905035102-160fafc42237, 0.0~20240729.0-5
    """
    for digits in re.findall(r"(?<!\d)(20\d{6})(?:\d{6})?(?!\d)", version):
        try:
            return datetime.datetime.strptime(digits, "%Y%m%d").replace(tzinfo=datetime.UTC).date()
        except ValueError:
            continue
    return None


def is_new_enough(version: str) -> bool:
    day = version_date(version)
    return day is not None and day >= OLDEST


def release_name(go_mod: str) -> str:
    """The version that a build of the pinned module carries: release-20260905.0-160fafc42237."""
    match = re.search(r"gvisor\.dev/gvisor v[\d.]+-(?:0\.)?(\d{8})\d{6}-([0-9a-f]{12})\s*$", go_mod, re.MULTILINE)
    if match is None:
        raise Internal("go.mod does not pin gVisor to a commit", code="bad_pin", detail=go_mod[:512])
    return f"release-{match[1]}.0-{match[2]}"


def version(path: Path) -> str:
    first_line = spawn.run([path, "--version"]).text.partition("\n")[0]
    return first_line.removeprefix("runsc version ").strip()[:128]


def version_checked(path: Path) -> str:
    """The version of a runsc that may be used; raises for one that is missing, silent or too old."""
    if not path.exists():
        raise Unavailable(f"there is no runsc at {path}", code="runsc_missing", hint="correct or unset ATOLL_RUNSC")
    found = version(path)
    if not is_new_enough(found):
        raise Unavailable(
            f"{path} is too old or does not say its version ({found or 'none'})",
            code="runsc_too_old",
            hint=f"unset ATOLL_RUNSC and run set-up again; {_WHY_OLDEST}",
        )
    return found


def _usable(path: Path) -> bool:
    if not path.exists():
        return False
    finished = spawn.run([path, "--version"], check=False)
    return finished.exit_code == 0 and is_new_enough(finished.text.partition("\n")[0])


def _build(layout: Layout, slot: Path, say: Callable[[str], None]) -> None:
    go_mod, go_sum = (definitions.file_bytes("runsc", name) for name in ("go.mod", "go.sum"))
    with workplace.folder(layout.work_dir(), "runsc") as work:
        go = gotool.ensure(go_mod.decode(), work, say)
        (work / "go.mod").write_bytes(go_mod)
        (work / "go.sum").write_bytes(go_sum)
        ldflags = f"-s -w -X {_PACKAGE}/version.version={release_name(go_mod.decode())}"
        workplace.run_logged(
            [go, "build", "-mod=mod", "-trimpath", f"-ldflags={ldflags}", "-o", "runsc", _PACKAGE],
            cwd=work,
            env={**os.environ, "HOME": os.environ.get("HOME", "/root"), "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            log=work / "build.log",
        )
        if (work / "go.sum").read_bytes() != go_sum:
            raise Internal("the build used modules that go.sum does not vouch for", code="bad_pin")
        version_checked(work / "runsc")
        os.chmod(work / "runsc", workplace.PROGRAM_MODE)
        os.rename(work / "runsc", slot)


def _fetch(url: str, slot: Path) -> None:
    if not url.startswith("https://"):
        raise Unavailable("ATOLL_RUNSC_URL must be an https address", code="bad_setting", hint="change or unset it")
    wanted = _read(f"{url}.sha512", limits.KIB).split()[0].decode(errors="replace").lower()
    content = _read(url, limits.RUNSC_BYTES_MAX)
    if not hmac.compare_digest(hashlib.sha512(content).hexdigest(), wanted):
        raise Unavailable(f"what {url} sent does not match its checksum", code="bad_checksum", hint="try again later")
    unfinished = slot.with_suffix(".tmp")
    unfinished.write_bytes(content)
    os.chmod(unfinished, workplace.PROGRAM_MODE)
    version_checked(unfinished)
    os.rename(unfinished, slot)


def _read(url: str, bytes_max: int) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=limits.HELPER_S_MAX) as answer:  # noqa: S310 - https, checked above
            content: bytes = answer.read(bytes_max + 1)
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        raise Unavailable(
            f"{url} cannot be fetched: {error}", code="fetch_failed", hint="check ATOLL_RUNSC_URL"
        ) from None
    if not content or len(content) > bytes_max:
        raise Unavailable(f"{url} sent {len(content)} bytes or more, which cannot be right", code="fetch_failed")
    return content
