"""Data frames as values: columns of plain lists, so that a client can work with what it is shown."""

from __future__ import annotations

import datetime
import itertools
import math
from typing import Any

MIME = "application/vnd.atoll.data+json"
ROWS_MAX = 10_000  # more is a file, not something to show
CELLS_MAX = 200_000


def register(display_formatter: Any) -> None:
    formatter = add_formatter(display_formatter, MIME, "_repr_atoll_data_")
    for module in ("pandas.core.frame", "pandas"):  # where the class says that it lives depends on the version
        formatter.for_type_by_name(module, "DataFrame", from_pandas)
    for module in ("polars.dataframe.frame", "polars"):
        formatter.for_type_by_name(module, "DataFrame", from_polars)


def add_formatter(display_formatter: Any, mime: str, method: str) -> Any:
    """A form of results of our own, beside those that IPython knows."""
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    class Formatter(BaseFormatter):  # type: ignore[misc]
        format_type = Unicode(mime)
        print_method = ObjectName(method)
        _return_type = dict

        def pop(self, typ: Any, default: Any = None) -> Any:  # noqa: ARG002 - IPython's signature
            """Stays: IPython forgets all forms of figures when it chooses those of its own."""
            return default

    formatter = Formatter(parent=display_formatter)
    display_formatter.formatters[mime] = formatter
    display_formatter.active_types = [*display_formatter.active_types, mime]
    return formatter


def _rows_shown(rows: int, columns: int) -> int:
    return min(rows, ROWS_MAX, CELLS_MAX // max(1, columns))


def from_pandas(frame: Any) -> dict[str, Any]:
    shown = frame.iloc[: _rows_shown(*frame.shape)]
    columns: dict[str, list[Any]] = {}
    for place, name in enumerate(shown.columns):
        columns[_unused(_name(name), columns)] = [plain(value) for value in shown.iloc[:, place]]
    return _table(columns, [plain(value) for value in shown.index], len(frame))


def from_polars(frame: Any) -> dict[str, Any]:
    shown = frame.head(_rows_shown(*frame.shape))
    columns = {name: [plain(value) for value in shown[name].to_list()] for name in shown.columns}
    return _table(columns, None, len(frame))


def _table(columns: dict[str, list[Any]], index: list[Any] | None, rows: int) -> dict[str, Any]:
    shown = len(next(iter(columns.values()), index or []))
    table: dict[str, Any] = {"columns": columns, "rows": rows, "cut": shown < rows}
    if index is not None:
        table["index"] = index
    return table


def _unused(name: str, taken: dict[str, list[Any]]) -> str:
    """Columns of pandas may share a name: the second `a` is `a.1`, as pandas itself names it when it reads a table."""
    if name not in taken:
        return name
    return next(fresh for number in itertools.count(1) if (fresh := f"{name}.{number}") not in taken)


def _name(name: Any) -> str:
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def plain(value: Any) -> Any:
    """A value as JSON has it; what JSON does not have becomes text, and a missing value null."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        value = item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return str(value)
