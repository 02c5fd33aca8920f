"""E2B's secrets: ours that are for rules, because E2B binds a secret to hosts only where a rule names it.

The name is the id: it is as unique and as stable, and E2B's clients take either.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from atoll.api.compat.e2b import shapes
from atoll.api.compat.e2b.ask import Ask, Operation
from atoll.model.secret import Secret

_ITEMS_MAX: Final = 100


class NewSecret(msgspec.Struct):
    name: str
    value: str
    metadata: dict[str, str] = {}


class SecretUpdate(msgspec.Struct):
    value: str
    metadata: dict[str, str] | None = None


def shape(secret: Secret) -> dict[str, Any]:
    assert secret.created_at is not None
    assert secret.changed_at is not None
    return {
        "secretID": secret.name,
        "name": secret.name,
        "currentVersion": secret.version,
        "metadata": dict(secret.metadata),
        "createdAt": shapes.moment(secret.created_at),
        "updatedAt": shapes.moment(secret.changed_at),
    }


async def create(ask: Ask) -> None:
    asked = await ask.body(NewSecret)
    wanted = Secret(asked.name, (), by_rule=True, metadata=asked.metadata)
    kept = await ask.control.secrets.put(ask.principal, wanted, asked.value, fresh=True)
    await ask.control.policies.secret_changed(ask.principal, kept, "secret.kept")
    await ask.answer(shape(kept), 201)


async def update(ask: Ask) -> None:
    """Another value, from the next request on; a secret that was made elsewhere keeps its hosts."""
    known = await ask.control.secrets.get(ask.principal, _name(ask))
    asked = await ask.body(SecretUpdate)
    wanted = replace(known, metadata=known.metadata if asked.metadata is None else asked.metadata)
    kept = await ask.control.secrets.put(ask.principal, wanted, asked.value)
    await ask.control.policies.secret_changed(ask.principal, kept, "secret.kept")
    await ask.answer(shape(kept))


async def show(ask: Ask) -> None:
    await ask.answer(shape(await ask.control.secrets.get(ask.principal, _name(ask))))


async def list_all(ask: Ask) -> None:
    """By name; a page begins after the name that the one before ended with."""
    after = unquote(ask.query.get("nextToken", ""))
    known = sorted(await ask.control.secrets.list(ask.principal), key=lambda secret: secret.name)
    found = [secret for secret in known if secret.name > after]
    page = found[: shapes.page_size(ask.query.get("limit", ""), _ITEMS_MAX)]
    more = {"x-next-token": quote(page[-1].name)} if len(page) < len(found) else {}
    await ask.answer([shape(secret) for secret in page], headers=more)


async def delete(ask: Ask) -> None:
    name = _name(ask)
    await ask.control.secrets.remove(ask.principal, name)
    await ask.control.policies.secret_changed(ask.principal, name, "secret.removed")
    await ask.answer(None, 204)


def _name(ask: Ask) -> str:
    return unquote(ask.path["secret"])


_ONE: Final = "/secrets/{secret}"

OPERATIONS: Final = (
    Operation("POST", "/secrets", create),
    Operation("GET", "/secrets", list_all),
    Operation("GET", _ONE, show),
    Operation("POST", _ONE, update),
    Operation("DELETE", _ONE, delete),
)
