"""What the declarations of a JavaScript package say that can be called, and with which options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

# How the parts are called in programs, by the class that they are of.
PARTS = {
    "Sandbox": "Sandbox",
    "SandboxApi": "Sandbox",
    "Commands": "commands",
    "Pty": "pty",
    "Filesystem": "files",
    "Git": "git",
    "CommandHandle": "CommandHandle",
    "WatchHandle": "WatchHandle",
    "Volume": "Volume",
    "Secret": "Secret",
    "TemplateBase": "Template",
}
OPTIONS = {"opts", "options", "network", "metadata", "credentials"}
"""How the parameters are called that hold options."""
NESTED = {"network", "lifecycle", "query", "onTimeout"}
"""Options whose own fields are options."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_BEGIN = re.compile(r"^(?:export )?(?:declare )?(?:abstract )?(class|interface|type) (\w+)(?:<[^={]*>)?", re.MULTILINE)
_METHOD = re.compile(r"^\s+(?!private|protected|constructor)(static )?(\w+)(?:<[^(]*>)?\(", re.MULTILINE)
_FIELD = re.compile(r"^(?:readonly )?(\w+)\??:(.*)$", re.DOTALL)
_GENERIC = re.compile(r"^(Pick|Omit|Partial)<(.*)>$", re.DOTALL)


class Declarations:
    """The types and classes of some `.d.ts` files; a later file's class adds to an earlier one's of that name."""

    def __init__(self, *files: Path) -> None:
        self._types: dict[str, str] = {}
        self._classes: list[tuple[str, str]] = []
        for file in files:
            text = _COMMENT.sub("", file.read_text())
            for begin in _BEGIN.finditer(text):
                self._keep(begin[1], begin[2], _statement(text[begin.end() :]))
        self.connection = self.fields("ConnectionOpts")

    def _keep(self, kind: str, name: str, rest: str) -> None:
        if kind == "class":
            self._classes.append((name, rest.partition("{")[2]))
        elif kind == "interface":
            parents, _, body = rest.partition("{")
            named = parents.replace("extends", "").replace(">, ", "> & ")
            self._types[name] = " & ".join(part for part in (named.strip(), "{" + body) if part)
        else:
            self._types[name] = rest.partition("=")[2].strip().rstrip(";")

    def methods(self) -> dict[str, set[str]]:
        """Each method with its options, but for those of the connection, which every one has."""
        found: dict[str, set[str]] = {}
        for name, body in self._classes:
            for method in _METHOD.finditer(body) if name in PARTS else ():
                known = found.setdefault(f"{PARTS[name]}.{method[1] or ''}{method[2]}", set())
                for parameter in _split(_statement(body[method.end() - 1 :])[1:].partition("):")[0] + ")", ","):
                    named, _, kind = parameter.strip().removesuffix(")").partition(":")
                    if named.rstrip("?") in OPTIONS:
                        known.update(self.fields(kind) - self.connection)
        return found

    def fields(self, kind: str) -> set[str]:
        """The names of the fields of a type, written as in a declaration."""
        kind = kind.strip()
        alternatives = [part for part in _split(kind, "|") if part.strip()]
        parts = alternatives if len(alternatives) > 1 else _split(kind, "&")
        if len(parts) > 1:
            return set().union(*(self.fields(part) for part in parts))
        if generic := _GENERIC.match(kind):
            return self._generic(generic[1], *_split(generic[2], ","))
        if kind.startswith("{"):
            return set(self._members(kind))
        return self.fields(self._types[kind]) if kind in self._types else set()

    def _generic(self, form: str, kind: str, names: str = "") -> set[str]:
        listed = set(re.findall(r"'(\w+)'", names))
        return {"Pick": listed, "Omit": self.fields(kind) - listed, "Partial": self.fields(kind)}[form]

    def _members(self, body: str) -> Iterator[str]:
        for line in _split(body.strip()[1:-1], ";"):
            if field := _FIELD.match(line.strip()):
                yield field[1]
                if field[1] in NESTED:
                    inner = self.fields(field[2])
                    yield from (name if "." in name else f"{field[1]}.{name}" for name in inner)


_OPEN, _CLOSE = "({[<", ")}]>"


def _depths(text: str) -> Iterator[tuple[int, str, int]]:
    """Each character with its place and the depth of brackets after it; the arrow of a function is no bracket."""
    depth = 0
    for place, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE and text[place - 1 : place + 1] != "=>":
            depth -= 1
        yield place, letter, depth


def _statement(text: str) -> str:
    """Up to where a declaration ends: its closing brace, or a semicolon outside of all brackets."""
    for place, letter, depth in _depths(text):
        if depth <= 0 and (letter == ";" or (letter == "}" and text[place + 1 : place + 2] in ("\n", ""))):
            return text[: place + (letter == "}")]
    return text


def _split(text: str, at: str) -> list[str]:
    parts, begin = [], 0
    for place, letter, depth in _depths(text):
        if letter == at and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]
