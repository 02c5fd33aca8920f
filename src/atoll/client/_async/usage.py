"""What has been used, and how the server is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from atoll.client import _exchange as exchange
from atoll.client._async.asking import ask
from atoll.wire.public import StatusView, UsageReport


class AsyncUsage:
    """What your sandboxes have used.

    Example:
        report = await AsyncUsage.report(by="day")
        print([(row.group, row.cpu_s, row.money) for row in report.items])
    """

    @classmethod
    async def report(
        cls,
        *,
        by: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        template: str | None = None,
        sandbox: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tenant: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> UsageReport:
        """Sums up to a moment ago. `by` is "day", "template", "sandbox", "key" or "label:<key>"; or "tenant".

        Example:
            report = await AsyncUsage.report(by="label:run", metadata={"team": "a"})
        """
        given = {
            "by": by,
            "since": exchange.moment(since),
            "until": exchange.moment(until),
            "template": template,
            "sandbox": sandbox,
            "tenant": tenant,
        }
        pairs = [(key, value) for key, value in given.items() if value is not None]
        pairs += [("metadata", f"{key}={value}") for key, value in (metadata or {}).items()]
        return await ask("GET", "/v1/usage" + exchange.query_pairs(pairs), UsageReport, url=url, api_key=api_key)

    @classmethod
    async def status(cls, *, url: str | None = None, api_key: str | None = None) -> StatusView:
        """How the server is: sandboxes, pool, memory, disk, what this month has cost, warnings.

        Example:
            print((await AsyncUsage.status()).warnings)
        """
        return await ask("GET", "/v1/status", StatusView, url=url, api_key=api_key)
