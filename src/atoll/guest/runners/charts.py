"""Matplotlib figures as data: what was drawn, axis by axis, so that a client can draw it again.

Read from the artists of the finished figure, because nothing else knows what the libraries on top of matplotlib have
drawn in the end.
"""

from __future__ import annotations

import math
import re
from typing import Any

from atoll.guest.runners.tables import add_formatter, plain

MIME = "application/vnd.atoll.chart+json"
POINTS_MAX = 10_000  # of one line; a chart of more is a picture
_UNIT = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]")
_UNNAMED = re.compile(r"_(?:line|child|container|nolegend_)")


def register(display_formatter: Any) -> None:
    formatter = add_formatter(display_formatter, MIME, "_repr_atoll_chart_")
    formatter.for_type_by_name("matplotlib.figure", "Figure", from_figure)


def from_figure(figure: Any) -> dict[str, Any]:
    """One chart for a figure with one drawn axis, else a `superchart` of them."""
    charts = [from_axes(axes) for axes in figure.axes if axes.get_visible() and not _is_colorbar(axes)]
    title = figure.get_suptitle() if hasattr(figure, "get_suptitle") else ""
    if len(charts) == 1:
        charts[0]["title"] = charts[0]["title"] or title or None
        return charts[0]
    return {"type": "superchart", "title": title or None, "elements": charts}


def _is_colorbar(axes: Any) -> bool:
    return bool(axes.get_label() == "<colorbar>")


def from_axes(axes: Any) -> dict[str, Any]:
    """What kind of chart an axis holds is told by what was drawn into it."""
    for kind, read in (("box_and_whisker", _boxes), ("pie", _wedges), ("bar", _bars)):
        elements = read(axes)
        if elements:
            return {**_head(kind, axes), **(_labels(axes) if kind != "pie" else {}), "elements": elements}
    lines, points = _lines(axes), _scatters(axes)
    if lines or points:
        kind = "line" if lines else "scatter"
        return {**_head(kind, axes), **_labels(axes), **_scales(axes), "elements": lines + points}
    return {**_head("unknown", axes), "elements": []}


def _head(kind: str, axes: Any) -> dict[str, Any]:
    return {"type": kind, "title": axes.get_title() or axes.get_title("left") or None}


def _labels(axes: Any) -> dict[str, Any]:
    x, y = axes.get_xlabel(), axes.get_ylabel()
    return {"x_label": x or None, "y_label": y or None, "x_unit": unit_of(x), "y_unit": unit_of(y)}


def unit_of(label: str) -> str | None:
    """What a label has in its last brackets: "Speed (km/h)" is in km/h."""
    found = _UNIT.findall(label or "")
    return (found[-1][0] or found[-1][1]).strip() or None if found else None


def _scales(axes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        pairs = [
            (plain(float(tick)), label.get_text())
            for tick, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
            if low <= tick <= high
        ]
        values[f"{name}_scale"] = _scale(axis)
        values[f"{name}_ticks"] = [_moment(axis, tick) for tick, _ in pairs]
        values[f"{name}_tick_labels"] = [label for _, label in pairs]
    return values


def _scale(axis: Any) -> str:
    kind = type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__
    if "Date" in kind:
        return "datetime"
    return "categorical" if "Category" in kind else str(axis.get_scale())


def _moment(axis: Any, value: Any) -> Any:
    """A place on an axis: a date where the axis has dates, a name where it has names, else the number."""
    if not isinstance(value, (int, float)):
        return plain(value)
    scale = _scale(axis)
    if scale == "datetime":
        from matplotlib.dates import num2date

        return num2date(value).replace(tzinfo=None).isoformat()
    if scale == "categorical":
        names = {place: name for name, place in axis.units._mapping.items()}
        return names.get(int(value), value) if float(value).is_integer() else value
    return plain(float(value))


def _points(axes: Any, xs: Any, ys: Any) -> list[list[Any]]:
    step = max(1, math.ceil(len(xs) / POINTS_MAX))
    pairs = list(zip(xs, ys, strict=False))[::step]
    return [[_moment(axes.xaxis, plain(x)), _moment(axes.yaxis, plain(y))] for x, y in pairs]


def _label(artist: Any, number: int) -> str:
    label = str(artist.get_label() or "")
    return f"Line {number}" if not label or _UNNAMED.match(label) else label


def _lines(axes: Any) -> list[dict[str, Any]]:
    # A line in coordinates of the axis itself (axhline, a grid) is decoration, not data.
    lines = [line for line in axes.get_lines() if line.get_transform().contains_branch(axes.transData)]
    drawn = [line for line in lines if line.get_visible() and len(line.get_xdata()) > 0]
    return [
        {
            "label": _label(line, number),
            "points": _points(axes, line.get_xdata(orig=False), line.get_ydata(orig=False)),
        }
        for number, line in enumerate(drawn)
    ]


def _scatters(axes: Any) -> list[dict[str, Any]]:
    from matplotlib.collections import PathCollection

    found = [item for item in axes.collections if isinstance(item, PathCollection) and len(item.get_offsets())]
    return [
        {"label": _label(item, number), "points": _points(axes, item.get_offsets()[:, 0], item.get_offsets()[:, 1])}
        for number, item in enumerate(found)
    ]


def _bars(axes: Any) -> list[dict[str, Any]]:
    from matplotlib.container import BarContainer

    elements = []
    groups = [item for item in axes.containers if isinstance(item, BarContainer) and len(item.patches)]
    for number, group in enumerate(groups):
        lying = getattr(group, "orientation", "vertical") == "horizontal"
        for bar in group.patches:
            if lying:
                middle, value, axis = bar.get_y() + bar.get_height() / 2, bar.get_width(), axes.yaxis
            else:
                middle, value, axis = bar.get_x() + bar.get_width() / 2, bar.get_height(), axes.xaxis
            elements.append(
                {"label": _tick_name(axis, middle), "value": plain(float(value)), "group": _label(group, number)}
            )
    return elements


def _tick_name(axis: Any, place: float) -> str:
    """The words below a bar: those of the tick nearest to it, if one is near; else its place."""
    ticks = [
        (abs(tick - place), label.get_text())
        for tick, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False)
    ]
    distance, words = min(ticks, default=(1.0, ""))
    if distance <= 0.5 and words:
        return str(words)
    value = _moment(axis, round(float(place), 9))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _wedges(axes: Any) -> list[dict[str, Any]]:
    from matplotlib.patches import Wedge

    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    return [
        {
            "label": str(wedge.get_label() or ""),
            "angle": plain(abs(float(wedge.theta2) - float(wedge.theta1))),
            "radius": plain(float(wedge.r)),
        }
        for wedge in wedges
    ]


