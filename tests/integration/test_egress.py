"""The proxy and the DNS server with real clients: every refusal beside the same act when the policy allows it."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.model.policy import HttpRule, Mode
from tests.egress_stage import Stage, stage
from tests.upstream import BANNER_PORT, HTTP_PORT, OTHER, TLS_PORT, WEB, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

GOOD = f"http://good.test:{HTTP_PORT}/x"
SECURE = f"https://good.test:{TLS_PORT}/x"


@pytest.fixture
def gate(servers: Upstream, tmp_path: Path) -> Iterator[Stage]:
    servers.asked.clear()
    with stage(tmp_path, servers, secrets.token_hex(2)) as opened:
        yield opened


def test_nothing_is_reached_without_a_policy(gate: Stage, servers: Upstream) -> None:
    assert "Could not resolve" in gate.curl(GOOD)
    assert gate.curl(f"http://{WEB}:{HTTP_PORT}/").startswith("curl:")
    assert servers.asked == [], "a name that is not allowed is told to nobody"
    gate.allow("good.test:8080")
    assert "GET /x" in gate.curl(GOOD)


def test_a_name_that_is_not_listed_is_not_even_looked_up(gate: Stage, servers: Upstream) -> None:
    gate.allow("good.test:8080")
    assert "GET /x" in gate.curl(GOOD)
    assert "Could not resolve" in gate.curl(f"http://other.test:{HTTP_PORT}/")
    assert servers.asked.count("other.test") == 0
    gate.allow("good.test:8080", "other.test:8080")
    assert "GET /" in gate.curl(f"http://other.test:{HTTP_PORT}/")


def test_a_rule_opens_its_ports_only(gate: Stage) -> None:
    gate.allow("good.test:8443")
    assert "not_listed" in gate.curl(GOOD)
    gate.allow("good.test:8000-8100")
    assert "GET /x" in gate.curl(GOOD)


def test_the_host_of_every_request_must_be_the_name_that_was_asked_for(gate: Stage) -> None:
    """Two names on one address, as on a shared front: only the allowed one is reached, also on an open connection."""
    gate.allow("good.test:8080")
    assert "not_listed" in gate.curl(GOOD, "-H", f"Host: twin.test:{HTTP_PORT}")
    both = (
        "import socket; s=socket.create_connection(('good.test',8080));"
        "s.sendall(b'GET /one HTTP/1.1\\r\\nHost: good.test:8080\\r\\n\\r\\n"
        "GET /two HTTP/1.1\\r\\nHost: twin.test:8080\\r\\n\\r\\n');"
        "import time; d=b''\n"
        "while (p:=s.recv(65536)): d+=p\n"
        "print(d.decode())"
    )
    said = gate.python(both)
    assert "GET /one" in said
    assert "421" in said
    assert "GET /two" not in said
    gate.allow("good.test:8080", "twin.test:8080")
    assert "GET /x" in gate.curl(GOOD.replace("good", "twin"))


@pytest.mark.parametrize(
    "head",
    [
        r"GET http://twin.test:8080/ HTTP/1.1\r\nHost: good.test:8080\r\n\r\n",
        r"GET / HTTP/1.1\r\nHost: good.test:8080\r\nHost: twin.test:8080\r\n\r\n",
        r"GET / HTTP/1.1\r\nHost: good.test:8080@twin.test\r\n\r\n",
        r"POST / HTTP/1.1\r\nHost: good.test:8080\r\nContent-Length: 4\r\nContent-Length: 40\r\n\r\nxxxx",
        r"POST / HTTP/1.1\r\nHost: good.test:8080\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        r"CONNECT twin.test:8080 HTTP/1.1\r\nHost: good.test:8080\r\n\r\n",
        r"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_requests_with_two_meanings_do_not_get_through(gate: Stage, servers: Upstream, head: str) -> None:
    gate.allow("good.test:8080")
    talk = (
        "import socket; s=socket.create_connection(('good.test',8080)); s.settimeout(5); s.sendall(b'{}')\n"
        "try: print(s.recv(65536).decode())\nexcept OSError as e: print(e)"
    )
    before = len(servers.web.seen)
    said = gate.python(talk.format(head))
    assert "200 OK" not in said, said
    assert len(servers.web.seen) == before
    assert "200 OK" in gate.python(talk.format(r"GET / HTTP/1.1\r\nHost: good.test:8080\r\n\r\n"))


def test_no_header_takes_another_away(gate: Stage, servers: Upstream) -> None:
    """What `Connection` names, a relay beyond would take out of the request: Host, or who asks. It ends here."""
    gate.allow("good.test:8080")
    said = gate.curl(GOOD, "-H", "Connection: Host, Authorization", "-H", "Authorization: mine", "-H", "Keep-Alive: 5")
    lines = [line.lower() for line in said.splitlines()]
    assert f"host: good.test:{HTTP_PORT}" in lines
    assert "authorization: mine" in lines
    assert not [line for line in lines if line.startswith(("connection:", "keep-alive:"))]


def test_the_name_in_tls_must_be_the_name_that_was_asked_for(gate: Stage, servers: Upstream) -> None:
    gate.allow("good.test:8443")
    trust = ("--cacert", str(servers.ca_file))
    assert "GET /x" in gate.curl(SECURE, *trust)
    to_twin = ("--connect-to", f"twin.test:{TLS_PORT}:good.test:{TLS_PORT}")
    assert "GET" not in gate.curl(f"https://twin.test:{TLS_PORT}/", *trust, *to_twin)
    assert gate.last().reason == "not_listed"
    assert gate.last().name == "twin.test"
    # An allowed name at an address that is not its own: /etc/hosts inside is no authority.
    assert "GET" not in gate.curl(SECURE, *trust, "--resolve", f"good.test:{TLS_PORT}:{OTHER}")
    assert gate.last().reason == "name_mismatch"
    gate.allow("good.test:8443", "twin.test:8443")
    assert "GET /" in gate.curl(f"https://twin.test:{TLS_PORT}/", *trust, *to_twin)


def test_tls_is_passed_on_unopened(gate: Stage, servers: Upstream) -> None:
    """The client sees the server's own certificate, so it needs to trust only that one."""
    gate.allow("good.test:8443")
    said = gate.curl(SECURE, "--cacert", str(servers.ca_file), "-v")
    assert "upstream test CA" in said
    assert "Atoll" not in said


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "127.0.0.1", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16"),
        *("192.168.1.1", "172.16.0.1", "192.0.0.192", "224.0.0.251", "255.255.255.255", "0.0.0.0", "10.0.0.1"),
    ],
)
def test_addresses_that_nobody_may_reach(gate: Stage, address: str) -> None:
    gate.allow("0.0.0.0/0", mode=Mode.PUBLIC)
    assert "GET" not in gate.curl(f"http://{address}:{HTTP_PORT}/", "--max-time", "2")


