"""One request to the façade: what handlers read from it, and how they answer."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from atoll.api import authn
from atoll.api.endpoint import read_body
from atoll.api.ingress.addresses import Addresses
from atoll.control.authz import READ, WRITE
from atoll.control.service import Control, Guest, Principal
from atoll.model import limits
from atoll.model.errors import InvalidArgument, Unauthenticated
from atoll.wire import codec

T = TypeVar("T")


@dataclass(slots=True)
class Ask:
    """A request, with the caller once it is known."""

    control: Control
    addresses: Addresses
    scope: Scope
    receive: Receive
    send: Send
    path: Mapping[str, str]
    principal: Principal
    sandbox_id: str = ""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Names of templates that mean another one here."""
    _pairs: list[tuple[str, str]] | None = field(default=None, init=False)

    def header(self, name: bytes) -> str:
        return next((value.decode("latin-1").strip() for key, value in self.scope["headers"] if key == name), "")

    @property
    def query(self) -> dict[str, str]:
        """The query's fields; of one that is given twice the last."""
        return dict(self._fields())

    def words(self, name: str) -> list[str]:
        """The words of a field that is a list: with commas between them, or given once for each."""
        return [word for key, value in self._fields() if key == name for word in value.split(",") if word]

    def _fields(self) -> list[tuple[str, str]]:
        if self._pairs is None:
            try:
                self._pairs = parse_qsl(
                    self.scope["query_string"].decode("ascii", "replace"),
                    keep_blank_values=True,
                    errors="surrogateescape",
                    max_num_fields=limits.QUERY_FIELDS_MAX,
                )
            except ValueError:
                raise InvalidArgument("too many query parameters", code="invalid_query") from None
        return self._pairs

    @property
    def may_write(self) -> bool:
        """Whether the caller may be given what opens more than reading."""
        return WRITE in self.principal.scopes

    async def admit(self, known: Principal, needs: str) -> None:
        """Let a caller in who has shown a token in place of a key: at its owner's rate, and in its audit log."""
        about = {"sandbox": self.sandbox_id} if self.sandbox_id else {}
        self.scope["path_params"] = {**about, **self.path}
        self.principal = await authn.admit_keyless(known, self.scope, self.control, needs)

    async def body(self, kind: type[T]) -> T:
        return codec.decode(await read_body(self.scope, self.receive) or b"{}", kind)

    async def guest(self) -> Guest:
        return await self.control.guest(self.principal, self.sandbox_id)

    def user(self) -> str | None:
        """Whom the caller wants to be inside: the name of a Basic authorization, whose password is empty."""
        scheme, _, rest = self.header(b"authorization").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name = base64.b64decode(rest.strip(), validate=True).decode("utf-8").partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            raise Unauthenticated("the Authorization header cannot be read") from None
        return name or None

    async def answer(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """JSON; None is an answer without a body."""
        body = b"" if value is None else codec.encode(value)
        more = [(name.encode("ascii"), text.encode("latin-1")) for name, text in (headers or {}).items()]
        if status != 204:
            more += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
        await self.send({"type": "http.response.start", "status": status, "headers": more})
        await self.send({"type": "http.response.body", "body": body})

    async def answer_text(self, text: str, status: int) -> None:
        body = text.encode("utf-8", "surrogatepass")
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode("ascii"))]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def as_root(params: Mapping[str, Any], user: str | None) -> dict[str, Any]:
    """A file operation as E2B's agent does it: with root's rights, while names and what is made are the user's."""
    return without_none({**params, "user": user, "as_root": True})


Handler = Callable[[Ask], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on a path of one of E2B's servers, and what answers it."""

    method: str
    path: str
    handler: Handler
    reads: bool = False
    """Whether it only shows, although its method says otherwise."""

    @property
    def needs(self) -> str:
        """The scope that it takes."""
        return READ if self.reads or self.method == "GET" else WRITE


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is known; E2B leaves out what is not."""
    return {name: value for name, value in values.items() if value is not None}
