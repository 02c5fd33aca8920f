"""Values go where they are bound to, and a head keeps its shape whatever is in it."""

from __future__ import annotations

import base64

import pytest

from atoll.model.policy import HttpRule
from atoll.model.secret import Grant, Hidden, Secret
from atoll.node.egress.inject import rewrite

PLACEHOLDER = "atoll-secret-" + "ab" * 16


def grant(**settings: object) -> Grant:
    secret = Secret("KEY", ("a.test",), **settings).checked()  # type: ignore[arg-type]
    return Grant(secret, secret.rules(), PLACEHOLDER, Hidden("s3cr3t/+"))


def test_a_bound_secret_replaces_its_placeholder_in_headers() -> None:
    head = [(b"host", b"a.test"), (b"authorization", b"Bearer " + PLACEHOLDER.encode())]
    out = rewrite(b"/", head, [], [grant()], [])
    assert (b"authorization", b"Bearer s3cr3t/+") in out.headers
    assert (out.used, out.strayed) == (("KEY",), ())


def test_another_secret_stays_a_placeholder_and_is_reported() -> None:
    basic = b"Basic " + base64.b64encode(f"me:{PLACEHOLDER}".encode())
    for head in ([(b"x", PLACEHOLDER.encode())], [(b"authorization", basic)]):
        out = rewrite(b"/", head, [], [], [grant()])
        assert out.headers == head
        assert (out.used, out.strayed) == ((), ("KEY",))
    assert rewrite(f"/?a={PLACEHOLDER}".encode(), [], [], [], [grant()]).strayed == ("KEY",)


def test_query_and_basic_only_where_they_are_wanted() -> None:
    target = f"/p?k={PLACEHOLDER}".encode()
    assert rewrite(target, [], [], [grant()], []).target == target
    assert rewrite(target, [], [], [grant(query=True)], []).target == b"/p?k=s3cr3t%2F%2B"
    head = [(b"authorization", b"Basic " + base64.b64encode(f"me:{PLACEHOLDER}".encode()))]
    assert rewrite(b"/", head, [], [grant()], []).headers == head
    ((_, value),) = rewrite(b"/", head, [], [grant(basic=True)], []).headers
    assert base64.b64decode(value[6:]) == b"me:s3cr3t/+"


def test_a_header_that_is_always_set_takes_the_place_of_the_clients_own() -> None:
    out = rewrite(b"/", [(b"X-Api-Key", b"forged")], [], [grant(header="x-api-key", format="k={}")], [])
    assert out.headers == [(b"x-api-key", b"k=s3cr3t/+")]


def test_framing_headers_are_never_touched() -> None:
    head = [(b"host", PLACEHOLDER.encode()), (b"content-length", PLACEHOLDER.encode())]
    assert rewrite(b"/", head, [], [grant()], []).headers == head


def test_rules_change_headers_first() -> None:
    rule = HttpRule("a.test", set_headers={"X-Team": "blue"}, remove_headers=("Cookie",))
    out = rewrite(b"/", [(b"cookie", b"c"), (b"x-team", b"red"), (b"accept", b"*")], [rule], [], [])
    assert out.headers == [(b"accept", b"*"), (b"X-Team", b"blue")]


def test_a_hidden_value_does_not_show_itself() -> None:
    import pickle

    value = grant()
    assert "s3cr3t" not in repr(value)
    assert "s3cr3t" not in f"{value.value}"
    with pytest.raises(TypeError):
        pickle.dumps(value)
