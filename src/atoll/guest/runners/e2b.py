"""What E2B's interpreter shows beside the usual: lists and dicts as JSON, and pictures as they are saved.

Programs that were written for it count on both; others would wonder. So it is done only in sandboxes that were made
through E2B's API, which their environment tells.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from typing import Any

from atoll.guest.runners.tables import CELLS_MAX, plain

DEPTH_MAX = 50


def wanted() -> bool:
    return os.environ.get("E2B_SANDBOX") == "true"


def register(display_formatter: Any) -> None:
    formatter = display_formatter.formatters["application/json"]
    for kind in (list, dict):
        formatter.for_type(kind, shown)
    sys.meta_path.insert(0, _Pictures())


def shown(value: Any) -> Any:
    """A list or a dict as JSON; None, which is no form at all, for what JSON does not have or what is too large."""
    if not wanted():
        return None
    try:
        return as_json(value, [CELLS_MAX])
    except ValueError:
        return None


def as_json(value: Any, left: list[int], depth: int = 0) -> Any:
    """The value in JSON's own types; ValueError if it has no such form, or more parts than are left."""
    left[0] -= 1 + (len(value) // 16 if isinstance(value, str) else 0)
    if left[0] < 0 or depth > DEPTH_MAX:
        raise ValueError("too large")
    if isinstance(value, dict):
        return {_key(key): as_json(entry, left, depth + 1) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(entry, left, depth + 1) for entry in value]
    found = plain(value)
    if isinstance(found, str) and not isinstance(value, str) and not hasattr(value, "isoformat"):
        raise ValueError("not of JSON")
    return found


def _key(key: Any) -> str:
    if key is None or isinstance(key, (str, int, float)):
        return str(key)
    raise ValueError("not a name")


class _Pictures(importlib.abc.MetaPathFinder):
    """Waits for the library of pictures, which takes too long to be imported for nothing."""

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> Any:
        if name != "PIL.Image":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            show_saved(module.Image)

        loader.exec_module = exec_module


def show_saved(image: Any) -> None:
    """A picture that is saved to a file is a result, too."""
    save = image.save

    def save_and_show(self: Any, fp: Any, *options: Any, **named: Any) -> None:
        save(self, fp, *options, **named)
        if wanted() and isinstance(fp, (str, os.PathLike)):
            from IPython.display import display

            display(self)

    image.save = save_and_show
