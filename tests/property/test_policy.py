"""Policies: nothing is allowed that no rule allows, deny wins, and a text is a rule or an error."""

from __future__ import annotations

import ipaddress
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.errors import InvalidArgument
from atoll.model.policy import (
    NOTHING,
    HttpRule,
    Mode,
    Policy,
    compile_policy,
    decide,
    name_may_resolve,
    normal_name,
    parse_lists,
    parse_rule,
    path_below,
    request_refusal,
)

labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
names = st.builds(lambda parts, top: ".".join([*parts, top]), st.lists(labels, min_size=1, max_size=3), st.just("test"))
addresses = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
ports = st.integers(1, 65535)
policies = st.builds(
    Policy,
    mode=st.sampled_from(Mode),
    allow=st.lists(names | names.map(lambda name: f"*.{name}:*"), max_size=4).map(tuple),
    deny=st.lists(names | names.map(lambda name: f"*.{name}"), max_size=4).map(tuple),
)


@given(names, addresses, ports)
def test_the_default_reaches_nothing(name: str, address: ipaddress.IPv4Address, port: int) -> None:
    for rules in (NOTHING, compile_policy(Policy(), {})):
        assert not decide(rules, name, address, port).allowed
        assert not name_may_resolve(rules, name).allowed


@given(policies, names, addresses, ports)
def test_deny_wins_and_what_is_allowed_has_a_rule(
    policy: Policy, name: str, address: ipaddress.IPv4Address, port: int
) -> None:
    rules = compile_policy(policy, {})
    verdict = decide(rules, name, address, port)
    if any(rule.matches(name, address, port) for rule in rules.deny):
        assert not verdict.allowed
    if verdict.allowed:
        assert policy.mode is not Mode.NOTHING
        assert verdict.rule
        assert name_may_resolve(rules, name).allowed, "what may be reached by name may be looked up"


@given(policies, names, addresses, ports)
def test_a_shorter_list_never_opens_more(policy: Policy, name: str, address: ipaddress.IPv4Address, port: int) -> None:
    rules = compile_policy(policy, {})
    fewer = compile_policy(Policy(mode=policy.mode, allow=policy.allow[1:], deny=policy.deny), {})
    assert decide(rules, name, address, port).allowed or not decide(fewer, name, address, port).allowed


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_an_error(text: str) -> None:
    try:
        rule = parse_rule(text)
    except InvalidArgument:
        return
    assert sum((bool(rule.name), bool(rule.suffix), rule.network is not None)) == 1


@given(st.text(max_size=40))
def test_a_normal_name_is_its_own_normal_form(text: str) -> None:
    try:
        name = normal_name(text)
    except InvalidArgument:
        return
    assert normal_name(name) == name == name.lower()


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "a b", "http://x.test", "x.test/path", "*", "*.", "*.*.test", "x.test:", "x.test:0", "x.test:70000"),
        *("x.test:9-1", "1.2.3", "1.2.3.4/33", "1.2.3.4/8", "0x7f000001", "2130706433", "127.1", "::1", "[::1]:80"),
        *("user@x.test", "-x.test", "x..test", "@missing", "@", "x.test:80:90", "\0.test", "1.2.3.4.5"),
    ],
)
def test_what_is_not_a_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        compile_policy(Policy(allow=(text,)), {"known": ("a.test",)})


def test_how_rules_match() -> None:
    rules = compile_policy(
        Policy(allow=("a.test", "*.b.test:22", "192.0.2.0/24:8000-8010", "@list"), deny=("bad.b.test",)),
        {"list": ("c.test:*",)},
    )

    def says(name: str | None, address: str, port: int) -> bool:
        return decide(rules, name, ipaddress.IPv4Address(address), port).allowed

    assert says("a.test", "1.1.1.1", 443)
    assert says("a.test", "1.1.1.1", 80)
    assert not says("a.test", "1.1.1.1", 22), "a name without ports means the web's"
    assert not says("x.a.test", "1.1.1.1", 443)
    assert says("x.b.test", "1.1.1.1", 22)
    assert not says("b.test", "1.1.1.1", 22), "a suffix is not itself"
    assert not says("xb.test", "1.1.1.1", 22)
    assert not says("bad.b.test", "1.1.1.1", 22)
    assert says(None, "192.0.2.9", 8005)
    assert not says(None, "192.0.2.9", 9000)
    assert says("c.test", "1.1.1.1", 5432)
    assert decide(rules, "c.test", None, 1).rule == "@list c.test:*"


def test_lists_of_the_operator() -> None:
    assert parse_lists("packages=a.test, *.b.test:443; git=c.test:22;") == {
        "packages": ("a.test", "*.b.test:443"),
        "git": ("c.test:22",),
    }
    for wrong in ("packages", "=a.test", "x=not a host", "Bad Name=a.test"):
        with pytest.raises(InvalidArgument):
            parse_lists(wrong)


@given(
    st.lists(
        st.sampled_from(["/", ".", "..", ";", "%2e", "%2F", "%25", "25", "2e", "%3b", "\\", "a", "pub", "?", "#"]),
        max_size=12,
    ).map("".join)
)
def test_a_path_below_a_prefix_stays_there(rest: str) -> None:
    """However often a server decodes it, and whether or not it takes what follows a semicolon for a parameter."""
    for path in (rest, f"/pub/{rest}"):
        plain = path.partition("?")[0]
        if not path_below(path, "/pub"):
            continue
        assert plain == "/pub" or plain.startswith("/pub/")
        for _ in range(8):
            segments = [segment.partition(";")[0] for segment in plain.split("/")]
            assert not {".", ".."} & set(segments), path
            plain = unquote(plain)


@pytest.mark.parametrize(
    ("path", "is_below"),
    [
        *(
            (f"/api/{trick}/admin", False)
            for trick in ("..;", "..;x=1", ".;", "%252e%252e", "..%253b", "%25252E.", "..")
        ),
        *((path, True) for path in ("/api", "/api/", "/api/x;v=1/y", "/api/100%25", "/api/.well-known", "/api/a..b")),
        *((path, False) for path in ("/api;/admin", "/apis", "/api/..", "/api/.;", "/api//admin")),
    ],
)
def test_which_paths_are_below_a_prefix(path: str, is_below: bool) -> None:
    assert path_below(path, "/api") is is_below


def test_rules_for_requests() -> None:
    rules = [HttpRule("a.test", methods=("GET",), path_prefixes=("/pub",)), HttpRule("a.test", methods=("POST",))]
    assert request_refusal([], "DELETE", "/") == ""
    assert request_refusal(rules, "GET", "/pub/x?y=/private") == ""
    assert request_refusal(rules, "POST", "/anything") == ""
    assert request_refusal(rules, "GET", "/private") == "http_rule"
    assert request_refusal(rules, "PUT", "/pub") == "http_rule"
