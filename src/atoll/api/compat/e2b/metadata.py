"""Labels of files: E2B keeps them in extended attributes below one prefix, and sends them as headers; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from atoll.model import limits
from atoll.model.errors import InvalidArgument

PREFIX: Final = "user.e2b."
HEADER: Final = b"x-metadata-"

_KEY = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")


def from_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The labels that a request wants a file to have."""
    found = {}
    for name, value in headers:
        if name.startswith(HEADER):
            key = name[len(HEADER) :].decode("latin-1").lower()
            text = value.decode("latin-1")
            if not _KEY.fullmatch(key) or len(text) > limits.METADATA_VALUE_CHARS_MAX:
                raise InvalidArgument(f"metadata {key[:40]!r} has a name or a value that is not possible")
            found[key] = text
    if len(found) > limits.METADATA_ENTRIES_MAX:
        raise InvalidArgument(f"a file has at most {limits.METADATA_ENTRIES_MAX} metadata entries")
    return found


def labels(value: Mapping[str, Any]) -> dict[str, str]:
    """The labels in what a guest says about a file; what is no text is left out."""
    attributes = value.get("xattrs")
    if not isinstance(attributes, dict) or len(attributes) > limits.METADATA_ENTRIES_MAX * 4:
        return {}
    return {
        name.removeprefix(PREFIX): text
        for name, text in attributes.items()
        if isinstance(name, str) and isinstance(text, str) and name.startswith(PREFIX)
    }
