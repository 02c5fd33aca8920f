# Generated from src/atoll/client/_async/secrets.py by tools/unasync.py: change that file, not this one.
"""Secrets that sandboxes use without holding them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._config import discover
from atoll.wire.public.secrets import SecretList, SecretPut, SecretView

_PATH = "/v1/secrets"
Views = list[SecretView]  # inside the class `list` is its own method


class Secrets:
    """Keep, list and remove secrets. A value goes in and never comes out.

    Example:
        Secrets.put("API_TOKEN", "s3cr3t", hosts=["api.example.org"])
        sb = Sandbox.create(policy=["api.example.org"], secrets=["API_TOKEN"])
        sb.commands.run('curl -H "Authorization: Bearer $API_TOKEN" https://api.example.org/me')
    """

    @classmethod
    def put(
        cls,
        name: str,
        value: str | None = None,
        *,
        hosts: Sequence[str] = (),
        env: str = "",
        path: str = "",
        header: str = "",
        format: str = "{}",
        query: bool = False,
        basic: bool = False,
        by_rule: bool = False,
        metadata: Mapping[str, str] | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> SecretView:
        """Keep a secret, or change one; without a value the one that is kept stays.

        The value replaces the placeholder in headers of requests to `hosts`; with `query` and `basic` also there. With
        `header` it is put into that header by `format`, whether or not the sandbox sends the placeholder. With
        `by_rule` it has no hosts: it goes where a rule of a policy sets a header with `${secrets.NAME}`.
        """
        body = SecretPut(
            hosts=list(hosts),
            value=value,
            env=env,
            path=path,
            header=header,
            format=format,
            query=query,
            basic=basic,
            by_rule=by_rule,
            metadata=dict(metadata or {}),
        )
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return transport.call("PUT", f"{_PATH}/{exchange.segment(name)}", SecretView, body)
        finally:
            transport.release()

    @classmethod
    def list(cls, *, url: str | None = None, api_key: str | None = None) -> Views:
        """Your secrets, by name, without their values."""
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            return (transport.call("GET", _PATH, SecretList)).items
        finally:
            transport.release()

    @classmethod
    def remove(cls, name: str, *, url: str | None = None, api_key: str | None = None) -> None:
        """Remove a secret; sandboxes that have it keep a placeholder that stands for nothing."""
        transport = Transport.acquire(discover(url, api_key, os.environ))
        try:
            transport.fetch("DELETE", f"{_PATH}/{exchange.segment(name)}")
        finally:
            transport.release()
