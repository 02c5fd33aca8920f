"""Sending to addresses that strangers have chosen, without being led to where only we can go.

The name is looked up once, every address is judged, and the connection is made to an address that was judged: a name
that answers differently a moment later changes nothing. Redirects are not followed, and answers are not read.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2

from atoll.model import limits


@dataclass(frozen=True, slots=True)
class Post:
    """Something to send."""

    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Posted:
    """How it went: the status of the answer, or why there is none. `final` is what another attempt would not change."""

    status: int | None
    error: str = ""
    final: bool = False


class Poster:
    """Sends posts; private addresses are refused unless the operator has allowed them."""

    def __init__(self, *, private_allowed: bool) -> None:
        self._private_allowed = private_allowed
        # Threads of their own: those of the loop are few, and names that are slow to find would take them all.
        self._finding = anyio.CapacityLimiter(limits.WEBHOOKS_AT_ONCE_MAX)

    async def send(self, post: Post) -> Posted:
        try:
            with anyio.fail_after(limits.WEBHOOK_S_MAX):
                return await self._send(post)
        except TimeoutError:
            return Posted(None, f"no answer within {limits.WEBHOOK_S_MAX:g} s")
        except (httpx2.HTTPError, OSError, UnicodeError) as error:
            return Posted(None, f"{type(error).__name__}: {error}")
        except (httpx2.InvalidURL, ValueError) as error:  # an address that is none, whoever looks at it
            return Posted(None, f"{type(error).__name__}: {error}", final=True)

    async def _send(self, post: Post) -> Posted:
        parts = urlsplit(post.url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = await anyio.to_thread.run_sync(
            functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM),
            limiter=self._finding,
            abandon_on_cancel=True,
        )
        addresses = [str(entry[4][0]) for entry in found]
        if not self._private_allowed and not all(is_public(address) for address in addresses):
            return Posted(None, "the address is private, and the operator does not allow those", final=True)
        address = addresses[0]
        literal = f"[{address}]" if ":" in address else address
        target = parts._replace(netloc=f"{literal}:{port}").geturl()
        headers = {**post.headers, "host": parts.netloc}
        # No proxy and no .netrc of the environment: they would decide where this goes.
        async with httpx2.AsyncClient(trust_env=False, follow_redirects=False) as client:
            request = client.build_request(
                "POST", target, content=post.body, headers=headers, extensions={"sni_hostname": host}
            )
            response = await client.send(request, stream=True)
            await response.aclose()
            return Posted(response.status_code, "" if response.is_success else f"status {response.status_code}")


def is_public(address: str) -> bool:
    """Whether an address is one of the open network: not ours, not a neighbour's, not a trick with another notation."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if inner is not None:
            return is_public(str(inner))
        if parsed in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
