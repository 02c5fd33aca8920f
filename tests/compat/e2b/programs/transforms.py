"""Header transforms and secrets with the Python client: what a server outside gets, through real TLS."""

from __future__ import annotations

import os
from typing import Any

import runner
from e2b import AsyncSecret, Secret, SecretException, SecretNotFoundException
from e2b_code_interpreter import Sandbox
from runner import araised, raised

ADDRESS = os.environ["UPSTREAM"]
HOST = "good.test"


def _rules(**headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"rules": {HOST: [{"transform": {"headers": named}}]}}


def _asked(sandbox: Any, *options: str) -> str:
    """What the server says that it was asked; a header that the program sends is replaced by the rule's."""
    return str(sandbox.commands.run(f"curl -sS {' '.join(options)} {ADDRESS}/plain").stdout)


def case_a_header_is_set_inside_tls() -> None:
    sandbox = Sandbox.create("base", timeout=60, network=_rules(X_Team="blue"))
    said = _asked(sandbox, "-H 'X-Team: red'")
    assert "X-Team: blue" in said
    assert "red" not in said
    sandbox.update_network(_rules(X_Team="green"))
    assert "X-Team: green" in _asked(sandbox)
    sandbox.update_network({})
    assert "X-Team" not in _asked(sandbox, "-k")  # now it is the server itself that the program talks to
    sandbox.kill()


def case_a_secret_is_kept_changed_and_destroyed() -> None:
    made = Secret.create("open-key", "canary-e2b-one", metadata={"team": "blue"})
    assert (made.name, made.version, made.metadata) == ("open-key", 1, {"team": "blue"})
    raised(SecretException, lambda: Secret.create("open-key", "x"))
    changed = Secret.update("open-key", "canary-e2b-two")
    assert (changed.version, changed.metadata) == (2, {"team": "blue"})
    assert Secret.update(made.secret_id, "canary-e2b-three", metadata={}).metadata == {}
    assert Secret.get_info("open-key").version == 3
    Secret.create("second key", "canary-e2b-four")
    first = Secret.list(limit=1)
    names = [entry.name for entry in first.next_items()]
    while first.has_next:
        names += [entry.name for entry in first.next_items()]
    assert names == ["open-key", "second key"]
    assert Secret.exists("second key") is True
    assert Secret.destroy("second key") is True
    assert Secret.destroy("second key") is False
    assert Secret.exists("second key") is False
    raised(SecretNotFoundException, lambda: Secret.update("second key", "x"))
    assert Secret.destroy("open-key") is True


def case_a_secret_goes_into_the_header_that_names_it() -> None:
    """The sandbox has neither the value nor a placeholder; what the server says of it is covered."""
    Secret.create("api-key", "canary-e2b-first")
    sandbox = Sandbox.create("base", timeout=60, network=_rules(Authorization=f"Bearer {Secret.fill('api-key')}"))
    said = _asked(sandbox)
    assert "Authorization: Bearer ****************" in said
    assert "canary" not in said
    assert "atoll-secret" not in sandbox.commands.run("env").stdout
    Secret.update("api-key", "canary-e2b-second")
    _asked(sandbox)
    Secret.destroy("api-key")
    assert "Authorization" not in _asked(sandbox)
    sandbox.kill()
    raised(Exception, lambda: Sandbox.create("base", network=_rules(X=Secret.fill("api-key"))))


async def case_the_asynchronous_client() -> None:
    await AsyncSecret.create("async-key", "canary-e2b-async")
    assert [entry.name for entry in await AsyncSecret.list().next_items()] == ["async-key"]
    assert (await AsyncSecret.update("async-key", "canary-e2b-again")).version == 2
    assert await AsyncSecret.destroy("async-key") is True
    await araised(SecretNotFoundException, AsyncSecret.get_info("async-key"))


if __name__ == "__main__":
    runner.main(globals())
