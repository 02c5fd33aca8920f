"""Git's machine formats, read without git."""

from __future__ import annotations

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
    variables = gitwords.environment("me", "s3cret")
    assert [name for name, value in variables.items() if "s3cret" in value] == ["GIT_CREDENTIAL_PASSWORD"]
    assert gitwords.folder_of("https://example.org/group/a.git/") == "a"
