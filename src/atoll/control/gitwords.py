"""What git is asked and what it answers, without running it: argument lists, environment, and its machine formats."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from atoll.model.errors import InvalidArgument

# Fields apart by unit separators, records by record separators: no name or message may hold them and stay what it was.
LOG_FORMAT = "%H%x1f%P%x1f%an%x1f%ae%x1f%ct%x1f%B%x1e"
BRANCH_FORMAT = "%(HEAD)%1f%(refname:short)%1f%(objectname)%1f%(upstream:short)%1e"

# git asks this for a user name and a password. They come from the environment of that one git: never in an argument,
# which others can see, and never in a file. It is asked for one place only: not for one that a redirect, a submodule
# or `url.*.insteadOf` leads to.
_HELPER = (
    '!f() { test "$1" = get || exit 0; '
    'printf "username=%s\\npassword=%s\\n" "$GIT_CREDENTIAL_USERNAME" "$GIT_CREDENTIAL_PASSWORD"; }; f'
)


# Who one is, in the address of a server that is asked over the web; also behind the name of a transport (http::http://).
_WEB_USER = re.compile(r"(?:https?|ftps?):[/\\]*[^/?#]*@", re.IGNORECASE)

# A star would be any name to git, which matches places by patterns.
_WEB_PLACE = re.compile(r"(?:https?::)?(https?)://(?:[^/?#]*@)?([^/?#@*\s]+)(?:[/?#]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class File:
    path: str
    staged: str
    unstaged: str
    source: str | None = None


@dataclass(slots=True)
class Status:
    branch: str | None = None
    commit: str | None = None
    upstream: str | None = None
    ahead: int = 0
    behind: int = 0
    files: list[File] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Commit:
    commit: str
    parents: list[str]
    author_name: str
    author_email: str
    at: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    commit: str
    current: bool
    upstream: str | None


def named(value: str, what: str) -> str:
    """A name that git cannot take for an option."""
    if not value or value.startswith("-") or any(ord(char) < 32 for char in value):
        raise InvalidArgument(f"{value[:80]!r} is not a {what}", code="invalid_git_name")
    return value


def checked_url(url: str, what: str = "repository address") -> str:
    """The address of a remote, or its name. One with a secret in it would be kept in the repository's own file.

    A token may stand where the user name stands; so over HTTP an address says neither.
    """
    named(url, what)
    try:
        parts = urlsplit(url)
        secret = parts.password is not None or _WEB_USER.search(url) is not None
    except ValueError:
        raise InvalidArgument(f"{url[:80]!r} is not a {what}", code="invalid_git_name") from None
    if secret:
        raise InvalidArgument(
            "the address holds a user name or a password, which git would keep on disk",
            code="password_in_url",
            hint="Give username and password apart.",
        )
    if parts.scheme in ("ext", "fd"):
        raise InvalidArgument(f"{parts.scheme} addresses run programs", code="invalid_git_name")
    return url


def place_of(url: str) -> str | None:
    """Scheme, host and port of an address over the web: what a password is for. None for all others."""
    found = _WEB_PLACE.match(url)
    return f"{found[1].lower()}://{found[2].lower()}" if found else None


def environment(username: str | None = None, password: str | None = None, url: str = "") -> dict[str, str]:
    """For one run of git: it never asks a person, and it answers in its own language. A password is for the place of
    this address and for no other.
    """
    variables = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8", "GIT_PAGER": "cat"}
    place = place_of(url)
    if password is not None and place is not None:
        variables |= {
            "GIT_CREDENTIAL_USERNAME": username or "",
            "GIT_CREDENTIAL_PASSWORD": password,
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "credential.helper",
            "GIT_CONFIG_VALUE_0": "",  # forgets the helpers that are configured, which might store what they hear
            "GIT_CONFIG_KEY_1": f"credential.{place}.helper",
            "GIT_CONFIG_VALUE_1": _HELPER,
        }
    return variables


def folder_of(url: str) -> str:
    """The folder that a clone without a path goes into, as git names it."""
    name = url.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1].removesuffix(".git")
    return named(name, "folder")


def parse_status(text: str) -> Status:
    """`git status --porcelain=v2 --branch -z`."""
    status = Status()
    words = iter(text.split("\0"))
    for word in words:
        kind, _, rest = word.partition(" ")
        if kind == "#":
            _header(status, rest)
        elif kind == "1":
            fields = rest.split(" ", 7)
            if len(fields) == 8:
                status.files.append(File(fields[7], *_letters(fields[0])))
        elif kind == "2":
            fields = rest.split(" ", 8)
            if len(fields) == 9:
                status.files.append(File(fields[8], *_letters(fields[0]), source=next(words, None)))
        elif kind == "u":
            fields = rest.split(" ", 9)
            if len(fields) == 10:
                status.files.append(File(fields[9], *_letters(fields[0])))
        elif kind == "?":
            status.files.append(File(rest, "", "?"))
    return status


def _header(status: Status, rest: str) -> None:
    name, _, value = rest.partition(" ")
    if name == "branch.oid" and value != "(initial)":
        status.commit = value
    elif name == "branch.head" and value != "(detached)":
        status.branch = value
    elif name == "branch.upstream":
        status.upstream = value
    elif name == "branch.ab":
        ahead, _, behind = value.partition(" ")
        status.ahead, status.behind = _number(ahead), _number(behind)


def _letters(pair: str) -> tuple[str, str]:
    return pair[:1].replace(".", ""), pair[1:2].replace(".", "")


def _number(text: str) -> int:
    digits = text.lstrip("+-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def parse_log(text: str) -> list[Commit]:
    commits = []
    for record in text.split("\x1e"):
        fields = record.lstrip("\n").split("\x1f", 5)
        if len(fields) == 6 and fields[4].isdigit() and len(fields[4]) < 12:
            at = datetime.fromtimestamp(int(fields[4]), UTC)
            commits.append(Commit(fields[0], fields[1].split(), fields[2], fields[3], at, fields[5].rstrip("\n")))
    return commits


def parse_branches(text: str) -> list[Branch]:
    branches = []
    for record in text.split("\x1e"):
        fields = record.lstrip("\n").split("\x1f")
        if len(fields) == 4 and not fields[1].startswith("("):
            branches.append(Branch(fields[1], fields[2], fields[0] == "*", fields[3] or None))
    return branches
