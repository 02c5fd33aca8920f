"""Bodies about git: one call, one structured answer."""

from __future__ import annotations

from datetime import datetime

from atoll.wire.public.base import Answer, Request


class GitAccess(Request):
    """Who asks a remote. They are given to git for the time of one call and kept nowhere."""

    username: str | None = None
    password: str | None = None


class GitClone(GitAccess, kw_only=True):
    url: str
    path: str | None = None
    branch: str | None = None
    depth: int | None = None
    user: str | int | None = None
    timeout_s: float = 600


class GitPlace(Request, kw_only=True):
    """Which repository, and as which user."""

    path: str
    user: str | int | None = None


class GitAdd(GitPlace, kw_only=True):
    """Without `files`, everything."""

    files: list[str] = []


class GitCommit(GitPlace, kw_only=True):
    message: str
    author_name: str | None = None
    author_email: str | None = None
    all: bool = False
    allow_empty: bool = False


class GitCheckout(GitPlace, kw_only=True):
    """Go to a branch or commit; with `create`, to a new branch."""

    target: str
    create: bool = False


class GitBranchChange(GitPlace, kw_only=True):
    """Make a branch, or delete it."""

    name: str
    start: str | None = None
    delete: bool = False


class GitSync(GitAccess, kw_only=True):
    """Pull or push."""

    path: str
    remote: str = "origin"
    branch: str | None = None
    user: str | int | None = None
    set_upstream: bool = False
    force: bool = False
    timeout_s: float = 600


class GitFile(Answer):
    """A changed file: `staged` and `unstaged` are git's letters (M, A, D, R, C, U, ?), or empty."""

    path: str
    staged: str
    unstaged: str
    source: str | None = None


class GitStatus(Answer):
    branch: str | None
    commit: str | None
    upstream: str | None
    ahead: int
    behind: int
    files: list[GitFile]


class GitCommitView(Answer):
    commit: str
    parents: list[str]
    author_name: str
    author_email: str
    at: datetime
    message: str


class GitLog(Answer):
    items: list[GitCommitView]


class GitBranch(Answer):
    name: str
    commit: str
    current: bool
    upstream: str | None


class GitBranches(Answer):
    items: list[GitBranch]


class GitDiff(Answer):
    text: str
    truncated: bool


class GitDone(Answer):
    """What git said, and where the repository stands now."""

    path: str
    branch: str | None
    commit: str | None
    output: str
