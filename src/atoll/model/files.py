"""Names in archives and folders that come from somebody else: which of them stay inside.

A link may point up only with leading `..`, which count from a real folder; so where it leads can be told from its text
alone, whatever other links there are.
"""

from __future__ import annotations

from atoll.model import limits

ARCHIVE_FORMATS = ("tar", "tar.gz", "zip")
SKIPPED_FIELD = "ATOLL.skipped"
"""Of an extended header of a tar, and of a zip's comment: what could not be packed, or not whole, as JSON."""


class UnsafeName(ValueError):
    """A name that is absolute, goes up or is too deep; the text says which."""


def entry_parts(name: str) -> list[str]:
    """The folders and the name of an entry. Empty for the root itself."""
    if name.startswith("/") or "\0" in name:
        raise UnsafeName(f"an entry has an absolute name: {name[:256]!r}")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafeName(f"an entry leads out of the folder: {name[:256]!r}")
    if len(parts) > limits.TREE_DEPTH_MAX:
        raise UnsafeName("an entry is too deep")
    return parts


def link_stays_inside(parts: list[str], target: str) -> bool:
    """Whether a link at `parts` may say `target`."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = 0
    while ups < len(steps) and steps[ups] == "..":
        ups += 1
    return not (target.startswith("/") or "\0" in target or ".." in steps[ups:] or ups > len(parts) - 1)
