"""Bodies about templates."""

from __future__ import annotations

from atoll.wire.public.base import Answer


class TemplateView(Answer):
    name: str
    key: str
    user: str
    workdir: str


class TemplateList(Answer):
    items: list[TemplateView]
