"""Secrets in the headers that rules of a policy set: `${secrets.NAME}` stands for the value of a secret. Pure.

The node gets a placeholder in the header and a grant beside it, so the value goes where every value goes: into requests
over TLS, to hosts that have proven their name. A secret with hosts of its own goes to those only; one that is for rules
goes to the hosts of the rules that name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from atoll.model.policy import HttpRule, Policy, parse_rule
from atoll.model.secret import Grant, Hidden, Secret

_REFERENCE = re.compile(r"\$\{secrets\.([^{}]{1,128})\}")


def named_in(policy: Policy) -> tuple[str, ...]:
    """The secrets that a policy's rules name, each once."""
    values = [value for rule in policy.http for value in rule.set_headers.values()]
    return tuple(dict.fromkeys(name for value in values for name in _REFERENCE.findall(value)))


def granted(
    policy: Policy, known: Mapping[str, tuple[Secret, Hidden]], placeholder: Callable[[], str]
) -> tuple[Policy, tuple[Grant, ...]]:
    """The policy with placeholders, and their grants. A header whose secret is gone is not set at all."""
    placeholders = {name: placeholder() for name in named_in(policy) if name in known}
    if not placeholders and not named_in(policy):
        return policy, ()
    http = tuple(replace(rule, set_headers=_filled(rule, placeholders)) for rule in policy.http)
    grants = []
    for name, stands_for in placeholders.items():
        secret, value = known[name]
        hosts = tuple(rule.host for rule in policy.http if name in named_in(Policy(http=(rule,))))
        # A rule for HTTP is for a name, on whatever port it is asked.
        rules = tuple(parse_rule(f"{host}:*") for host in hosts) if secret.by_rule else secret.rules()
        # Only the header of the rule: what the secret does by itself it does for sandboxes that were given it.
        plain = replace(secret, header="", path="", query=False, basic=False)
        grants.append(Grant(plain, rules, stands_for, value, inside=False))
    return replace(policy, http=http), tuple(grants)


def _filled(rule: HttpRule, placeholders: Mapping[str, str]) -> dict[str, str]:
    filled = {}
    for header, value in rule.set_headers.items():
        if all(name in placeholders for name in _REFERENCE.findall(value)):
            filled[header] = _REFERENCE.sub(lambda match: placeholders[match[1]], value)
    return filled
