# Generated from src/atoll/client/_async/keys.py by tools/unasync.py: change that file, not this one.
"""API keys: make, list, revoke."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.client import _exchange as exchange
from atoll.client._sync.asking import ask
from atoll.wire.public import KeyCreate, KeyCreated, KeyList, KeyView, QuotaBody

_PATH = "/v1/keys"
Views = list[KeyView]  # inside the class `list` is its own method


class Keys:
    """The keys of your tenant; with `tenant`, which is for the operator, of another one.

    Example:
        made = Keys.create("ci", scopes=["read", "write"], expires_in_s=86400)
        print(made.key)
    """

    @classmethod
    def create(
        cls,
        name: str,
        *,
        scopes: Sequence[str] = ("read", "write"),
        member: str | None = None,
        expires_in_s: float | None = None,
        quota: QuotaBody | None = None,
        tenant: str | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> KeyCreated:
        """Make a key. It is in the answer, and nowhere else: only its hash is kept.

        Example:
            made = Keys.create("reader", scopes=["read"])
        """
        body = KeyCreate(
            name=name,
            scopes=list(scopes),
            member=member,
            expires_in_s=expires_in_s,
            quota=quota or QuotaBody(),
            tenant=tenant,
        )
        return ask("POST", _PATH, KeyCreated, body, url=url, api_key=api_key)

    @classmethod
    def list(cls, *, tenant: str | None = None, url: str | None = None, api_key: str | None = None) -> Views:
        """All keys, also those that no longer open anything, oldest first.

        Example:
            print([(key.name, key.last_used_at) for key in Keys.list()])
        """
        path = _PATH + exchange.query(tenant=tenant)
        return (ask("GET", path, KeyList, url=url, api_key=api_key)).items

    @classmethod
    def revoke(
        cls, key_id: str, *, tenant: str | None = None, url: str | None = None, api_key: str | None = None
    ) -> KeyView:
        """Have a key open nothing from now on.

        Example:
            Keys.revoke(made.view.id)
        """
        path = f"{_PATH}/{exchange.segment(key_id)}{exchange.query(tenant=tenant)}"
        return ask("DELETE", path, KeyView, url=url, api_key=api_key)
