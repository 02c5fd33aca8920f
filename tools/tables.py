"""Writes docs/errors.md and docs/settings.md from the code; with --check it only says whether they are up to date.

Error codes are found where they are raised: every call that names a code, with the words and the hint that stand beside
it. So a code cannot be added without appearing in the documentation, and cannot stay there after it has gone.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from atoll.app import settings
from atoll.cli.server import serve
from atoll.model import errors
from atoll.model.errors import AtollError

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "atoll"
DOCS = ROOT / "docs"
SKIPPED = (SOURCE / "client" / "_sync", SOURCE / "testing")  # a generated twin, and kits for tests
NOTICE = "<!-- Written by tools/tables.py; change the code, not this page. -->"

AUDIENCES = {"cli": "CLI", "client": "SDK", "node/install": "set-up", "app": "`atoll serve`"}

# Variables that are no setting of the server: what they choose is needed before there are settings, or elsewhere.
OTHER_VARIABLES = {
    "ATOLL_CONFIG": "The TOML file that `atoll serve` reads.",
    "ATOLL_URL": "The server that the SDK and the CLI talk to; without it, the one on this machine.",
    "ATOLL_API_KEY": "The key that they send; without it, the one in the data directory of the local server.",
    "ATOLL_CA": "A file with the CA that the SDK and the CLI trust; for the local server it is found by itself.",
    "ATOLL_PROCESS": "Inside a sandbox: the id of the process that a program came from; daemons are found by it.",
    "ATOLL_RUNSC_URL": "Set-up: where to fetch an official runsc release, with `<address>.sha512` beside it.",
}


ERRORS_INTRODUCTION = """\
Every error has a class, a stable code and, where there is something to do, a hint. Over HTTP it is a body of type
`application/problem+json` with `status`, `code`, `detail`, `hint`, `retryable` and `request_id`; in Python it is an
exception of the class below from `atoll.model.errors`, with `code`, `message` and `hint`. Programs decide by class or
code, never by the words: those may change."""

CODES_INTRODUCTION = """\
A word in braces is filled in when the error is raised. *from* says where a code comes from if not from the API of a
running server."""

GUEST_INTRODUCTION = """\
Operations inside a sandbox fail with these codes. The words are the guest's. A code that is not in this list becomes
`GuestFailed`."""

SETTINGS_INTRODUCTION = f"""\
What is given first wins: a flag of `atoll serve`, a variable, the TOML file (`{settings.CONFIG_DEFAULT}`, or the one
that `--config` or `ATOLL_CONFIG` names), the default. A value that is wrong, or a name that is not in this table, stops
the server with `invalid_settings`."""


@dataclass(frozen=True, slots=True)
class Raised:
    """One place in the code that raises an error with a code of its own."""

    code: str
    kind: type[AtollError]
    words: str
    hint: str
    audience: str


def main(arguments: list[str]) -> int:
    pages = {DOCS / "errors.md": errors_page(), DOCS / "settings.md": settings_page()}
    if "--check" not in arguments:
        for path, text in pages.items():
            path.write_text(text)
        return 0
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} does not say what the code says: run tools/tables.py", file=sys.stderr)
    return 1 if stale else 0


def errors_page() -> str:
    parts = [
        "# Errors",
        NOTICE,
        ERRORS_INTRODUCTION,
        "## Classes",
        table(("class", "status", "code if it has no narrower one", "retry", "what it means"), _classes()),
        "## Codes",
        CODES_INTRODUCTION,
        table(("code", "class", "from", "what it says", "hint"), _codes(raised())),
        "## Codes of a guest",
        GUEST_INTRODUCTION,
        table(("code", "class", "status"), _guest_codes()),
    ]
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    flags = {parameter.name: f"`{parameter.opts[0]}`" for parameter in serve.params}
    rows = [
        (f"`{name}`", flags.get(name, ""), f"`{variable}`", f"`{default}`" if default else "", text)
        for name, variable, default, text in settings.table()
    ]
    parts = [
        "# Settings",
        NOTICE,
        SETTINGS_INTRODUCTION,
        table(("name in TOML", "flag", "variable", "default", "what it is"), rows),
        "## Other variables",
        table(("variable", "what it is"), [(f"`{name}`", text) for name, text in OTHER_VARIABLES.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _classes() -> Iterator[tuple[str, ...]]:
    """The tree that the module itself draws, beside what the classes say."""
    meanings = _drawn_meanings()
    for kind in kinds():
        sdk_only = kind in (errors.ConnectionFailed, errors.CommandFailed)
        status = "" if sdk_only else str(kind.http_status)
        retry = "yes" if kind.retryable else ""
        yield f"`{kind.__name__}`", status, f"`{kind.default_code}`", retry, meanings[kind.__name__]


def _drawn_meanings() -> dict[str, str]:
    meanings: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        name, _, rest = line.lstrip("│├└─ ").partition(" ")
        if isinstance(getattr(errors, name, None), type):
            meanings[name] = rest.strip().lstrip("0123456789").strip()
    return meanings


def kinds() -> list[type[AtollError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AtollError)]
    return [kind for kind in found if kind is not AtollError]


def _codes(places: Iterable[Raised]) -> Iterator[tuple[str, ...]]:
    """One row for each code and class, with every wording that it comes with."""
    grouped: dict[tuple[str, str], list[Raised]] = {}
    for place in places:
        grouped.setdefault((place.code, place.kind.__name__), []).append(place)
    for (code, kind), group in sorted(grouped.items()):
        served = [place for place in group if not place.audience] or group
        audiences = sorted({place.audience for place in served})
        words = "; ".join(dict.fromkeys(place.words.rstrip(": ") for place in served))
        hints = " ".join(dict.fromkeys(place.hint.rstrip(".") + "." for place in served if place.hint))
        yield f"`{code}`", f"`{kind}`", ", ".join(audiences), words, hints


def _guest_codes() -> Iterator[tuple[str, ...]]:
    for code, kind in sorted(errors.GUEST_CODES.items()):
        yield f"`{code}`", f"`{kind.__name__}`", str(kind.http_status)


def raised() -> Iterator[Raised]:
    """Every place that raises an error with a code of its own."""
    for path in sorted(SOURCE.rglob("*.py")):
        if not any(skipped in path.parents for skipped in SKIPPED):
            yield from _raised_in(ast.parse(path.read_text()), _audience(path))


def _audience(path: Path) -> str:
    inside = path.relative_to(SOURCE).as_posix()
    return next((name for prefix, name in AUDIENCES.items() if inside.startswith(prefix + "/")), "")


def _raised_in(module: ast.Module, audience: str) -> Iterator[Raised]:
    constants = _constants(module)
    for function in _functions(module):
        for call in _own_calls(function):
            kind = _error_class(call.func)
            given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
            if kind is None or "code" not in given or not call.args:
                continue
            for filled in _fillings(given["code"], function, module):
                words = _text(call.args[0], filled) or ""
                hint = _text(_resolved(given.get("hint"), constants), filled) or ""
                yield Raised(_text(given["code"], filled) or "", kind, words, hint, audience)


def _constants(module: ast.Module) -> dict[str, ast.expr]:
    """The values that a module gives a name, so that a hint which several errors share is found."""
    return {
        node.targets[0].id: node.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _resolved(value: ast.expr | None, constants: dict[str, ast.expr]) -> ast.expr | None:
    return constants.get(value.id) if isinstance(value, ast.Name) else value


def _functions(module: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _own_calls(function: ast.AST) -> Iterator[ast.Call]:
    """The calls of a function, without those of functions inside it, which are looked at for themselves."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _own_calls(child)


