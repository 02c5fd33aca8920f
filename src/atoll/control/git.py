"""Git inside a sandbox: one run of its program for each question, bounded in time and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atoll.control import gitwords
from atoll.control.guests import Guest
from atoll.model import limits
from atoll.model.errors import Conflict, DeadlineExceeded, GuestFailed, InvalidArgument, TooLarge
from atoll.wire import framing, guest


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of git that succeeded."""

    stdout: str
    stderr: str
    truncated: bool = False


class Git:
    """One repository, or the place where one will be."""

    def __init__(self, inside: Guest, path: str | None, user: str | None) -> None:
        self._inside = inside
        self._path = path
        self._user = user

    async def run(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = limits.GIT_S_DEFAULT,
        cut: bool = False,
    ) -> Ran:
        """Its output; Conflict (git_failed) with git's own words if it failed. `cut`: too much output is cut off."""
        params = {
            "argv": ["git", *arguments],
            "env": {**gitwords.environment(), **(env or {})},
            "timeout_s": timeout_s,
            "kill_on_disconnect": True,
            **({"cwd": self._path} if self._path else {}),
            **({"user": self._user} if self._user else {}),
        }
        kept = {framing.STDOUT: bytearray(), framing.STDERR: bytearray()}
        truncated = False
        async with self._inside.stream("process.start", params) as stream:
            async for message in stream:
                if isinstance(message, guest.Data) and message.kind in kept:
                    room = limits.GIT_OUTPUT_BYTES_MAX - len(kept[message.kind])
                    kept[message.kind] += message.payload[:room]
                    truncated = truncated or len(message.payload) > room
                elif isinstance(message, guest.End):
                    out, err = (bytes(part).decode("utf-8", "replace") for part in kept.values())
                    _check(message.value, err or out, timeout_s)
                    if truncated and not cut:
                        raise TooLarge("git answered more than can be taken in one call", code="git_output_too_large")
                    return Ran(out, err, truncated)
        raise GuestFailed("the sandbox ended its answer too early")

    async def address_of(self, remote: str, kind: str) -> str:
        """What a remote is called by its owner, before any rewriting. `kind` is url, or pushurl where there is one."""
        if gitwords.place_of(remote) is not None:
            return remote
        for name in dict.fromkeys((kind, "url")):
            try:
                ran = await self.run(["config", "-z", "--get-all", f"remote.{remote}.{name}"])
            except Conflict:
                continue  # there is none of this kind
            return ran.stdout.partition("\0")[0]
        return remote

    async def status(self) -> gitwords.Status:
        ran = await self.run(["status", "--porcelain=v2", "--branch", "-z"])
        return gitwords.parse_status(ran.stdout)

    async def log(self, count: int, revision: str | None) -> list[gitwords.Commit]:
        if not 1 <= count <= limits.GIT_LOG_MAX:
            raise InvalidArgument(f"count must be between 1 and {limits.GIT_LOG_MAX}", code="invalid_query")
        which = [gitwords.named(revision, "revision")] if revision else []
        ran = await self.run(["log", f"--max-count={count}", f"--format={gitwords.LOG_FORMAT}", *which, "--"])
        return gitwords.parse_log(ran.stdout)

    async def branches(self) -> list[gitwords.Branch]:
        return gitwords.parse_branches((await self.run(["branch", f"--format={gitwords.BRANCH_FORMAT}"])).stdout)

    async def diff(self, *, staged: bool, base: str | None, files: Sequence[str]) -> Ran:
        which = [gitwords.named(base, "revision")] if base else []
        return await self.run(
            ["diff", "--no-color", "--no-ext-diff", *(["--staged"] if staged else []), *which, "--", *files], cut=True
        )


def _check(words: Mapping[str, object], said: str, timeout_s: float) -> None:
    if words.get("timed_out") is True:
        raise DeadlineExceeded(f"git did not end within {timeout_s:g} s", code="git_timeout")
    if words.get("code") == 0:
        return
    lines = said.strip().splitlines()
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines[-3:]
    raise Conflict(" ".join(fatal)[:800] or "git failed", code="git_failed")
