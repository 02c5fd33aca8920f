"""E2B: its clients, unmodified, on this server.

They are sent here by their own variables (`atoll env e2b`): either one address for everything, with the sandbox named
in headers, or a domain under which every port of every sandbox has a name.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp

from atoll.api.compat.e2b import (
    agent,
    interpreter,
    records,
    routing,
    sandboxes,
    secrets,
    states,
    teams,
    templates,
    volumecontent,
    volumes,
    webhooks,
)
from atoll.api.compat.e2b.planes import Planes
from atoll.api.compat.e2b.routing import Plane
from atoll.api.facade import RequestHead
from atoll.api.ingress.addresses import Addresses
from atoll.api.ingress.routes import Pattern
from atoll.control.service import Control


class E2B:
    """The façade that the loader finds."""

    name = "e2b"

    def matches(self, head: RequestHead, domain: str) -> bool:
        return routing.route(head, domain) is not None

    def application(self, control: Control, addresses: Addresses) -> ASGIApp:
        operations = {
            Plane.CONTROL: (
                *sandboxes.OPERATIONS,
                *states.OPERATIONS,
                *templates.OPERATIONS,
                *teams.OPERATIONS,
                *volumes.OPERATIONS,
                *volumecontent.OPERATIONS,
                *secrets.OPERATIONS,
                *records.OPERATIONS,
                *webhooks.OPERATIONS,
            ),
            Plane.AGENT: agent.OPERATIONS,
            Plane.INTERPRETER: interpreter.OPERATIONS,
        }
        control.accounts.webhooks.forms[webhooks.FORM] = webhooks.post_of
        return Planes(control, addresses, operations)

    def port_patterns(self, domain: str) -> Sequence[Pattern]:
        return (routing.port_pattern, routing.host_pattern(domain))


facade = E2B()
