"""Who is calling, once a key has been recognised, and what that caller may do.

There are three scopes. `read` shows, `write` changes what is in the tenant, `admin` gives and takes keys, members and
webhooks. An admin of the tenant `default`, which every server begins with, is also the operator of the server: it makes
the other tenants and says what they may have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from atoll.model.errors import Forbidden, InvalidArgument
from atoll.model.quota import Quota

DEFAULT_OWNER: Final = "default"
READ: Final = "read"
WRITE: Final = "write"
ADMIN: Final = "admin"
OPERATOR: Final = "operator"
"""Not a scope that a key can have: what it takes is an admin of the default tenant."""
ALL_SCOPES: Final = frozenset({READ, WRITE, ADMIN})


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: whose things it sees, by which key, and what it may do with them."""

    owner: str
    key_id: str
    scopes: frozenset[str]
    source: str = ""
    """The address that the request came from."""
    request_id: str = ""
    tenant_quota: Quota = field(default_factory=Quota)
    key_quota: Quota = field(default_factory=Quota)
    by: str = ""
    """What the caller has shown, where that was no key."""

    @property
    def actor(self) -> str:
        """Who it is, as the audit log calls it."""
        return self.key_id or self.by

    @property
    def is_operator(self) -> bool:
        return self.owner == DEFAULT_OWNER and ADMIN in self.scopes

    def check(self, needed: str) -> None:
        """Refuse what the caller's key does not allow."""
        if needed == OPERATOR:
            if not self.is_operator:
                raise Forbidden(
                    "this is for the operator of the server",
                    code="operator_only",
                    hint=f"Use an admin key of the tenant `{DEFAULT_OWNER}`.",
                )
        elif needed not in self.scopes:
            raise Forbidden(
                f"this key may not {needed}",
                code="scope_missing",
                hint=f"Use a key with the scope `{needed}`.",
            )


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Scopes as a set; whoever may write may read, and an admin may do both."""
    given = frozenset(scopes)
    if not given or not given <= ALL_SCOPES:
        raise InvalidArgument(
            f"{sorted(given)} are not scopes", code="invalid_scopes", hint="Scopes are read, write and admin."
        )
    if ADMIN in given:
        return ALL_SCOPES
    return given | {READ}
