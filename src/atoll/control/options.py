"""What an operator chooses about control."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from atoll.model.usage import Prices


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Prices, intervals and what is kept for how long."""

    prices: Prices = field(default_factory=Prices)
    currency: str = ""
    usage_interval_s: float = 60.0
    events_keep_days: float = 90.0
    """0 keeps them for ever."""
    events_file: Path | None = None
    webhook_private: bool = False


DEFAULT_OPTIONS: Final = ControlOptions()
