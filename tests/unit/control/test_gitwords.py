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


@pytest.mark.parametrize("url", ["", "-x", "--upload-pack=x", "https://a:b@example.org/x", "ext::sh -c id", "a\nb"])
def test_addresses_that_would_do_harm(url: str) -> None:
    with pytest.raises(InvalidArgument):
        gitwords.checked_url(url)


def test_the_password_is_in_one_variable_only() -> None:
    variables = gitwords.environment("me", "s3cret")
    assert [name for name, value in variables.items() if "s3cret" in value] == ["GIT_CREDENTIAL_PASSWORD"]
    assert gitwords.folder_of("https://example.org/group/a.git/") == "a"
