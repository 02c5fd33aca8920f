"""The sandbox that a command is about, as an argument that the shell completes."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

_COMPLETIONS_MAX = 100


def living(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names, and ids where they are not named, of those that live; nothing where no server can be asked."""
    from atoll.client import Sandbox
    from atoll.model.errors import AtollError
    from atoll.model.lifecycle import LIVE

    items = []
    try:
        for view in Sandbox.list(state=sorted(LIVE), limit=_COMPLETIONS_MAX):
            words = [word for word in (view.name, view.id) if word and word.startswith(incomplete)]
            if words:
                items.append(CompletionItem(words[0], help=f"{view.template}, {view.state}"))
    except AtollError:
        return []  # whoever runs the command is told why
    return items


identity_argument = click.argument("identity", metavar="ID", shell_complete=living)
identities_argument = click.argument("identities", metavar="[ID]...", nargs=-1, shell_complete=living)
