"""A list that says whether it is all there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Thing = TypeVar("Thing")


class Listed(list[Thing]):
    """A list; `truncated` says that there is more than the answer may hold, or than was asked for."""

    def __init__(self, things: Iterable[Thing] = (), *, truncated: bool = False) -> None:
        super().__init__(things)
        self.truncated = truncated
