# Generated from src/atoll/client/_async/git.py by tools/unasync.py: change that file, not this one.
"""Git in a sandbox, in one call each, with answers that a program can read."""

from __future__ import annotations

from urllib.parse import urlencode

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.model import limits
from atoll.wire.public import (
    GitAdd,
    GitBranch,
    GitBranchChange,
    GitBranches,
    GitCheckout,
    GitClone,
    GitCommit,
    GitCommitView,
    GitDiff,
    GitDone,
    GitLog,
    GitStatus,
    GitSync,
)

Files = list[str]
Commits = list[GitCommitView]
Branches = list[GitBranch]


class Git:
    """`sb.git`. What git refuses is raised as Conflict (git_failed), with its own words."""

    def __init__(self, transport: Transport, sandbox_path: str) -> None:
        self._transport = transport
        self._path = f"{sandbox_path}/git"

    def clone(
        self,
        url: str,
        path: str | None = None,
        *,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        user: str | int | None = None,
        timeout_s: float = 600,
    ) -> GitDone:
        """Clone a repository. User name and password are used for this call and kept nowhere.

        Example:
            sb.git.clone("https://example.org/a.git", depth=1, username="me", password=token)
        """
        body = GitClone(
            url=url,
            path=path,
            branch=branch,
            depth=depth,
            username=username,
            password=password,
            user=user,
            timeout_s=timeout_s,
        )
        read_s = timeout_s + limits.CLIENT_GRACE_S
        return self._transport.call("POST", f"{self._path}/clone", GitDone, body, read_s=read_s)

    def status(self, path: str, *, user: str | int | None = None) -> GitStatus:
        """The branch, how far it is from its upstream, and which files have changed.

        Example:
            print((sb.git.status("a")).files)
        """
        return self._transport.call(
            "GET", f"{self._path}/status{exchange.query(path=path, user=user)}", GitStatus
        )

    def add(self, path: str, files: Files | None = None, *, user: str | int | None = None) -> GitDone:
        """Stage files; without names, all that has changed.

        Example:
            sb.git.add("a")
        """
        body = GitAdd(path=path, files=files or [], user=user)
        return self._transport.call("POST", f"{self._path}/add", GitDone, body)

    def commit(
        self,
        path: str,
        message: str,
        *,
        author_name: str | None = None,
        author_email: str | None = None,
        all: bool = False,
        allow_empty: bool = False,
        user: str | int | None = None,
    ) -> GitDone:
        """Commit what is staged; with `all`, also changes of files that git knows.

        Example:
            sb.git.commit("a", "Fix it", author_name="Me", author_email="me@example.org")
        """
        body = GitCommit(
            path=path,
            message=message,
            author_name=author_name,
            author_email=author_email,
            all=all,
            allow_empty=allow_empty,
            user=user,
        )
        return self._transport.call("POST", f"{self._path}/commit", GitDone, body)

    def branches(self, path: str, *, user: str | int | None = None) -> Branches:
        """The local branches.

        Example:
            print([b.name for b in sb.git.branches("a")])
        """
        where = f"{self._path}/branches{exchange.query(path=path, user=user)}"
        return (self._transport.call("GET", where, GitBranches)).items

    def branch(
        self, path: str, name: str, *, start: str | None = None, delete: bool = False, user: str | int | None = None
    ) -> GitDone:
        """Make a branch, or delete it.

        Example:
            sb.git.branch("a", "feature")
        """
        body = GitBranchChange(path=path, name=name, start=start, delete=delete, user=user)
        return self._transport.call("POST", f"{self._path}/branches", GitDone, body)

    def checkout(self, path: str, target: str, *, create: bool = False, user: str | int | None = None) -> GitDone:
        """Go to a branch or commit; with `create`, to a new branch.

        Example:
            sb.git.checkout("a", "feature", create=True)
        """
        body = GitCheckout(path=path, target=target, create=create, user=user)
        return self._transport.call("POST", f"{self._path}/checkout", GitDone, body)

    def pull(
        self,
        path: str,
        *,
        remote: str = "origin",
        branch: str | None = None,
        username: str | None = None,
        password: str | None = None,
        user: str | int | None = None,
        timeout_s: float = 600,
    ) -> GitDone:
        """Pull from a remote.

        Example:
            sb.git.pull("a")
        """
        body = GitSync(
            path=path,
            remote=remote,
            branch=branch,
            username=username,
            password=password,
            user=user,
            timeout_s=timeout_s,
        )
        read_s = timeout_s + limits.CLIENT_GRACE_S
        return self._transport.call("POST", f"{self._path}/pull", GitDone, body, read_s=read_s)

    def push(
        self,
        path: str,
        *,
        remote: str = "origin",
        branch: str | None = None,
        username: str | None = None,
        password: str | None = None,
        set_upstream: bool = False,
        force: bool = False,
        user: str | int | None = None,
        timeout_s: float = 600,
    ) -> GitDone:
        """Push to a remote.

        Example:
            sb.git.push("a", branch="feature", set_upstream=True, username="me", password=token)
        """
        body = GitSync(
            path=path,
            remote=remote,
            branch=branch,
            username=username,
            password=password,
            set_upstream=set_upstream,
            force=force,
            user=user,
            timeout_s=timeout_s,
        )
        read_s = timeout_s + limits.CLIENT_GRACE_S
        return self._transport.call("POST", f"{self._path}/push", GitDone, body, read_s=read_s)

    def log(
        self, path: str, *, count: int = 30, revision: str | None = None, user: str | int | None = None
    ) -> Commits:
        """The newest commits, newest first.

        Example:
            print((sb.git.log("a", count=1))[0].message)
        """
        where = exchange.query(path=path, count=count, revision=revision, user=user)
        return (self._transport.call("GET", f"{self._path}/log{where}", GitLog)).items

    def diff(
        self,
        path: str,
        files: Files | None = None,
        *,
        staged: bool = False,
        base: str | None = None,
        user: str | int | None = None,
    ) -> GitDiff:
        """The changes as a patch: what is not staged, what is (`staged`), or all since another commit (`base`).

        Example:
            print((sb.git.diff("a")).text)
        """
        where = exchange.query(path=path, staged=staged, base=base, user=user)
        more = "".join("&" + urlencode({"files": file}) for file in files or [])
        return self._transport.call("GET", f"{self._path}/diff{where}{more}", GitDiff)
