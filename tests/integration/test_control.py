"""Keys, usage, audit, backup and PostgreSQL on a real server, also through kills."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from atoll import Sandbox
from atoll.client import Events, Keys, QuotaBody, Tenants, Usage
from atoll.model.errors import Conflict, Forbidden, LimitExceeded, NotFound, Unauthenticated
from atoll.testing.postgres import Postgres, running
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real

MakeServer = Callable[..., Server]


def cli(server: Server, *arguments: str, code: int = 0) -> str:
    environment = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key, "ATOLL_DATA": str(server.data)}
    done = subprocess.run(
        [sys.executable, "-m", "atoll", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def access(server: Server, key: str = "") -> dict[str, Any]:
    return {"url": server.url, "api_key": key or server.key}


def usage_of(server: Server, sandbox_id: str) -> Any:
    return Usage.report(sandbox=sandbox_id, **access(server)).items[0]


def test_usage_is_exact_across_a_kill_of_the_server(make_server: MakeServer) -> None:
    """The sandbox burns CPU while no server is there; all of it is counted afterwards, once."""
    server = make_server(ATOLL_USAGE_INTERVAL_S="1", ATOLL_PRICE_WALL_S="2", ATOLL_CURRENCY="EUR")
    sandbox = server.create(metadata={"run": "7"})
    began_s = time.monotonic()
    # A second of CPU, however long that takes on a busy machine.
    assert sandbox.commands.run(["perl", "-e", "1 while (times)[0] < 1"]).exit_code == 0
    server.kill()
    time.sleep(2)  # this is what is measured: time without a server
    server.start()
    wait_until(lambda: usage_of(server, sandbox.id).wall_s > 3, 10, "what was missed is counted")
    sandbox = server.connect(sandbox.id)
    sandbox.kill()
    elapsed_s = time.monotonic() - began_s
    total = usage_of(server, sandbox.id)
    info = sandbox.info()
    assert info.started_at is not None
    assert info.ended_at is not None
    assert total.wall_s == pytest.approx((info.ended_at - info.started_at).total_seconds(), abs=1.1)
    assert total.wall_s <= elapsed_s + 1
    assert 0.8 <= total.cpu_s <= elapsed_s * 2
    assert total.memory_gib_s > 0
    assert total.money == pytest.approx(total.wall_s * 2, rel=1e-4)
    assert usage_of(server, sandbox.id) == total
    rows = list(csv.DictReader(io.StringIO(cli(server, "usage", "--by", "label:run", "--csv"))))
    assert [(row["group"], row["sandboxes"]) for row in rows] == [("7", "1")]
    assert json.loads(cli(server, "usage", "--json"))["currency"] == "EUR"
    sandbox.close()


def test_a_create_is_done_once_even_if_the_server_was_killed_in_between(make_server: MakeServer) -> None:
    server = make_server()
    header = {"idempotency-key": "once"}
    first = server.request("POST", "/v1/sandboxes", json={"template": "base"}, headers=header)
    server.kill()
    server.start()
    again = server.request("POST", "/v1/sandboxes", json={"template": "base"}, headers=header)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["sandbox"]["id"] == again.json()["sandbox"]["id"]
    assert len(server.rows()) == 1
    actions = [event.action for event in Events.list(actions=["sandbox.*"], **access(server))]
    assert actions == ["sandbox.creating", "sandbox.running"]


def test_a_create_whose_connection_breaks_is_repeated(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is lost on its way; the SDK asks again with the same key and gets the sandbox that was made."""
    real = httpx2.HTTPTransport.handle_request
    lost: list[str] = []

    def send(self: httpx2.HTTPTransport, request: httpx2.Request) -> httpx2.Response:
        response = real(self, request)
        if request.method == "POST" and not lost:
            lost.append(json.loads(response.read())["sandbox"]["id"])
            response.close()
            raise httpx2.ReadError("broken", request=request)
        return response

    monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", send)
    with server.create() as sandbox:
        assert [sandbox.id] == lost


def test_tenants_see_nothing_of_each_other(server: Server) -> None:
    Tenants.create("team", quota=QuotaBody(sandboxes=1, requests_per_second=1000), **access(server))
    made = Keys.create("first", scopes=["admin"], tenant="team", **access(server))
    mine = server.create()
    with pytest.raises(NotFound) as caught:
        Sandbox.connect(mine.id, **access(server, made.key))
    missing = mine.id[:-4] + "0000"
    with pytest.raises(NotFound) as expected:
        Sandbox.connect(missing, **access(server, made.key))
    assert str(caught.value).replace(mine.id, "") == str(expected.value).replace(missing, "")
    assert list(Sandbox.list(**access(server, made.key))) == []
    theirs = Sandbox.create("base", **access(server, made.key))
    with pytest.raises(LimitExceeded):
        Sandbox.create("base", **access(server, made.key))
    with pytest.raises(Forbidden):
        Tenants.list(**access(server, made.key))
    Tenants.remove("team", **access(server))
    with pytest.raises(Unauthenticated):
        theirs.info()
    theirs.close()
    mine.kill()
    mine.close()
    wait_until(lambda: not server.boxes() or server.sandboxes() == [], 10, "what the tenant had is gone")


