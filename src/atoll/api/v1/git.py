"""/v1/sandboxes/{sandbox}/git: one call for each thing that is done with a repository."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.v1.sandboxes import ONE as SANDBOX
from atoll.control import gitwords
from atoll.control.git import Git
from atoll.model import limits
from atoll.model.errors import Conflict, DeadlineExceeded, GuestFailed, InvalidArgument, NotFound, TooLarge
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
    GitFile,
    GitLog,
    GitStatus,
    GitSync,
)


class PlaceQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which repository, and as which user."""

    path: str
    user: str | None = None


class LogQuery(PlaceQuery):
    """How many commits, from which on."""

    count: int = 30
    revision: str | None = None


class DiffQuery(PlaceQuery):
    """What is not staged yet, or what is; against another commit; of some files only."""

    staged: bool = False
    base: str | None = None
    files: list[str] = []


async def _at(call: Call[Any, Any], path: str | None, user: str | int | None) -> Git:
    return Git(
        await call.control.guest(call.principal, call.path["sandbox"]), path, None if user is None else str(user)
    )


async def _done(git: Git, path: str, output: str) -> GitDone:
    status = await git.status()
    return GitDone(path=path, branch=status.branch, commit=status.commit, output=output[: limits.GIT_SAID_CHARS_MAX])


async def clone(call: Call[GitClone, Nothing]) -> GitDone:
    body = call.body
    url = gitwords.checked_url(body.url)
    path = body.path or gitwords.folder_of(url)
    options = ["--branch", gitwords.named(body.branch, "branch")] if body.branch else []
    if body.depth is not None:
        options += ["--depth", str(max(1, body.depth))]
    env = gitwords.environment(body.username, body.password, url)
    arguments = ["clone", "--no-progress", *options, "--", url, gitwords.named(path, "folder")]
    ran = await (await _at(call, None, body.user)).run(arguments, env=env, timeout_s=body.timeout_s)
    return await _done(await _at(call, path, body.user), path, ran.stderr)


async def status(call: Call[Nothing, PlaceQuery]) -> GitStatus:
    found = await (await _at(call, call.query.path, call.query.user)).status()
    files = [GitFile(**dataclasses.asdict(file)) for file in found.files]
    return GitStatus(
        branch=found.branch,
        commit=found.commit,
        upstream=found.upstream,
        ahead=found.ahead,
        behind=found.behind,
        files=files,
    )


async def log(call: Call[Nothing, LogQuery]) -> GitLog:
    query = call.query
    commits = await (await _at(call, query.path, query.user)).log(query.count, query.revision)
    return GitLog(items=[GitCommitView(**dataclasses.asdict(commit)) for commit in commits])


async def branches(call: Call[Nothing, PlaceQuery]) -> GitBranches:
    found = await (await _at(call, call.query.path, call.query.user)).branches()
    return GitBranches(items=[GitBranch(**dataclasses.asdict(branch)) for branch in found])


async def diff(call: Call[Nothing, DiffQuery]) -> GitDiff:
    query = call.query
    git = await _at(call, query.path, query.user)
    ran = await git.diff(staged=query.staged, base=query.base, files=query.files)
    return GitDiff(text=ran.stdout, truncated=ran.truncated)


async def add(call: Call[GitAdd, Nothing]) -> GitDone:
    body = call.body
    git = await _at(call, body.path, body.user)
    ran = await git.run(["add", *(["--", *body.files] if body.files else ["--all"])])
    return await _done(git, body.path, ran.stdout)


async def commit(call: Call[GitCommit, Nothing]) -> GitDone:
    body = call.body
    env: dict[str, str] = {}
    for name, value in (("NAME", body.author_name), ("EMAIL", body.author_email)):
        if value is not None:
            env |= {f"GIT_AUTHOR_{name}": value, f"GIT_COMMITTER_{name}": value}
    flags = (["--all"] if body.all else []) + (["--allow-empty"] if body.allow_empty else [])
    git = await _at(call, body.path, body.user)
    ran = await git.run(["commit", *flags, f"--message={body.message}"], env=env)
    return await _done(git, body.path, ran.stdout)


async def checkout(call: Call[GitCheckout, Nothing]) -> GitDone:
    body = call.body
    git = await _at(call, body.path, body.user)
    target = gitwords.named(body.target, "branch or commit")
    ran = await git.run(["checkout", *(["-b"] if body.create else []), target, "--"])
    return await _done(git, body.path, ran.stderr)


async def branch(call: Call[GitBranchChange, Nothing]) -> GitDone:
    body = call.body
    git = await _at(call, body.path, body.user)
    name = gitwords.named(body.name, "branch")
    start = [gitwords.named(body.start, "revision")] if body.start and not body.delete else []
    ran = await git.run(["branch", *(["-D"] if body.delete else []), "--", name, *start])
    return await _done(git, body.path, ran.stdout)


async def pull(call: Call[GitSync, Nothing]) -> GitDone:
    return await _sync(call, "url", ["pull", "--no-progress", "--no-edit", *(["--force"] if call.body.force else [])])


async def push(call: Call[GitSync, Nothing]) -> GitDone:
    flags = (["--force"] if call.body.force else []) + (["--set-upstream"] if call.body.set_upstream else [])
    return await _sync(call, "pushurl", ["push", "--no-progress", *flags])


async def _sync(call: Call[GitSync, Nothing], kind: str, arguments: list[str]) -> GitDone:
    body = call.body
    git = await _at(call, body.path, body.user)
    which = [gitwords.named(body.branch, "branch")] if body.branch else []
    remote = gitwords.checked_url(body.remote, "remote")
    url = await git.address_of(remote, kind) if body.password is not None else ""
    env = gitwords.environment(body.username, body.password, url)
    ran = await git.run([*arguments, "--", remote, *which], env=env, timeout_s=body.timeout_s)
    return await _done(git, body.path, ran.stdout + ran.stderr)


PATH = SANDBOX + "/git"
_ERRORS = (InvalidArgument, NotFound, Conflict, TooLarge, DeadlineExceeded, GuestFailed)


def _post(name: str, summary: str, handler: Any, body: Any) -> Endpoint[Any, Any]:
    return Endpoint("POST", f"{PATH}/{name}", summary, handler, body=body, answer=GitDone, errors=_ERRORS)


def _get(name: str, summary: str, handler: Any, query: Any, answer: Any) -> Endpoint[Any, Any]:
    return Endpoint("GET", f"{PATH}/{name}", summary, handler, query=query, answer=answer, errors=_ERRORS)


ENDPOINTS = (
    _post("clone", "Clone a repository", clone, GitClone),
    _get("status", "Show which files have changed", status, PlaceQuery, GitStatus),
    _post("add", "Stage changes", add, GitAdd),
    _post("commit", "Commit what is staged", commit, GitCommit),
    _get("branches", "List branches", branches, PlaceQuery, GitBranches),
    _post("branches", "Make or delete a branch", branch, GitBranchChange),
    _post("checkout", "Go to a branch or commit", checkout, GitCheckout),
    _post("pull", "Pull from a remote", pull, GitSync),
    _post("push", "Push to a remote", push, GitSync),
    _get("log", "List commits", log, LogQuery, GitLog),
    _get("diff", "Show changes as a patch", diff, DiffQuery, GitDiff),
)
