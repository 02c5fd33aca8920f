"""Secrets that sandboxes use without holding them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from atoll.client import _exchange as exchange
from atoll.client._async.transport import AsyncTransport
from atoll.client._config import discover
from atoll.wire.public.secrets import SecretList, SecretPut, SecretView

_PATH = "/v1/secrets"
Views = list[SecretView]  # inside the class `list` is its own method


class AsyncSecrets:
    """Keep, list and remove secrets. A value goes in and never comes out.

    Example:
        await AsyncSecrets.put("API_TOKEN", "s3cr3t", hosts=["api.example.org"])
        sb = await AsyncSandbox.create(policy=["api.example.org"], secrets=["API_TOKEN"])
        await sb.commands.run('curl -H "Authorization: Bearer $API_TOKEN" https://api.example.org/me')
    """

    @classmethod
    async def put(
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
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return await transport.call("PUT", f"{_PATH}/{exchange.segment(name)}", SecretView, body)
        finally:
            await transport.release()

    @classmethod
    async def list(cls, *, url: str | None = None, api_key: str | None = None) -> Views:
        """Your secrets, by name, without their values."""
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            return (await transport.call("GET", _PATH, SecretList)).items
        finally:
            await transport.release()

    @classmethod
    async def remove(cls, name: str, *, url: str | None = None, api_key: str | None = None) -> None:
        """Remove a secret; sandboxes that have it keep a placeholder that stands for nothing."""
        transport = AsyncTransport.acquire(discover(url, api_key, os.environ))
        try:
            await transport.fetch("DELETE", f"{_PATH}/{exchange.segment(name)}")
        finally:
            await transport.release()
