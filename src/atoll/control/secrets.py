"""Use cases of secrets: keep, list, rotate, remove; and the values, for the node alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from atoll.control import rulesecrets
from atoll.control.authz import Principal
from atoll.control.clock import Clock
from atoll.control.store import secrets as rows
from atoll.control.store.engine import Store
from atoll.control.store.secrets import SealedSecret
from atoll.control.vault import Vault
from atoll.model import limits
from atoll.model.errors import Internal, InvalidArgument, LimitExceeded, NotFound
from atoll.model.policy import Policy
from atoll.model.secret import Grant, Hidden, Secret, check_value

log = structlog.get_logger(__name__)


class Secrets:
    """The secrets of all owners. No call gives a value back."""

    def __init__(self, store: Store, clock: Clock, vault: Vault) -> None:
        self._store = store
        self._clock = clock
        self._vault = vault

    async def put(self, principal: Principal, secret: Secret, value: str | None, *, fresh: bool = False) -> Secret:
        """Keep a secret, new or changed; without a value the old one stays under the new settings.

        With `fresh` it must be new.
        """
        secret.checked()
        if value is not None:
            check_value(value)
            many = await self._store.read(rows.count, principal.owner) >= limits.SECRETS_MAX
            if many and await self._store.read(rows.get, principal.owner, secret.name) is None:
                raise LimitExceeded(f"there are {limits.SECRETS_MAX} secrets already", code="too_many_secrets")
        sealed = None if value is None else self._vault.seal(value, _label(principal.owner, secret.name))
        kept = await self._store.write(rows.put, principal.owner, secret, sealed, self._clock.now(), fresh=fresh)
        if kept is None:
            raise _missing(secret.name)
        return kept.secret

    async def get(self, principal: Principal, name: str) -> Secret:
        return (await self._find(principal.owner, name)).secret

    async def list(self, principal: Principal) -> list[Secret]:
        return [kept.secret for kept in await self._store.read(rows.owned, principal.owner)]

    async def remove(self, principal: Principal, name: str) -> None:
        if not await self._store.write(rows.remove, principal.owner, name):
            raise _missing(name)

    async def check_known(self, owner: str, names: tuple[str, ...]) -> None:
        """Refuse a name that stands for nothing, or for what no sandbox gets a placeholder of."""
        for name in names:
            if (await self._find(owner, name)).secret.by_rule:
                raise InvalidArgument(
                    f"the secret {name[:80]!r} is for rules of a policy, not for a sandbox",
                    code="invalid_secret",
                    hint="Name it in a header that a rule sets: ${secrets.NAME}.",
                )

    async def check_named(self, owner: str, policy: Policy) -> None:
        """Refuse a policy whose rules name a secret that is not there, or too many of them."""
        names = rulesecrets.named_in(policy)
        if len(names) > limits.SECRETS_PER_SANDBOX_MAX:
            raise InvalidArgument(f"rules name at most {limits.SECRETS_PER_SANDBOX_MAX} secrets", code="invalid_secret")
        for name in names:
            if await self._store.read(rows.get, owner, name) is None:
                raise _missing(name)

    async def for_rules(
        self, owner: str, policy: Policy, placeholder: Callable[[], str]
    ) -> tuple[Policy, tuple[Grant, ...]]:
        """A policy as a node enforces it, with the secrets that its rules name."""
        known: dict[str, tuple[Secret, Hidden]] = {}
        for name in rulesecrets.named_in(policy):
            kept = await self._store.read(rows.get, owner, name)
            if kept is not None:
                known[name] = kept.secret, self._vault.open(kept.sealed, _label(owner, name))
        return rulesecrets.granted(policy, known, placeholder)

    async def grants(self, owner: str, placeholders: Mapping[str, str]) -> tuple[Grant, ...]:
        """Secrets with their values, for a sandbox. One that has been removed is left out."""
        if not placeholders:
            return ()
        known = {kept.secret.name: kept for kept in await self._store.read(rows.owned, owner)}
        found = []
        for name, placeholder in placeholders.items():
            kept = known.get(name)
            if kept is not None:
                value = self._vault.open(kept.sealed, _label(owner, name))
                found.append(Grant(kept.secret, kept.secret.rules(), placeholder, value))
        return tuple(found)

    async def reseal(self) -> None:
        """Encrypt everything with the first key; done at start, so that an old key can be taken away."""
        for kept in await self._store.read(rows.everything):
            if not self._vault.is_current(kept.sealed):
                label = _label(kept.owner, kept.secret.name)
                try:
                    fresh = self._vault.seal(self._vault.open(kept.sealed, label).reveal(), label)
                except Internal as error:  # its key is gone: it is of no use, but the others are
                    log.error("secret_unusable", name=kept.secret.name, error=error.message)
                    continue
                await self._store.write(rows.reseal, kept.owner, kept.secret.name, kept.sealed, fresh)

    async def _find(self, owner: str, name: str) -> SealedSecret:
        kept = await self._store.read(rows.get, owner, name[:256])
        if kept is None:
            raise _missing(name)
        return kept


def _label(owner: str, name: str) -> str:
    """What a sealed value is bound to: moved to another row it does not open."""
    return f"{owner}\0{name}"


def _missing(name: str) -> NotFound:
    return NotFound(
        f"there is no secret {name[:80]!r}",
        code="secret_not_found",
        hint="Keep one with `atoll secret set`; `atoll secret ls` shows those there are.",
    )