def _error_class(called: ast.expr) -> type[AtollError] | None:
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, AtollError) else None


def _fillings(
    code: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef, module: ast.Module
) -> list[dict[str, str]]:
    """What the first parameter stands for in a code that is put together from it: one filling for each caller."""
    if isinstance(code, ast.Constant):
        return [{}]
    if not isinstance(code, ast.JoinedStr):
        return []  # passed on from elsewhere, where it is found
    name = function.args.args[0].arg
    callers = (node for node in ast.walk(module) if isinstance(node, ast.Call) and node.args)
    return [
        {name: str(call.args[0].value)}
        for call in callers
        if isinstance(call.func, ast.Name) and call.func.id == function.name and isinstance(call.args[0], ast.Constant)
    ]


def _text(value: ast.expr | None, filled: dict[str, str]) -> str | None:
    """A text as a reader of the documentation should see it: what is only known later stands in braces."""
    if isinstance(value, ast.Constant):
        return str(value.value).partition("\n")[0]
    if isinstance(value, ast.JoinedStr):
        return "".join(_piece(piece, filled) for piece in value.values).partition("\n")[0]
    if isinstance(value, ast.BinOp):
        return _text(value.left, filled)
    return None


def _piece(piece: ast.expr, filled: dict[str, str]) -> str:
    if isinstance(piece, ast.Constant):
        return str(piece.value)
    assert isinstance(piece, ast.FormattedValue)
    name = _name_in(piece.value)
    return filled.get(name, "{" + name.lower() + "}")


def _name_in(value: ast.expr) -> str:
    """The most telling name in an expression: a field before the thing that has it, never a function."""
    called = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    nodes = [node for node in ast.walk(value) if id(node) not in called]
    fields = [node.attr for node in nodes if isinstance(node, ast.Attribute) and not node.attr.startswith("_")]
    names = [
        node.id for node in nodes if isinstance(node, ast.Name) and not hasattr(builtins, node.id) and node.id != "self"
    ]
    return next(iter(fields + names), "…").strip("_")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
