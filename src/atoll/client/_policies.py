"""Policies as callers write them: a list of what may be reached, or all of it; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atoll.model.errors import InvalidArgument
from atoll.wire.public.policies import PolicyBody

PolicyLike = PolicyBody | Mapping[str, Any] | Sequence[str] | str


def policy_body(policy: PolicyLike) -> PolicyBody:
    """A policy from a list of rules, from one word (`nothing` or `public`), or from its fields."""
    if isinstance(policy, PolicyBody):
        return policy
    if isinstance(policy, str):
        fields: Mapping[str, Any] = {"mode": policy}
    elif isinstance(policy, Mapping):
        fields = policy
    else:
        fields = {"allow": list(policy)}
    try:
        return msgspec.convert(fields, PolicyBody)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"this is not a policy: {error}", code="invalid_policy") from None
