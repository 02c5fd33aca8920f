"""Bodies about secrets. A value goes in and never comes out."""

from __future__ import annotations

from datetime import datetime

from atoll.model.secret import Secret, env_of
from atoll.wire.public.base import Answer, Request


class SecretPut(Request):
    """Keep a secret. Without a value, the settings of one that exists change and its value stays.

    The value goes into requests to `hosts`, over TLS: in place of the placeholder in headers (with `query` and `basic`
    also there), and into `header` by `format` whether or not there is a placeholder. Inside, the placeholder is the
    variable `env`, by default the secret's name, and the file `path` if one is given.

    With `by_rule` there are no hosts: the value goes into headers that a rule of a policy sets with `${secrets.NAME}`,
    to the host of that rule.
    """

    hosts: list[str] = []
    value: str | None = None
    env: str = ""
    path: str = ""
    header: str = ""
    format: str = "{}"
    query: bool = False
    basic: bool = False
    by_rule: bool = False
    metadata: dict[str, str] = {}

    def secret(self, name: str) -> Secret:
        return Secret(
            name=name,
            hosts=tuple(self.hosts),
            env=self.env,
            path=self.path,
            header=self.header,
            format=self.format,
            query=self.query,
            basic=self.basic,
            by_rule=self.by_rule,
            metadata=self.metadata,
        )


class SecretView(Answer):
    """What is known about a secret; never its value. `version` counts the values."""

    name: str
    hosts: list[str]
    env: str
    path: str
    header: str
    format: str
    query: bool
    basic: bool
    version: int
    created_at: datetime | None
    changed_at: datetime | None
    by_rule: bool = False
    metadata: dict[str, str] = {}

    @classmethod
    def of(cls, secret: Secret) -> SecretView:
        return cls(
            name=secret.name,
            hosts=list(secret.hosts),
            env="" if secret.by_rule else env_of(secret),
            path=secret.path,
            header=secret.header,
            format=secret.format,
            query=secret.query,
            basic=secret.basic,
            version=secret.version,
            created_at=secret.created_at,
            changed_at=secret.changed_at,
            by_rule=secret.by_rule,
            metadata=dict(secret.metadata),
        )


class SecretList(Answer):
    items: list[SecretView]
