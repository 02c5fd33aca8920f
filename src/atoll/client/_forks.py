"""What a fork gives back: the copies that were made, and what kept others from being made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from atoll.model.errors import AtollError

Copy = TypeVar("Copy")


class Forks(list[Copy]):
    """A list of the copies; `problems` has one error for each that could not be made."""

    def __init__(self, copies: Iterable[Copy], problems: Sequence[AtollError] = ()) -> None:
        super().__init__(copies)
        self.problems = list(problems)