def test_the_same_address_is_reached_when_it_is_none_of_those(gate: Stage) -> None:
    gate.allow(f"{WEB}/32:8080")
    assert "GET /" in gate.curl(f"http://{WEB}:{HTTP_PORT}/")
    assert "not_listed" in gate.curl(f"http://{OTHER}:{HTTP_PORT}/")


def test_an_allowed_name_that_leads_inside_is_refused(gate: Stage, servers: Upstream) -> None:
    gate.allow("inner.test:8080", "turning.test:8080")
    assert "Could not resolve" in gate.curl(f"http://inner.test:{HTTP_PORT}/")
    assert gate.last("lookup").reason == "private_address"
    # Rebinding: first a good address, then one inside; and both at once.
    servers.names["turning.test"] = [WEB]
    assert "GET /" in gate.curl(f"http://turning.test:{HTTP_PORT}/")
    servers.names["turning.test"] = ["169.254.169.254"]
    assert "GET" not in gate.curl(f"http://turning.test:{HTTP_PORT}/")
    servers.names["turning.test"] = ["127.0.0.1", WEB]
    assert "GET /" in gate.curl(f"http://turning.test:{HTTP_PORT}/")
    assert "127.0.0.1" not in gate.inside("getent", "ahostsv4", "turning.test")