def test_keys_events_and_status_from_the_command_line(server: Server) -> None:
    key = cli(server, "key", "create", "ci", "--scope", "read", "--expires", "1h", "--sandboxes", "3").strip()
    assert key.startswith("atoll_")
    (listed,) = [one for one in json.loads(cli(server, "key", "ls", "--json")) if one["name"] == "ci"]
    assert listed["quota"]["sandboxes"] == 3
    assert listed["id"] in cli(server, "key", "revoke", listed["id"])
    assert listed["id"] not in cli(server, "key", "ls")
    with pytest.raises(Unauthenticated):
        next(iter(Sandbox.list(**access(server, key))), None)
    events = [json.loads(line) for line in cli(server, "events", "--json", "--action", "key.*").splitlines()]
    assert [(one["action"], one["target"]) for one in events[-2:]] == [
        ("key.created", listed["id"]),
        ("key.revoked", listed["id"]),
    ]
    assert "sandboxes" in cli(server, "status")
    cli(server, "tenant", "create", "other", "--cpu", "2")
    assert "cpu=2" in cli(server, "tenant", "ls")
    cli(server, "tenant", "invite", "ann", "--tenant", "other")
    assert "ann" in cli(server, "tenant", "members", "--tenant", "other")
    assert "there is no tenant" in cli(server, "tenant", "info", "nobody", code=1)
    assert "private" not in cli(server, "webhook", "ls")


def test_webhooks_do_not_reach_this_machine(server: Server) -> None:
    hook = cli(server, "webhook", "create", f"{server.url}/v1/keys", "--action", "sandbox.running").split()[0]
    with server.create():
        pass

    def failed() -> bool:
        found = json.loads(cli(server, "webhook", "deliveries", hook, "--json"))
        return bool(found) and found[0]["state"] == "failed" and "private" in found[0]["error"]

    wait_until(failed, 15, "the delivery is refused")
    cli(server, "webhook", "rm", hook)


def test_a_backup_of_a_running_server_can_be_restored(make_server: MakeServer, data_dir: Path, tmp_path: Path) -> None:
    server = make_server()
    sandbox = server.create(name="kept")
    key = Keys.create("kept", **access(server)).key
    archive = tmp_path / "backup.tar.gz"
    cli(server, "backup", str(archive))
    assert archive.stat().st_mode & 0o777 == 0o600
    cli(server, "backup", str(archive), code=1)  # it is there already
    assert "another server" in cli(server, "restore", str(archive), code=1)
    sandbox.kill()
    sandbox.close()
    restored = Server(data_dir, {})
    cli(restored_access(restored), "restore", str(archive), "--data", str(data_dir))
    restored.start()
    try:
        assert restored.key == server.key
        (found,) = Sandbox.list(**access(restored, key))
        # Its machine is not in the backup: on record it is, and it says what became of it.
        assert (found.name, found.state, found.end_reason) == ("kept", "failed", "runtime_died")
    finally:
        restored.close()


def restored_access(server: Server) -> Any:
    """A server that is not there yet: the command must not need one."""

    class Nobody:
        url, key, data = "http://127.0.0.1:1", "none", server.data

    return Nobody()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with running() as server:
        yield server


def test_a_whole_server_on_postgresql(postgres: Postgres, make_server: MakeServer) -> None:
    server = make_server(ATOLL_DATABASE=postgres.database())
    made = server.create(name="on-pg", metadata={"a": "ü"})
    assert made.commands.run("echo ok").stdout == "ok\n"
    made.close()
    server.kill()
    server.start()
    (found,) = Sandbox.list(metadata={"a": "ü"}, **access(server))
    assert (found.id, found.state) == (made.id, "running")
    with pytest.raises(Conflict):
        server.create(name="on-pg")
    _work_while_it_is_away(postgres, server, found.id)
    assert Usage.report(**access(server)).items[0].sandboxes == 3


def _work_while_it_is_away(postgres: Postgres, server: Server, sandbox_id: str) -> None:
    """Commands go on, what must be written is refused, and what was due or done meanwhile is made up for."""
    key = Keys.create("new", **access(server)).key  # one that is known for as long as can be when the database goes
    with server.create(timeout_s=1) as doomed, Sandbox.connect(sandbox_id, **access(server, key)) as sandbox:
        postgres.stop()
        since, due_s = datetime.now(UTC), time.monotonic() + 1
        assert sandbox.commands.run("echo on").stdout == "on\n"
        refused = [server.request("GET", "/v1/sandboxes"), server.request("POST", "/v1/sandboxes", json={})]
        time.sleep(max(0.0, due_s - time.monotonic()))
        postgres.start()
        assert {(answer.status_code, answer.json()["code"]) for answer in refused} == {(503, "database_unavailable")}
        with server.create() as fresh:
            assert fresh.commands.run("echo fine").stdout == "fine\n"
        wait_until(lambda: doomed.info().state == "killed", 20, "its deadline came while the database was away")
        assert doomed.info().end_reason == "deadline"
    told: dict[str, Any] = {"target": sandbox_id, "actions": ("POST *",), "since": since}
    wait_until(lambda: bool(Events.list(**told, **access(server))), 5, "the command is in the audit log")
    wait_until(lambda: not server.boxes(), 10, "nothing is left of what was refused or ended")
