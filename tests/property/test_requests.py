"""Heads of requests: whatever is in them, what goes on names the host that was judged and keeps its shape."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.policy import FRAMING_HEADERS, HttpRule, Policy, compile_policy
from atoll.model.secret import Grant, Hidden, Secret
from atoll.node.egress.buffer import Buffer, Waiting
from atoll.node.egress.gate import Flow, Gate
from atoll.node.egress.http2 import _Bridge
from atoll.node.egress.inject import rewrite
from atoll.node.egress.requests import Site, authority
from atoll.wire.network import NetworkOrder

ADDRESS = IPv4Address("198.51.100.7")
PLACEHOLDER = b"atoll-secret-" + b"ab" * 16
RULE = HttpRule("good.test", path_prefixes=("/pub",), set_headers={"X-Team": "blue"}, remove_headers=("cookie",))

hosts = st.text(alphabet="godtesGOD.-_:80@/\\ \xa0\xad\xaa[]#?%", max_size=16).map(lambda text: text.encode("latin-1"))
known = st.sampled_from([b"good.test", b"good.test:443", b"GOOD.TEST", b"good.test.", b"twin.test", b"good.test:80"])


@given(hosts | known | st.binary(max_size=30))
def test_an_authority_is_what_was_said_and_not_what_became_of_it(value: bytes) -> None:
    found = authority(value)
    assert authority(found.encode("latin-1")) == found
    if found:
        assert found.isascii() or ":" in found
        name = value.decode("latin-1").partition(":")[0].lower()
        assert name in (found.partition(":")[0], found.partition(":")[0] + ".")


names = st.sampled_from([*sorted(FRAMING_HEADERS), "cookie", "X-Team", "x-team", "authorization", "accept"])
values = st.lists(st.sampled_from([PLACEHOLDER, b"Basic ", b"bWU6", b"a", b" ", b"=", b"{}", b"?"]), max_size=4).map(
    b"".join
)
headers = st.lists(st.tuples(names.map(str.encode), values), max_size=6)


@given(values.map(lambda text: b"/" + text), headers, st.booleans(), st.booleans(), st.booleans())
def test_a_rewritten_head_keeps_its_framing_and_its_lines(
    target: bytes, head: list[tuple[bytes, bytes]], bound: bool, query: bool, basic: bool
) -> None:
    secret = Secret("KEY", ("good.test",), query=query, basic=basic).checked()
    grant = Grant(secret, secret.rules(), PLACEHOLDER.decode(), Hidden("s3cr3t/+"))
    out = rewrite(target, head, [RULE], [grant] if bound else [], [] if bound else [grant])

    def framing(lines: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return [line for line in lines if line[0].decode().lower() in FRAMING_HEADERS]

    assert framing(out.headers) == framing(head)
    assert [value for name, value in out.headers if name.lower() == b"x-team"] == [b"blue"]
    assert b"cookie" not in {name for name, _ in out.headers}
    assert len(out.headers) <= len(head) + 1
    assert out.target.partition(b"?")[0] == target.partition(b"?")[0]
    assert (not out.used) or bound
    if not bound:
        assert b"s3cr3t" not in out.target + b"".join(value for _, value in out.headers)


pseudo = st.tuples(
    st.sampled_from(
        [b":authority", b":path", b":method", b":scheme", b":protocol", b"host", b"connection", b"te", b"x"]
    ),
    st.sampled_from(
        [b"good.test", b"twin.test", b"/pub/x", b"/..;/x", b"*", b"GET", b"CONNECT", b"https", b"http", b""]
    ),
)
GOOD = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"good.test"), (b":path", b"/pub")]


@given(st.lists(pseudo, max_size=6), st.booleans())
def test_any_head_of_http2_is_refused_or_names_the_site(drawn: list[tuple[bytes, bytes]], is_good_first: bool) -> None:
    gate = Gate("sb1", lambda *_: None)
    gate.apply(NetworkOrder(compile_policy(Policy(allow=("good.test",), http=(RULE,)), {})))
    nobody: Any = None
    site = Site("good.test", ADDRESS, 443, tls=True, connect=nobody)
    buffer = Buffer(memoryview(b""), Waiting())
    bridge = _Bridge(gate, Flow(ADDRESS, 443, nobody, 0.0), site, nobody, nobody, buffer, nobody)
    loose = {"validate_outbound_headers": False, "normalize_outbound_headers": False, "header_encoding": None}
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, **loose))  # type: ignore[arg-type]
    client.initiate_connection()
    head = [*(GOOD if is_good_first else []), *drawn]
    if not head:
        return
    client.send_headers(1, head, end_stream=True)
    try:
        for event in bridge.guest.state.receive_data(client.data_to_send()):
            bridge._take(event, bridge.guest, bridge.server)
    except h2.exceptions.ProtocolError:
        return
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
    server.initiate_connection()
    for event in server.receive_data(bridge.server.state.data_to_send()):
        if isinstance(event, h2.events.RequestReceived):
            heard = [(bytes(name), bytes(value)) for name, value in event.headers or []]
            assert {value for name, value in heard if name in (b":authority", b"host")} == {b"good.test"}
            assert all(value.startswith(b"/pub") for name, value in heard if name == b":path")
            assert (b"x-team", b"blue") in heard