def test_what_the_operator_has_closed_is_reached_by_nobody(servers: Upstream, tmp_path: Path) -> None:
    with stage(tmp_path, servers, secrets.token_hex(2), closed=f"{OTHER}/32") as gate:
        gate.allow("other.test:*", "0.0.0.0/0:*", mode=Mode.PUBLIC)
        assert "GET" not in gate.curl(f"http://{OTHER}:{HTTP_PORT}/")
        assert gate.last().reason == "closed_address"
        assert "Could not resolve" in gate.curl(f"http://other.test:{HTTP_PORT}/")
        assert "GET /" in gate.curl(f"http://{WEB}:{HTTP_PORT}/"), "its neighbour is open"


def test_a_redirect_is_judged_like_any_other_connection(gate: Stage) -> None:
    gate.allow("good.test:8080")
    assert "secret-place" not in gate.curl(f"http://good.test:{HTTP_PORT}/redirect", "-L")
    gate.allow("good.test:8080", "other.test:8080")
    assert "secret-place" in gate.curl(f"http://good.test:{HTTP_PORT}/redirect", "-L")


def test_a_server_that_speaks_first(gate: Stage) -> None:
    talk = (
        "import socket; s=socket.create_connection(('good.test',2222)); s.settimeout(5)\n"
        "try:\n print(s.recv(100)); s.sendall({!r}); print(s.recv(100))\nexcept OSError as e: print(type(e))"
    )
    gate.allow(f"good.test:{BANNER_PORT}")
    assert gate.python(talk.format(b"hi")).split() == ["b'HELLO\\n'", "b'hi'"]
    # Silence first and a name later is no way around the check of names.
    late = gate.python(talk.format(b"GET / HTTP/1.1\r\nHost: twin.test\r\n\r\n"))
    assert "twin" not in late
    assert gate.last().reason == "late_hello"


def test_a_client_that_takes_its_time_is_judged_by_what_it_says(gate: Stage, servers: Upstream) -> None:
    """On a port where servers may speak first it is connected meanwhile; still nothing passes under another name."""
    slow = (
        "import socket, ssl, time; s=socket.create_connection(('{host}',{port})); s.settimeout(5); time.sleep(0.5)\n"
        "try:\n"
        " if {port} == {tls}:\n"
        "  s=ssl.create_default_context(cafile='{ca}').wrap_socket(s, server_hostname='{name}')\n"
        " s.sendall(b'GET /late HTTP/1.1\\r\\nHost: {name}:{port}\\r\\nConnection: close\\r\\n\\r\\n')\n"
        " print(s.recv(65536))\n"
        "except OSError as e: print(type(e))"
    )

    def said(port: int, name: str) -> str:
        values = {"host": "good.test", "port": port, "name": name, "tls": TLS_PORT, "ca": servers.ca_file}
        return gate.python(slow.format(**values))

    gate.allow(f"good.test:{TLS_PORT}", f"good.test:{HTTP_PORT}")
    for port in (TLS_PORT, HTTP_PORT):
        assert "200 OK" in said(port, "good.test")
        assert "200 OK" not in said(port, "twin.test")
        assert gate.last().reason == "not_listed"


def test_only_tcp_and_dns_get_anywhere(gate: Stage, servers: Upstream) -> None:
    gate.allow("0.0.0.0/0:*", mode=Mode.PUBLIC)
    assert "GET /" in gate.curl(f"http://{WEB}:{HTTP_PORT}/")
    udp = (
        "import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5)\n"
        f"s.sendto(b'x', ('{WEB}', 443))\n"
        "try: print(s.recv(10))\nexcept OSError as e: print('nothing')"
    )
    assert "nothing" in gate.python(udp)
    assert gate.status().packets_dropped > 0
    ping = (
        "import socket; s=socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP); s.settimeout(0.5)\n"
        f"s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('{WEB}', 0))\n"
        "try: print(s.recv(100))\nexcept OSError as e: print('nothing')"
    )
    assert "nothing" in gate.python(ping)
    assert "GET" not in gate.curl("http://[2001:db8::1]:8080/")
    # Another DNS server is this one all the same.
    gate.allow("good.test:8080")
    asked = gate.python(
        "import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)\n"
        "q=b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\5other\\4test\\0\\0\\1\\0\\1'\n"
        "s.sendto(q, ('8.8.8.8', 53)); print(s.recv(512)[3] & 15)"
    )
    assert asked.strip() == "5"
    assert "other.test" not in servers.asked


