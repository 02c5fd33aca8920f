"""The templates of a disk pool: read-only disks, each with a manifest beside it that is written last."""

from __future__ import annotations

import json
from pathlib import Path

from atoll.model.errors import NotFound
from atoll.model.template import Template
from atoll.node.disks.pool import Pool


def known(pool: Pool) -> list[Template]:
    """All templates that are complete."""
    return [_read(path) for path in sorted((pool.root / "templates").glob("*.json"))]


def find(pool: Pool, name: str) -> Path:
    """The disk of a template."""
    path = pool.root / "templates" / name
    if not path.with_name(f"{name}.json").exists():
        have = ", ".join(template.name for template in known(pool)) or "none; run `make setup`"
        raise NotFound(f"there is no template {name!r}", code="template_not_found", hint=f"Templates here: {have}.")
    return path


def _read(path: Path) -> Template:
    raw = json.loads(path.read_text())
    return Template(
        name=raw["name"],
        key=raw["key"],
        user=raw["user"],
        workdir=raw["workdir"],
        env=dict(raw.get("env", {})),
        warm=tuple(raw.get("warm", ())),
    )
