"""Text from elsewhere: what can be kept and searched for, and how the rest is made so."""

from __future__ import annotations


def is_text(value: str) -> bool:
    """Whether every database and every reader can take it: no NUL, and nothing that is no character."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def cleaned(value: str, chars_max: int) -> str:
    """The beginning of a text, with what cannot be kept replaced."""
    kept = value[:chars_max]
    return kept if is_text(kept) else kept.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