def test_dns_over_tcp(gate: Stage) -> None:
    gate.allow("good.test:8080")
    asked = gate.python(
        "import socket; s=socket.create_connection(('10.0.0.1', 53)); s.settimeout(3)\n"
        "q=b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4good\\4test\\0\\0\\1\\0\\1'\n"
        "s.sendall(len(q).to_bytes(2)+q) if False else s.sendall(bytes([0,len(q)])+q); print(s.recv(512)[-4:])"
    )
    assert asked.strip() == str(bytes(int(part) for part in WEB.split(".")))


def test_changes_never_open_a_gap(gate: Stage) -> None:
    """Somebody knocks all the time while the policy is replaced again and again by one that does not allow it."""
    knock = (
        "import socket, time; end=time.monotonic()+1.5; n=ok=0\n"
        "while time.monotonic()<end:\n"
        f" n+=1; s=socket.create_connection(('{WEB}',8080)); s.settimeout(2)\n"
        f" s.sendall(b'GET / HTTP/1.1\\r\\nHost: {WEB}:8080\\r\\nConnection: close\\r\\n\\r\\n')\n"
        " try: ok += b'200' in s.recv(100)\n"
        " except OSError: pass\n"
        " s.close()\n"
        "print(n, ok)"
    )
    knocker = gate.start("/usr/bin/python3", "-c", knock)
    for number in range(100):
        gate.allow(f"name{number}.test", "good.test:8443")
    tried, reached = map(int, knocker.communicate(timeout=20)[0].split())
    assert tried > 20
    assert reached == 0
    gate.allow(f"{WEB}:8080")
    tried, reached = map(int, gate.python(knock.replace("1.5", "0.3")).split())
    assert reached == tried


def test_rules_for_http(gate: Stage) -> None:
    rule = HttpRule(
        "good.test",
        methods=("GET",),
        path_prefixes=("/pub",),
        set_headers={"X-Team": "blue"},
        remove_headers=("cookie",),
    )
    gate.allow("good.test:8080", http=(rule,))
    base = f"http://good.test:{HTTP_PORT}"
    said = gate.curl(f"{base}/pub/a", "-H", "Cookie: c", "-H", "X-Team: red")
    assert "x-team: blue" in said.lower()
    assert "cookie" not in said.lower()
    assert "http_rule" in gate.curl(f"{base}/private")
    assert "http_rule" in gate.curl(f"{base}/pub/a", "-X", "DELETE")
    assert "http_rule" in gate.curl(f"{base}/pub/%2e%2e/private")
    assert "http_rule" in gate.curl(f"{base}/pub/../private", "--path-as-is")
    assert "http_rule" in gate.curl(f"{base}/publicity")


def test_a_cap_and_a_count_of_bytes(gate: Stage) -> None:
    gate.allow("good.test:8080", bytes_max=300_000)
    assert len(gate.curl(f"http://good.test:{HTTP_PORT}/bytes/100000", "--output", "-")) == 100_000
    status = gate.status()
    assert 100_000 <= status.bytes_down < 102_000
    gate.curl(f"http://good.test:{HTTP_PORT}/bytes/1000000", "--output", "/dev/null")
    assert gate.last().reason == "bytes_cap"
    assert gate.status().bytes_down < 900_000
    assert gate.curl(GOOD).startswith("curl:")


def test_a_rate(gate: Stage) -> None:
    gate.allow("good.test:8080", rate_bytes_per_s=1_000_000)
    begun_s = time.monotonic()
    gate.curl(f"http://good.test:{HTTP_PORT}/bytes/2500000", "--output", "/dev/null")
    assert time.monotonic() - begun_s > 1.0


