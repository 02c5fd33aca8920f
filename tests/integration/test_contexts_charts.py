"""Charts are what the figure shows: each kind is drawn in a real sandbox and compared with what was drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from atoll import Sandbox
from atoll.testing.server import Server

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("code", timeout_s=300) as made:
        made.code.run("import matplotlib.pyplot as plt, datetime", check=True)
        yield made


def chart(sandbox: Sandbox, code: str) -> dict[str, Any]:
    """As the inline backend shows it, with the picture beside."""
    (result,) = sandbox.code.run(f"{code}\nplt.show()", check=True).results
    assert result.png is not None
    assert result.chart is not None
    return result.chart


def test_lines(sandbox: Sandbox) -> None:
    drawn = "plt.plot([1, 2], [3, 4], label='a'); plt.plot([1, 2], [5, 6]); plt.axhline(4)\n"
    drawn += "plt.title('T'); plt.xlabel('time (s)'); plt.ylabel('speed [km/h]')"
    found = chart(sandbox, drawn)
    assert (found["type"], found["title"]) == ("line", "T")
    assert [found[name] for name in ("x_label", "x_unit", "y_label", "y_unit")] == [
        "time (s)",
        "s",
        "speed [km/h]",
        "km/h",
    ]
    assert found["elements"] == [
        {"label": "a", "points": [[1, 3], [2, 4]]},
        {"label": "Line 1", "points": [[1, 5], [2, 6]]},
    ]
    assert len(found["x_ticks"]) == len(found["x_tick_labels"]) > 1


def test_scales(sandbox: Sandbox) -> None:
    found = chart(sandbox, "plt.plot([datetime.date(2024, 1, 1)], [1]); plt.yscale('log')")
    assert (found["x_scale"], found["y_scale"]) == ("datetime", "log")
    assert found["elements"][0]["points"] == [["2024-01-01T00:00:00", 1]]
    found = chart(sandbox, "plt.plot(['a', 'b'], [1, 2])")
    assert (found["x_scale"], found["elements"][0]["points"]) == ("categorical", [["a", 1], ["b", 2]])


def test_points(sandbox: Sandbox) -> None:
    found = chart(sandbox, "plt.scatter([1, 2], [3, 4], label='s')")
    assert (found["type"], found["elements"]) == ("scatter", [{"label": "s", "points": [[1, 3], [2, 4]]}])


def test_bars(sandbox: Sandbox) -> None:
    found = chart(sandbox, "plt.bar(['x', 'y'], [3, 4], label='g')")
    bars = [{"label": "x", "value": 3, "group": "g"}, {"label": "y", "value": 4, "group": "g"}]
    assert (found["type"], found["elements"]) == ("bar", bars)
    assert chart(sandbox, "plt.barh(['x', 'y'], [3, 4], label='g')")["elements"] == bars


def test_pies(sandbox: Sandbox) -> None:
    found = chart(sandbox, "plt.pie([1, 3], labels=['a', 'b'])")
    slices = [{"label": "a", "angle": 90, "radius": 1}, {"label": "b", "angle": 270, "radius": 1}]
    assert (found["type"], found["elements"]) == ("pie", slices)


def test_boxes(sandbox: Sandbox) -> None:
    found = chart(sandbox, "plt.boxplot([[1, 2, 3, 4, 100]], tick_labels=['A'])")
    box = {"label": "A", "min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 4, "outliers": [100]}
    assert (found["type"], found["elements"]) == ("box_and_whisker", [box])


def test_several_axes(sandbox: Sandbox) -> None:
    found = chart(sandbox, "f, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.bar(['k'], [1]); f.suptitle('S')")
    assert (found["type"], found["title"]) == ("superchart", "S")
    assert [part["type"] for part in found["elements"]] == ["line", "bar"]