def _boxes(axes: Any) -> list[dict[str, Any]]:
    """Box plots, from the corners of their boxes and the lines around them."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch

    outlines = [patch.get_path().vertices for patch in axes.patches if isinstance(patch, PathPatch)]
    outlines += [line.get_xydata() for line in axes.lines if len(line.get_xydata()) == 5]
    boxes = [corners for corners in outlines if _is_box(corners)]
    lines = [line for line in axes.lines if isinstance(line, Line2D)]
    lying = bool(boxes) and _lies(boxes, lines)
    return [_box(axes, corners, lines, lying) for corners in boxes]


def _is_box(corners: Any) -> bool:
    points = {(round(float(x), 9), round(float(y), 9)) for x, y in corners if x or y}
    xs, ys = {x for x, _ in points}, {y for _, y in points}
    return len(xs) == 2 and len(ys) == 2 and len(corners) in (5, 6)


def _lies(boxes: list[Any], lines: list[Any]) -> bool:
    """Whether the boxes lie: then their whiskers, which begin at the middle of a side, have one height."""
    left, right, low, high = _extent(boxes[0])
    middle_x, middle_y = (left + right) / 2, (low + high) / 2
    for line in lines:
        data = line.get_xydata()
        if len(data) == 2 and _near(data[0][0], data[1][0], middle_x):
            return False
        if len(data) == 2 and _near(data[0][1], data[1][1], middle_y):
            return True
    return False


def _near(*values: float) -> bool:
    return max(values) - min(values) < 1e-9 * (1 + abs(values[0]))


def _extent(corners: Any) -> tuple[float, float, float, float]:
    points = [(float(x), float(y)) for x, y in corners[:4]]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), max(xs), min(ys), max(ys)


def _is_median(data: list[tuple[float, float]], middle: float, along: tuple[float, float]) -> bool:
    """A line across the box, within it."""
    if len(data) != 2 or not _near(data[0][1], data[1][1]) or not along[0] <= data[0][1] <= along[1]:
        return False
    return _near((data[0][0] + data[1][0]) / 2, middle)


def _box(axes: Any, corners: Any, lines: list[Any], lying: bool) -> dict[str, Any]:
    left, right, low, high = _extent(corners)
    across, along = ((low, high), (left, right)) if lying else ((left, right), (low, high))
    middle = sum(across) / 2
    first, third = along
    ends, median, outliers = [first, third], None, []
    for line in lines:
        data = [(float(y), float(x)) if lying else (float(x), float(y)) for x, y in line.get_xydata()]
        if line.get_linestyle() in ("None", "", " "):
            outliers += [value for place, value in data if _near(place, middle)]
        elif len(data) == 2 and _near(data[0][0], data[1][0], middle):
            ends += [data[0][1], data[1][1]]  # a whisker
        elif _is_median(data, middle, along) and _near(abs(data[1][0] - data[0][0]), across[1] - across[0]):
            median = data[0][1]
    return {
        "label": _tick_name(axes.yaxis if lying else axes.xaxis, middle),
        "min": min(ends),
        "first_quartile": first,
        "median": median,
        "third_quartile": third,
        "max": max(ends),
        "outliers": outliers,
    }