def test_a_bound_on_connections(gate: Stage) -> None:
    gate.allow(f"good.test:{BANNER_PORT}", connections_max=5)
    many = (
        "import socket; got=[]\n"
        "for _ in range(12):\n"
        f" s=socket.create_connection(('good.test',{BANNER_PORT})); s.settimeout(3); got.append(s)\n"
        "ok=0\n"
        "for s in got:\n"
        " try: ok += s.recv(10)==b'HELLO\\n'\n"
        " except OSError: pass\n"
        "print(ok)"
    )
    assert gate.python(many).strip() == "5"
    wait_until(lambda: gate.status().connections_open == 0, 5)
    assert "b'HELLO" in gate.python(
        f"import socket; print(socket.create_connection(('good.test',{BANNER_PORT})).recv(9))"
    )


def test_a_person_is_asked(gate: Stage, servers: Upstream) -> None:
    gate.allow("good.test:8080", ask=True, ask_s=5.0)
    url = f"http://other.test:{HTTP_PORT}/asked"
    waiting = gate.start("curl", "-sS", "--max-time", "10", url)
    wait_until(lambda: gate.status().asks, 5)
    (ask,) = gate.status().asks
    assert (ask.host, ask.port) == ("other.test", HTTP_PORT)
    assert "other.test" not in servers.asked, "nobody hears of a name before a person has allowed it"
    gate.answer(ask.id, True)
    assert "GET /asked" in waiting.communicate(timeout=10)[0]
    refused = gate.start("curl", "-sS", "--max-time", "10", url)
    wait_until(lambda: gate.status().asks, 5)
    gate.answer(gate.status().asks[0].id, False)
    assert "ask_refused" in refused.communicate(timeout=10)[0]


def test_a_change_does_not_end_what_waits_for_a_persons_word(gate: Stage) -> None:
    """Nor does it let anything through: the answer counts by the rules that hold by then."""

    def waits(host: str = "other.test") -> tuple[str, subprocess.Popen[str]]:
        gate.allow(ask=True, ask_s=20.0)
        waiting = gate.start("curl", "-sS", "--max-time", "15", f"http://{host}:{HTTP_PORT}/asked")
        wait_until(lambda: gate.status().asks, 5)
        return gate.status().asks[0].id, waiting

    ask, waiting = waits()
    gate.allow("good.test:8080", ask=True, ask_s=20.0)
    gate.answer(ask, True)
    assert "GET /asked" in waiting.communicate(timeout=10)[0]
    ask, waiting = waits()
    gate.allow(f"other.test:{HTTP_PORT}", ask=True, ask_s=20.0)
    gate.answer(ask, True)
    assert "GET /asked" in waiting.communicate(timeout=10)[0]
    for denied in ("other.test", OTHER):
        ask, waiting = waits(denied)
        gate.allow(deny=(f"{denied}:*",), ask=True, ask_s=20.0)
        gate.answer(ask, True)
        assert "not allowed" in waiting.communicate(timeout=10)[0]
    ask, waiting = waits()
    gate.allow("good.test:8080")
    assert "ask_refused" in waiting.communicate(timeout=10)[0], "nobody is asked any more"
    assert gate.status().asks == ()


def test_no_answer_in_time_is_a_refusal(gate: Stage) -> None:
    gate.allow("good.test:8080", ask=True, ask_s=1.0)
    assert "ask_refused" in gate.curl(f"http://other.test:{HTTP_PORT}/")
    assert gate.status().asks == ()


def test_every_connection_is_an_event(gate: Stage) -> None:
    gate.allow("good.test:8080")
    gate.curl(GOOD)
    event = gate.last()
    assert (event.name, event.address, event.port, event.rule) == ("good.test", WEB, HTTP_PORT, "good.test:8080")
    assert event.allowed
    assert event.bytes_up > 50
    assert event.bytes_down > 50
    gate.curl(f"http://{OTHER}:{HTTP_PORT}/")
    assert (gate.last().allowed, gate.last().reason, gate.last().address) == (False, "not_listed", OTHER)
