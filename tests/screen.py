"""A small model of a terminal's screen: enough of the usual sequences to see what a person would see."""

from __future__ import annotations

import re

_CSI = re.compile(r"\x1b\[([?>=!]?)([0-9;:]*)([ -/]*)([@-~])")
_OTHER = re.compile(r"\x1b(\][^\x07\x1b]*(\x07|\x1b\\)|P[^\x1b]*\x1b\\|[()*+].|[=>78DEHMNOZc])")


class Screen:
    """Cells and a cursor; colours and modes are read and forgotten."""

    def __init__(self, cols: int, rows: int) -> None:
        self.cols, self.rows = cols, rows
        self._cells = [[" "] * cols for _ in range(rows)]
        self._row = self._col = 0
        self._rest = ""
        self._raw = b""

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def __contains__(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def feed(self, data: bytes) -> None:
        self._raw += data
        text = self._raw.decode("utf-8", "ignore")
        self._raw = b""
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = _CSI.match(text, at) or _OTHER.match(text, at)
                if found is None:
                    if len(text) - at > 256:
                        at += 1
                        continue
                    self._rest = text[at:]
                    return
                if found.re is _CSI and not found[1]:
                    self._act(found[4], [int(n) if n.isdigit() else 0 for n in found[2].split(";")])
                elif found[0] == "\x1bM":
                    self._row = max(0, self._row - 1)
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _put(self, char: str) -> None:
        if char == "\n":
            self._down()
        elif char == "\r":
            self._col = 0
        elif char == "\b":
            self._col = max(0, self._col - 1)
        elif char == "\t":
            self._col = min(self.cols - 1, (self._col // 8 + 1) * 8)
        elif char >= " ":
            if self._col >= self.cols:
                self._col = 0
                self._down()
            self._cells[self._row][self._col] = char
            self._col += 1

    def _down(self) -> None:
        if self._row == self.rows - 1:
            self._cells = [*self._cells[1:], [" "] * self.cols]
        else:
            self._row += 1

    def _act(self, final: str, numbers: list[int]) -> None:
        first = numbers[0]
        count = max(1, first)
        if final in "Hf":
            self._row = min(self.rows, count) - 1
            self._col = min(self.cols, max(1, numbers[1] if len(numbers) > 1 else 1)) - 1
        elif final in "ABCD":
            self._row = min(self.rows - 1, max(0, self._row + {"A": -count, "B": count}.get(final, 0)))
            self._col = min(self.cols - 1, max(0, self._col + {"C": count, "D": -count}.get(final, 0)))
        elif final == "G":
            self._col = min(self.cols, count) - 1
        elif final == "d":
            self._row = min(self.rows, count) - 1
        elif final == "J":
            self._erase_below(first)
        elif final == "K":
            low, high = {0: (self._col, self.cols), 1: (0, self._col + 1)}.get(first, (0, self.cols))
            self._cells[self._row][low:high] = [" "] * (min(high, self.cols) - low)
        elif final == "P":
            row = self._cells[self._row]
            self._cells[self._row] = (row[: self._col] + row[self._col + count :] + [" "] * count)[: self.cols]

    def _erase_below(self, which: int) -> None:
        if which in (2, 3):
            self._cells = [[" "] * self.cols for _ in range(self.rows)]
            return
        self._cells[self._row][self._col :] = [" "] * (self.cols - self._col)
        for row in range(self._row + 1, self.rows):
            self._cells[row] = [" "] * self.cols
