"""E2B's command line as a person uses it: typed commands, a terminal, and what its own help says that there is."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat.e2b.clients import Client

NEW = Client("node", "cli")
OLD = Client("node", "cli-old")

RUN_S_MAX = 60
PROMPT = rb"[$#] $"
"""The end of what a shell inside says when it waits."""

Commands = dict[str, set[str]]


@dataclass(frozen=True)
class Said:
    """What a command said on both of its streams, and how it ended."""

    text: str
    code: int

    def __contains__(self, words: str) -> bool:
        return words in self.text

    def word(self, begin: str) -> str:
        """The id in it that begins so."""
        return next(word for word in re.split(r"[^0-9a-z]+", self.text) if word.startswith(begin) and len(word) == 38)


@dataclass
class Shell:
    """Somebody's shell, in which `atoll env e2b` was evaluated. It remembers what was typed."""

    cli: Client
    environment: dict[str, str]
    home: Path
    typed: list[tuple[str, ...]] = field(default_factory=list)

    def e2b(self, *words: str, given: str | None = None, **environment: str) -> Said:
        """A command to its end; what is given is piped into it."""
        self.typed.append(words)
        done = subprocess.run(
            [_program(self.cli), *words],
            env={**self._environment(), **environment},
            cwd=self.home,
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        return Said(done.stdout + done.stderr, done.returncode)

    def ok(self, *words: str, given: str | None = None, **environment: str) -> Said:
        said = self.e2b(*words, given=given, **environment)
        assert said.code == 0, said.text
        return said

    def create(self, *words: str) -> str:
        """A sandbox that nobody is connected to."""
        return self.ok("sandbox", "create", "--detach", "--timeout", "100", *words).word("sb")

    def python(self, program: str) -> str:
        """What a program of the Python client prints."""
        python = str(Client("python", "new").folder / "bin" / "python")
        done = subprocess.run(
            [python, "-c", program], env=self.environment, capture_output=True, text=True, timeout=RUN_S_MAX, check=True
        )
        return done.stdout.strip()

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on until something ends it."""
        self.typed.append(words)
        return subprocess.Popen(
            [_program(self.cli), *words],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def in_terminal(self, keys: list[tuple[bytes, bytes]], *words: str) -> str:
        """What a person sees who, each time that something appears on the terminal, types something, until the end."""
        self.typed.append(words)
        ours, theirs = pty.openpty()
        seen, place = b"", 0
        with subprocess.Popen(
            [_program(self.cli), *words],
            env={**self._environment(), "TERM": "xterm"},
            cwd=self.home,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            try:
                while data := _read(ours):
                    seen += data
                    if keys and re.search(keys[0][0], seen[place:]):
                        place = len(seen)
                        os.write(ours, keys.pop(0)[1])
            finally:
                os.close(ours)
                process.kill()
        assert not keys, seen
        return seen.decode("utf-8", "replace")

    def _environment(self) -> dict[str, str]:
        return {**self.environment, "HOME": str(self.home), "NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}


def _program(cli: Client) -> str:
    return str(cli.folder / "node_modules" / ".bin" / "e2b")


def _read(terminal: int) -> bytes:
    """The next output; nothing once nobody has the terminal any more."""
    readable, _, _ = select.select([terminal], [], [], RUN_S_MAX)
    assert readable, "the command says nothing"
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


_COMMAND = re.compile(r"^  ([a-z]+)(?:\|\w+)?(?= |$)", re.MULTILINE)
_OPTION = re.compile(r"^  (?:-\w, )?(--[\w.-]+)", re.MULTILINE)


def commands_of(cli: Client, *words: str) -> Commands:
    """Every command and its options, as the command line's own help tells them."""
    done = subprocess.run(
        [_program(cli), *words, "--help"],
        env={**os.environ, "NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=True,
    )
    _, _, listed = done.stdout.partition("\nCommands:\n")
    inner = [name for name in _COMMAND.findall(listed) if name != "help"]
    if not inner:
        return {" ".join(words): set(_OPTION.findall(done.stdout)) - {"--help"}}
    return {name: options for one in inner for name, options in commands_of(cli, *words, one).items()}


def called(shell: Shell, known: Commands) -> Commands:
    """Which of the known commands were typed, with which of their options."""
    found: Commands = defaultdict(set)
    for words in shell.typed:
        name = next((name for name in known if tuple(name.split()) == words[: len(name.split())]), "")
        found[name].update(word for word in words if word.startswith("--"))
    return found
