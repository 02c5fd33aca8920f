"""Git's machine formats, read without git; and what a real one does with a password."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.control import gitwords
from atoll.model.errors import InvalidArgument


def test_status_with_a_rename_a_conflict_and_a_strange_name() -> None:
    text = (
        "# branch.oid abc\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0"
        "1 .M N... 100644 100644 100644 a b one two.txt\0"
        "2 R. N... 100644 100644 100644 a b R100 new\0old\0"
        "u UU N... 1 2 3 4 h1 h2 h3 both\0? line\nbreak\0"
    )
    status = gitwords.parse_status(text)
    assert (status.branch, status.commit, status.upstream, status.ahead, status.behind) == (
        "main",
        "abc",
        "origin/main",
        2,
        1,
    )
    assert [(f.path, f.staged, f.unstaged, f.source) for f in status.files] == [
        ("one two.txt", "", "M", None),
        ("new", "R", "", "old"),
        ("both", "U", "U", None),
        ("line\nbreak", "", "?", None),
    ]


@given(st.text())
def test_garbage_is_never_an_error(text: str) -> None:
    gitwords.parse_status(text)
    gitwords.parse_log(text)
    gitwords.parse_branches(text)


@pytest.mark.parametrize(
    "url",
    [
        "https://ghp_x@github.com/a/b",
        "HTTP://x@example.org/a",
        "https://:@example.org/a",
        "http::https://ghp_x@example.org/a",
        "https://ghp_x@",
    ],
)
def test_a_secret_in_an_address_is_refused_wherever_it_stands(url: str) -> None:
    """A token may be the name of its user; git would keep it in its file, also as the remote of a branch."""
    for what in ("repository address", "remote"):
        with pytest.raises(InvalidArgument) as caught:
            gitwords.checked_url(url, what)
        assert caught.value.code == "password_in_url"


@pytest.mark.parametrize(
    "url", ["origin", "git@github.com:a/b", "ssh://git@example.org/a", "https://example.org/a@b", "/srv/a@b", "a:b/c@d"]
)
def test_addresses_without_a_secret(url: str) -> None:
    assert gitwords.checked_url(url) == url


@pytest.mark.parametrize("url", ["", "-x", "--upload-pack=x", "https://a:b@example.org/x", "ext::sh -c id", "a\nb"])
def test_addresses_that_would_do_harm(url: str) -> None:
    with pytest.raises(InvalidArgument):
        gitwords.checked_url(url)


def test_the_password_is_in_one_variable_only() -> None:
    variables = gitwords.environment("me", "s3cret", "https://example.org/a")
    assert [name for name, value in variables.items() if "s3cret" in value] == ["GIT_CREDENTIAL_PASSWORD"]
    assert gitwords.folder_of("https://example.org/group/a.git/") == "a"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://Example.org/a", "https://example.org"),
        ("http://example.org:8080?x", "http://example.org:8080"),
        ("https://me@example.org/a@b", "https://example.org"),
        ("http::https://example.org/a", "https://example.org"),
        ("http://[::1]:80/a", "http://[::1]:80"),
        ("https://*/a", None),
        ("https://*.example.org/a", None),
        ("git@example.org:a/b", None),
        ("ssh://example.org/a", None),
        ("origin", None),
    ],
)
def test_a_password_is_for_one_place(url: str, place: str | None) -> None:
    assert gitwords.place_of(url) == place
    assert ("GIT_CREDENTIAL_PASSWORD" in gitwords.environment("me", "s3cret", url)) == (place is not None)


class Door(http.server.BaseHTTPRequestHandler):
    """Asks who comes, and notes what it was told."""

    told: ClassVar[list[str | None]]

    def do_GET(self) -> None:
        self.told.append(self.headers.get("authorization"))
        self.answer()

    def answer(self) -> None:
        self.send_response(401)
        self.send_header("www-authenticate", 'Basic realm="git"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(door: type[Door]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), door) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


Ask = Callable[[str, str], list[str | None]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[tuple[str, str, Ask]]:
    """Two places, the first of which leads to the second below /away; and git, which hears of one and goes to another.

    What it gives is what the place that it went to was told.
    """
    if shutil.which("git") is None:
        pytest.skip("this machine has no git")

    class There(Door):
        told: ClassVar[list[str | None]] = []

    class Here(Door):
        told: ClassVar[list[str | None]] = []

        def answer(self) -> None:
            if not self.path.startswith("/away"):
                super().answer()
                return
            self.send_response(302)
            self.send_header("location", second + self.path[1:])
            self.end_headers()

    with ExitStack() as opened:
        first, second = (opened.enter_context(serving(door)) for door in (Here, There))

        def run(known: str, url: str) -> list[str | None]:
            env = {**gitwords.environment("me", "s3cret", known), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
            subprocess.run(["git", "ls-remote", url], env=env, cwd=tmp_path, capture_output=True, timeout=30)
            return There.told if url.startswith(second) or "away" in url else Here.told

        yield first, second, run


def test_git_tells_the_password_to_the_place_that_it_is_for(ask: tuple[str, str, Ask], tmp_path: Path) -> None:
    """And to no helper of the sandbox's own, which might keep it."""
    (tmp_path / ".gitconfig").write_text(f'[credential]\nhelper = store\n[credential "{ask[0]}"]\nhelper = store\n')
    first, _, told = ask
    assert told(first, first + "a") == [None, "Basic bWU6czNjcmV0"]
    assert not (tmp_path / ".git-credentials").exists()


def test_git_tells_the_password_to_no_other_place(ask: tuple[str, str, Ask]) -> None:
    """As a submodule of the repository is asked for in the same run."""
    first, second, told = ask
    assert told(first, second + "a") == [None]


def test_git_tells_the_password_to_nobody_that_it_is_led_to(ask: tuple[str, str, Ask]) -> None:
    first, _, told = ask
    assert told(first, first + "away/a") == [None]


def test_git_tells_the_password_to_nobody_in_whose_name_an_address_is_rewritten(
    ask: tuple[str, str, Ask], tmp_path: Path
) -> None:
    first, second, told = ask
    (tmp_path / ".gitconfig").write_text(f'[url "{second}"]\ninsteadOf = {first}\n')
    assert told(first, first + "a") == []
    assert told(first, second + "a") == [None, None]
