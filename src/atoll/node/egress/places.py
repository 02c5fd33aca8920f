"""Places for connections of all sandboxes of a node, so that their sum is bounded, and nobody has all of them.

A sandbox has a bound of its own, which its owner may raise; an owner may have many sandboxes. So there is one for all,
and a share of it for each owner. A connection takes one place, and more when it turns out to be one that costs more.
"""

from __future__ import annotations

from collections import Counter

from atoll.model import limits


class Places:
    """Those of one node."""

    def __init__(self) -> None:
        self._taken = 0
        self._of_owner: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        return self._taken

    def has(self, owner: str, count: int = 1) -> bool:
        """Whether so many are there for an owner: the fewer are free the fewer one may have, so that some are left."""
        free = limits.EGRESS_PLACES_MAX - self._taken
        return count <= free and self._of_owner.get(owner, 0) < limits.EGRESS_OWNER_TIMES_FREE * free

    def take(self, owner: str, count: int) -> None:
        """So many more, or less."""
        self._taken += count
        self._of_owner[owner] += count
        if not self._of_owner[owner]:
            del self._of_owner[owner]
