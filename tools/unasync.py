"""Generates the synchronous SDK, and its tests, from the asynchronous ones: one text, two flavours.

Run without arguments it writes the files; with --check it compares whole files and fails where they differ, where a
file is left over, and where a substitution no longer has anything to do.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"src/atoll/client/_async": "src/atoll/client/_sync", "tests/client_async": "tests/client_sync"}
BANNER = "# Generated from {source} by tools/unasync.py: change that file, not this one.\n"

SUBSTITUTIONS = [
    (r"^pytestmark = pytest\.mark\.anyio\n", ""),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b(__)a(enter|exit|iter|next)(__)\b", r"\1\2\3"),
    (r"\ba(close|read|iter_raw)\b", r"\1"),
    (r"\basync_(?=[a-z])", ""),
    (r"\bhandle_async_request\b", "handle_request"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b_async\b", "_sync"),
]
PATTERNS = [(re.compile(pattern, re.MULTILINE), replacement) for pattern, replacement in SUBSTITUTIONS]


def unasync(text: str, unused: set[str]) -> str:
    for pattern, replacement in PATTERNS:
        text, count = pattern.subn(replacement, text)
        if count:
            unused.discard(pattern.pattern)
    return text


def generate() -> tuple[dict[Path, str], set[str]]:
    """Every file that there should be, and the substitutions that none of them needed."""
    unused = {pattern.pattern for pattern, _ in PATTERNS}
    wanted: dict[Path, str] = {}
    for source_name, target_name in FOLDERS.items():
        for source in sorted((ROOT / source_name).glob("*.py")):
            text = unasync(source.read_text(), unused)
            banner = BANNER.format(source=source.relative_to(ROOT)) if text else ""
            wanted[ROOT / target_name / source.name] = banner + text
    return wanted, unused


def main() -> int:
    wanted, unused = generate()
    faults = [f"substitution is never used: {pattern}" for pattern in sorted(unused)]
    present = {path for target in FOLDERS.values() for path in (ROOT / target).glob("*.py")}
    faults += [f"left over: {path.relative_to(ROOT)}" for path in sorted(present - wanted.keys())]
    for path, text in wanted.items():
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            faults.append(f"not up to date: {path.relative_to(ROOT)} (run tools/unasync.py)")
    print("\n".join(faults) or f"{len(wanted)} files in step", file=sys.stderr if faults else sys.stdout)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
