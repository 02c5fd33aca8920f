"""What a guest is told about who it is."""

from __future__ import annotations

from atoll.model.resources import Resources
from atoll.model.sandbox import OWN_ID
from atoll.node.identity import identity_of
from atoll.node.images import Boot
from atoll.node.journal import Entry

ENTRY = Entry("bx1", "sb1", "ab", "code", Resources(cpu=0.5), "host", "secret-token", Boot("hash", "/app", "/runtime"))


def test_a_variable_may_be_the_id_of_the_sandbox() -> None:
    """Whoever is copied keeps the wish, so that the copy has an id of its own."""
    env = {"ID": OWN_ID, "A": f"x{OWN_ID}"}
    assert identity_of(ENTRY, env)["env"] == {"ID": "sb1", "A": f"x{OWN_ID}"}
    assert env["ID"] == OWN_ID
