"""Secrets: put into requests where they belong, and nowhere else; with real clients and a real server."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from atoll.cli.policy import policy as policy_command
from atoll.cli.run import run as run_command
from atoll.client import Output
from atoll.control.vault import Vault, key_new
from atoll.model.errors import InvalidArgument
from atoll.model.policy import HttpRule
from atoll.model.secret import Grant, Hidden, Secret
from atoll.testing.server import Server
from tests import upstream
from tests.egress_stage import BOX, Stage, stage
from tests.upstream import H2_PORT, HTTP_PORT, TLS_PORT, Upstream
from tests.waiting import wait_until

pytestmark = pytest.mark.real

VALUE = "canary-7f3e9a51c2"
PLACEHOLDER = "atoll-secret-" + "0123456789abcdef" * 2
SECURE = f"https://good.test:{TLS_PORT}/x"


@pytest.fixture
def gate(servers: Upstream, tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, servers, secrets.token_hex(2)) as opened:
        yield opened


def grant(value: str = VALUE, **settings: object) -> Grant:
    secret = Secret("TOKEN", (f"good.test:{TLS_PORT}",), **settings).checked()  # type: ignore[arg-type]
    return Grant(secret, secret.rules(), PLACEHOLDER, Hidden(value))


def trusting(gate: Stage, folder: Path) -> tuple[str, ...]:
    """What makes curl trust the sandbox's own authority."""
    known = gate.egress.inside(BOX)
    assert known is not None
    (folder / "ca.pem").write_text(known["ca"])
    return "--cacert", str(folder / "ca.pem")


def test_the_value_takes_the_place_of_the_placeholder(gate: Stage, tmp_path: Path) -> None:
    gate.allow(f"good.test:{TLS_PORT}", grants=(grant(),))
    trust = trusting(gate, tmp_path)
    said = gate.curl(SECURE, *trust, "-H", f"Authorization: Bearer {PLACEHOLDER}")
    assert f"Bearer {VALUE}" in said
    assert PLACEHOLDER not in said
    assert gate.last("secret_used").secret == "TOKEN"


def test_a_placeholder_elsewhere_stays_one(gate: Stage, servers: Upstream, tmp_path: Path) -> None:
    """Another host, the same host by its address, plain HTTP, another port, and a host that only claims the name."""
    gate.allow("0.0.0.0/0:*", f"good.test:{TLS_PORT}", f"twin.test:{TLS_PORT}", inspect=True, grants=(grant(),))
    trust = trusting(gate, tmp_path)
    header = ("-H", f"Authorization: Bearer {PLACEHOLDER}")
    assert PLACEHOLDER in gate.curl(f"https://twin.test:{TLS_PORT}/", *trust, *header)
    assert gate.last("secret_strayed").secret == "TOKEN"
    assert PLACEHOLDER in gate.curl(f"http://good.test:{HTTP_PORT}/", *header)
    lying = gate.curl(f"https://twin.test:{TLS_PORT}/", *trust, *header, "-H", f"Host: good.test:{TLS_PORT}")
    assert "421" in gate.curl(
        f"https://twin.test:{TLS_PORT}/", *trust, *header, "-H", f"Host: good.test:{TLS_PORT}", "-i"
    )
    assert VALUE not in lying
    assert all(VALUE not in request for web in (servers.web, servers.other) for request in web.seen)
    assert VALUE in gate.curl(SECURE, *trust, *header)


def test_an_impostor_at_the_right_name_gets_nothing(gate: Stage, servers: Upstream, tmp_path: Path) -> None:
    """DNS is turned to a server without a certificate for the name: the proxy checks it before it says anything."""
    gate.allow(f"good.test:{HTTP_PORT + 1000}", f"fake.test:{TLS_PORT}", grants=())
    secret = Secret("TOKEN", (f"fake.test:{TLS_PORT}",)).checked()
    servers.names["fake.test"] = [upstream.WEB]
    gate.allow(f"fake.test:{TLS_PORT}", grants=(Grant(secret, secret.rules(), PLACEHOLDER, Hidden(VALUE)),))
    before = len(servers.tls.seen)
    said = gate.curl(f"https://fake.test:{TLS_PORT}/", *trusting(gate, tmp_path), "-H", f"Authorization: {PLACEHOLDER}")
    assert "upstream_certificate" in said
    assert len(servers.tls.seen) == before


def test_query_basic_and_header(gate: Stage, tmp_path: Path) -> None:
    gate.allow(f"good.test:{TLS_PORT}", grants=(grant(),))
    trust = trusting(gate, tmp_path)
    url = f"{SECURE}?key={PLACEHOLDER}"
    assert f"key={PLACEHOLDER}" in gate.curl(url, *trust), "only where the owner said so"
    gate.allow(f"good.test:{TLS_PORT}", grants=(grant(query=True, basic=True, header="X-Api-Key", format="k {}"),))
    said = gate.curl(url, *trust, "-u", f"me:{PLACEHOLDER}")
    assert f"key={VALUE}" in said
    assert base64.b64encode(f"me:{VALUE}".encode()).decode() in said
    assert f"x-api-key: k {VALUE}" in said.lower()


def test_a_rotated_and_a_removed_value(gate: Stage, tmp_path: Path) -> None:
    gate.allow(f"good.test:{TLS_PORT}", grants=(grant(),))
    trust = trusting(gate, tmp_path)
    header = ("-H", f"Authorization: {PLACEHOLDER}")
    gate.allow(f"good.test:{TLS_PORT}", grants=(grant("canary-second-value"),))
    assert "canary-second-value" in gate.curl(SECURE, *trust, *header)
    gate.allow(f"good.test:{TLS_PORT}", inspect=True)
    assert PLACEHOLDER in gate.curl(SECURE, *trust, *header)


def test_rules_for_requests_hold_inside_tls(gate: Stage, tmp_path: Path) -> None:
    gate.allow(f"good.test:{TLS_PORT}", http=(HttpRule("good.test", methods=("GET",), path_prefixes=("/x",)),))
    trust = trusting(gate, tmp_path)
    assert "GET /x" in gate.curl(SECURE, *trust)
    assert "http_rule" in gate.curl(SECURE, *trust, "-X", "POST", "-d", "a=b")
    assert "POST 500000" not in gate.curl(SECURE, *trust, "--data-binary", "@/dev/null", "-X", "PUT")
    gate.allow(f"good.test:{TLS_PORT}", inspect=True)
    body = tmp_path / "body"
    body.write_bytes(bytes(500_000))
    assert "POST 500000" in gate.curl(SECURE, *trust, "--data-binary", f"@{body}")


def test_http2_is_looked_at_stream_by_stream(gate: Stage, servers: Upstream, tmp_path: Path) -> None:
    """A client that may speak HTTP/2 to a server that does: heads are judged, values put in, bodies go both ways."""
    secret = Secret("TOKEN", (f"good.test:{H2_PORT}",)).checked()
    put_in = Grant(secret, secret.rules(), PLACEHOLDER, Hidden(VALUE))
    rule = HttpRule("good.test", path_prefixes=("/pub",))
    gate.allow(f"good.test:{H2_PORT}", http=(rule,), grants=(put_in,))
    trust = (*trusting(gate, tmp_path), "--http2", "-w", "%{http_version} %{http_code}")
    base = f"https://good.test:{H2_PORT}"
    said = gate.curl(f"{base}/pub/x", *trust, "-H", f"Authorization: Bearer {PLACEHOLDER}")
    assert f"authorization: Bearer {VALUE}" in said
    assert said.endswith("2 200")
    refused = gate.curl(f"{base}/private", *trust)
    assert "http_rule" in refused
    assert refused.endswith("2 403")
    assert "host_mismatch" in gate.curl(f"{base}/pub/x", *trust, "-H", f"Host: twin.test:{H2_PORT}")
    body = tmp_path / "body"
    body.write_bytes(bytes(3_000_000))
    assert "body 3000000" in gate.curl(f"{base}/pub/up", *trust, "--data-binary", f"@{body}")
    got = tmp_path / "got"
    gate.allow(f"good.test:{H2_PORT}", inspect=True)
    gate.curl(f"{base}/bytes/5000000", *trust, "-o", str(got))
    assert got.stat().st_size == 5_000_000
    assert all("private" not in request and "twin" not in request for request in servers.h2_seen)


def test_over_http2_a_placeholder_stays_one_elsewhere_wherever_it_stands(
    gate: Stage, servers: Upstream, tmp_path: Path
) -> None:
    """In a header, the query and basic authentication, to a host that is not its own. The control: each to its own."""
    secret = Secret("TOKEN", (f"good.test:{H2_PORT}",), query=True, basic=True).checked()
    put_in = Grant(secret, secret.rules(), PLACEHOLDER, Hidden(VALUE))
    gate.allow(f"good.test:{H2_PORT}", f"twin.test:{H2_PORT}", inspect=True, grants=(put_in,))
    trust = (*trusting(gate, tmp_path), "--http2", "-w", "%{http_version}")
    ways = {
        ("/x", "-H", f"X-Key: {PLACEHOLDER}"): (PLACEHOLDER, VALUE),
        (f"/x?key={PLACEHOLDER}",): (PLACEHOLDER, VALUE),
        ("/x", "-u", f"me:{PLACEHOLDER}"): (in_basic(PLACEHOLDER), in_basic(VALUE)),
    }
    for (path, *options), (stayed, came) in ways.items():
        for host, there, elsewhere in (("twin.test", stayed, came), ("good.test", came, stayed)):
            said = gate.curl(f"https://{host}:{H2_PORT}{path}", *trust, *options)
            assert said.endswith("\n2")
            assert there in said
            assert elsewhere not in said
    told = [(event.kind, event.name, event.secret) for event in gate.status().events if event.secret]
    assert told == [("secret_strayed", "twin.test", "TOKEN"), ("secret_used", "good.test", "TOKEN")] * len(ways)


def in_basic(password: str) -> str:
    return base64.b64encode(f"me:{password}".encode()).decode()


# --- through the whole server, in a real sandbox ---


@pytest.fixture(scope="module")
def server(servers: Upstream, make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    settings = servers.settings | {
        "ATOLL_EGRESS_LISTS": f"web=good.test:{TLS_PORT},good.test:{HTTP_PORT}",
        "ATOLL_WARM_SIZE": "0",
    }
    running = Server(make_data_dir(), settings)
    running.start()
    yield running
    running.close()


def put(server: Server, name: str, **body: object) -> dict[str, object]:
    answer = server.request("PUT", f"/v1/secrets/{name}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


CLIENTS = {
    "curl": 'curl -sS -H "Authorization: Bearer $TOKEN" {url}',
    "wget": 'wget -qO- --header "Authorization: Bearer $TOKEN" {url}',
    "python": (
        "python3 -c \"import os, urllib.request as u; r = u.Request('{url}',"
        " headers={{'Authorization': 'Bearer ' + os.environ['TOKEN']}}); print(u.urlopen(r).read().decode())\""
    ),
    "node": (
        "node -e \"fetch('{url}', {{headers: {{Authorization: 'Bearer ' + process.env.TOKEN}}}})"
        '.then(r => r.text()).then(console.log)"'
    ),
}


def test_real_clients_in_a_sandbox_use_a_secret_that_they_do_not_hold(server: Server, servers: Upstream) -> None:
    put(server, "TOKEN", value=VALUE, hosts=[f"good.test:{TLS_PORT}"], path="/home/user/.token")
    with server.create(policy=["@web"], secrets=["TOKEN"]) as sandbox:
        for name, line in CLIENTS.items():
            before = len(servers.tls.seen)
            result = sandbox.commands.run(line.format(url=SECURE), timeout_s=30)
            assert result.exit_code == 0, (name, result.stderr)
            assert len(servers.tls.seen) == before + 1, name
            assert f"Bearer {VALUE}" in servers.tls.seen[-1], name
            assert "*" * len(VALUE) in result.stdout, f"{name}: a value that comes back is covered"
            assert VALUE not in result.stdout, name
        inside = sandbox.commands.run(
            "env; cat ~/.token; sudo cat /proc/1/environ; sudo grep -rl canary- /etc /home || true"
        )
        assert VALUE not in inside.stdout
        assert inside.stdout.count("atoll-secret-") >= 2
        events = sandbox.network.status().events
        assert [event.secret for event in events if event.kind == "secret_used"] == ["TOKEN"] * len(CLIENTS)


def test_a_secret_never_comes_out_of_the_server(server: Server) -> None:
    put(server, "QUIET", value=VALUE, hosts=["good.test"])
    assert put(server, "QUIET", hosts=["good.test", "twin.test"])["version"] == 1
    assert put(server, "QUIET", value=VALUE + "-2", hosts=["good.test"])["version"] == 2
    listed = server.request("GET", "/v1/secrets").text
    shown = server.request("GET", "/v1/secrets/QUIET").text
    assert "QUIET" in listed
    for text in (listed, shown, server.log()):
        assert "canary" not in text
    for path in server.data.glob("atoll.db*"):
        assert b"canary" not in path.read_bytes()
    assert (server.data / "secrets.key").stat().st_mode & 0o077 == 0
    assert server.request("DELETE", "/v1/secrets/QUIET").status_code == 204
    assert server.request("GET", "/v1/secrets/QUIET").status_code == 404


def test_rotation_and_removal_reach_a_running_sandbox(server: Server, servers: Upstream) -> None:
    put(server, "TURN", value="canary-first-value", hosts=[f"good.test:{TLS_PORT}"])
    with server.create(policy=["@web"], secrets=["TURN"]) as sandbox:
        call = f'curl -sS -H "X-Key: $TURN" {SECURE}'
        sandbox.commands.run(call, check=True)
        assert "canary-first-value" in servers.tls.seen[-1]
        put(server, "TURN", value="canary-second-value", hosts=[f"good.test:{TLS_PORT}"])
        sandbox.commands.run(call, check=True)
        assert "canary-second-value" in servers.tls.seen[-1]
        server.request("DELETE", "/v1/secrets/TURN")
        sandbox.commands.run(f"{call} -k")
        assert "canary" not in servers.tls.seen[-1]
        assert "atoll-secret-" in servers.tls.seen[-1]


def test_a_program_that_ran_before_shows_no_value_that_came_later(server: Server) -> None:
    """Followed from before the secret until after its removal; its output, read again then, is covered, too."""
    put(server, "OPEN", value="canary-open-first", hosts=[f"good.test:{TLS_PORT}"], header="X-Key")
    with server.create(policy=["@web"]) as sandbox:
        loop = f"echo ready; while read -r _; do curl -sSk {SECURE} | grep -io 'canary-.*'; done"
        program = sandbox.commands.start(loop, stdin=True)
        events = iter(program)

        def heard() -> str:
            text = ""
            while not text.endswith("\n"):
                text += next(event.text for event in events if isinstance(event, Output))
            return text

        assert heard() == "ready\n"
        sandbox.network.set_secrets(["OPEN"])
        program.write("\n")
        assert heard() == "*" * 17 + "\n"
        put(server, "OPEN", value="canary-open-second", hosts=[f"good.test:{TLS_PORT}"], header="X-Key")
        program.write("\n")
        assert heard() == "*" * 18 + "\n"
        sandbox.network.set_secrets([])
        program.close_stdin()
        again = sandbox.commands.attach(program.id).wait().stdout
    assert again == f"ready\n{'*' * 17}\n{'*' * 18}\n"


def test_a_placeholder_goes_nowhere_as_a_value_but_where_it_belongs(server: Server, servers: Upstream) -> None:
    """From a real sandbox that may reach everything: by address, in plain, under another name, after a redirect, in
    the path and in bodies of every kind. The control comes last, and only there is the value.
    """
    put(server, "STRAY", value="canary-stray-value", hosts=[f"good.test:{TLS_PORT}"])
    policy = {"mode": "public", "allow": ["0.0.0.0/0:*"], "inspect": True}
    with server.create(policy=policy, secrets=["STRAY"]) as sandbox:
        header = '-H "Authorization: Bearer $STRAY"'
        acts = [
            f"curl -sk --max-time 5 {header} https://{upstream.WEB}:{TLS_PORT}/by-address",
            f"curl -sk --max-time 5 {header} https://twin.test:{TLS_PORT}/other-name",
            f"curl -sk --max-time 5 {header} -H 'Host: good.test:{TLS_PORT}' https://twin.test:{TLS_PORT}/lying",
            f"curl -sk --max-time 5 {header} -H 'Host: twin.test:{TLS_PORT}' {SECURE}",
            f"curl -s --max-time 5 {header} http://good.test:{HTTP_PORT}/plain",
            f"curl -s --max-time 5 -L --location-trusted {header} http://good.test:{HTTP_PORT}/redirect",
            f"curl -sk --max-time 5 https://good.test:{TLS_PORT}/path/$STRAY",
            f'curl -s --max-time 5 --data "key=$STRAY" {SECURE}',
            f'printf %s "$STRAY" | gzip | curl -s --max-time 5 -H "Content-Encoding: gzip" --data-binary @- {SECURE}',
            f'(printf "${{STRAY:0:20}}"; sleep 0.2; printf "${{STRAY:20}}") | curl -sT - --max-time 5 {SECURE}',
        ]
        before = len(servers.tls.seen)
        for act in acts:
            sandbox.commands.run(act, timeout_s=20)
        heard = [*servers.web.seen, *servers.other.seen, *servers.tls.seen[before:], *map(repr, servers.tls.bodies)]
        assert len(servers.tls.seen) > before, "they did arrive"
        assert any("atoll-secret-" in text for text in heard)
        assert not any("canary-stray-value" in text for text in heard)
        sandbox.commands.run(f"curl -sS {header} {SECURE}", check=True)
        assert "Bearer canary-stray-value" in servers.tls.seen[-1]
        events = sandbox.network.status().events
        assert {"secret_used", "secret_strayed"} <= {event.kind for event in events}


def test_a_secret_that_was_used_is_in_nothing_that_the_server_writes(server: Server, servers: Upstream) -> None:
    """Log, database, journal and what is kept of networks; events, metrics and errors: in any usual spelling."""
    value = "canary/used+value=9"
    put(server, "USED", value=value, hosts=[f"good.test:{TLS_PORT}"], query=True)
    with server.create(policy=["@web"], secrets=["USED"]) as sandbox:
        call = f'curl -sS -H "X-Key: $USED" "{SECURE}?key=$USED"; curl -sS "http://good.test:{HTTP_PORT}/?$USED"'
        sandbox.commands.run(call, check=True)
        assert value in servers.tls.seen[-1]
        sandbox.commands.run(f"curl -sS https://good.test:{TLS_PORT + 1}/?$USED")

        def told() -> str:
            return server.request("GET", f"/v1/events?target={sandbox.id}&limit=100").text

        wait_until(lambda: "network.secret_used" in told(), 10, "its use is on record, by its name")
        answers = [
            told(),
            server.request("GET", "/metrics").text,
            server.request("GET", f"/v1/sandboxes/{sandbox.id}/network").text,
            server.request("PUT", "/v1/secrets/USED", json={"value": value + "\n", "hosts": ["good.test"]}).text,
            server.request("PUT", "/v1/secrets/USED", json={"value": value, "hosts": ["not a host"]}).text,
        ]
        files = [path for name in ("journal", "network") for path in (server.data / name).rglob("*")]
        files += [server.log_path, *server.data.glob("atoll.db*"), *(server.data / "run").rglob("*.*")]
        written = b"".join(path.read_bytes() for path in files if path.is_file()) + "".join(answers).encode()
    raw = value.encode()
    spellings = (raw, base64.b64encode(raw)[:-3], raw.hex().encode(), urllib.parse.quote(value, safe="").encode())
    assert [spelling for spelling in spellings if spelling in written] == []
    assert b"USED" in written, "the control"


def test_a_new_key_encrypts_all_that_is_kept(make_server: Callable[..., Server], servers: Upstream) -> None:
    """A line is put on top and the server started; then the old line could go. The sandbox notices nothing."""
    server = make_server(**servers.settings)
    put(server, "TOKEN", value=VALUE, hosts=[f"good.test:{TLS_PORT}"])
    sandbox = server.create(policy=[f"good.test:{TLS_PORT}"], secrets=["TOKEN"])
    sandbox.close()
    path = server.data / "secrets.key"
    old, new = path.read_bytes(), key_new()
    assert {sealed.partition(":")[0] for sealed in sealed_values(server)} == {Vault(old).key_id}
    server.stop()
    path.write_bytes(new + old)
    server.start()
    assert {sealed.partition(":")[0] for sealed in sealed_values(server)} == {Vault(new).key_id}
    again = server.connect(sandbox.id)
    before = len(servers.tls.seen)
    again.commands.run(f'curl -sS -H "X-Key: $TOKEN" {SECURE}', check=True)
    assert VALUE in servers.tls.seen[before]
    again.close()


def sealed_values(server: Server) -> list[str]:
    """As they lie in the database."""
    with contextlib.closing(sqlite3.connect(f"file:{server.data}/atoll.db?mode=ro", uri=True)) as database:
        return [str(row[0]) for row in database.execute("select sealed from secrets")]


def test_a_secret_that_is_not_there_refuses_the_create(server: Server) -> None:
    answer = server.request("POST", "/v1/sandboxes", json={"template": "base", "secrets": ["MISSING"]})
    assert (answer.status_code, answer.json()["code"]) == (404, "secret_not_found")
    answer = server.request("POST", "/v1/sandboxes", json={"template": "base", "policy": {"allow": ["not a host"]}})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_policy")
    assert server.request("GET", "/v1/sandboxes?state=running").json()["items"] == []


def test_the_policy_holds_again_after_a_kill_of_the_server(server: Server, servers: Upstream) -> None:
    put(server, "KEPT", value=VALUE, hosts=[f"good.test:{TLS_PORT}"])
    sandbox = server.create(policy=[f"good.test:{TLS_PORT}"], secrets=["KEPT"])
    sandbox.close()
    server.kill()
    server.start()
    with server.connect(sandbox.id) as again:
        result = again.commands.run(f'curl -sS -H "X-Key: $KEPT" {SECURE}; curl -sS http://good.test:{HTTP_PORT}/')
        assert VALUE in servers.tls.seen[-1]
        assert "not_listed" in result.stdout


def atoll(server: Server, *arguments: str) -> str:
    """What `atoll policy` says."""
    environment = {"ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    done = CliRunner().invoke(policy_command, arguments, env=environment, catch_exceptions=False)
    return done.output


def test_a_person_answers_from_the_command_line(server: Server) -> None:
    """The question is in the audit log, too, from where webhooks hear of it; `always` is a rule from then on."""
    url = f"http://other.test:{HTTP_PORT}/asked"
    with server.create(policy={"ask": True, "ask_s": 30.0}) as sandbox:
        assert "refused (would_ask)" in atoll(server, "test", sandbox.id, url)
        waiting = sandbox.commands.start(f"curl -sS --max-time 20 {url}")
        wait_until(lambda: "other.test" in atoll(server, "asks", sandbox.id), 20, "the question is there")
        (ask,) = json.loads(atoll(server, "asks", sandbox.id, "--json"))
        events = server.request("GET", f"/v1/events?target={sandbox.id}&action=sandbox.asks").json()["items"]
        assert [event["detail"]["request"] for event in events] == [ask["id"]]
        assert "always" in atoll(server, "answer", sandbox.id, ask["id"], "always")
        assert "GET /asked" in waiting.wait().stdout
        assert "GET /asked" in sandbox.commands.run(f"curl -sS --max-time 5 {url}").stdout, "nobody is asked again"
        assert f"other.test:{HTTP_PORT}" in atoll(server, "show", sandbox.id)


def test_secrets_and_bounds_from_the_command_line(server: Server, servers: Upstream, tmp_path: Path) -> None:
    """A running sandbox gets a secret and loses it again; a file that is no policy changes nothing."""
    put(server, "LATER", value=VALUE, hosts=[f"good.test:{TLS_PORT}"])
    with server.create(policy=["@web"]) as sandbox:
        call = f'curl -sSk -H "X-Key: $LATER" {SECURE}'
        assert "LATER" in atoll(server, "secrets", sandbox.id, "LATER")
        sandbox.commands.run(call, check=True)
        assert VALUE in servers.tls.seen[-1]
        assert json.loads(atoll(server, "secrets", sandbox.id, "--json")) == ["LATER"]
        assert "LATER" not in atoll(server, "secrets", sandbox.id, "--none")
        sandbox.commands.run(call, check=True)
        assert VALUE not in servers.tls.seen[-1]
        bounds = ("--ask", "--ask-s", "7", "--connections-max", "5", "--rate", "90000", "--bytes-max", "1000000")
        shown = atoll(server, "set", sandbox.id, "--allow", "@web", *bounds)
        assert [word for word in ("7.0", "5", "90000", "1000000") if word not in shown.split()] == []
        for text in ("{", '["good.test"]', '{"allow": ["good.test"], "surprise": 1}', '{"allow": ["no host"]}'):
            (tmp_path / "policy.json").write_text(text)
            with contextlib.suppress(InvalidArgument):  # which the program says in a line
                assert "Error" in atoll(server, "set", sandbox.id, "--file", str(tmp_path / "policy.json"))
            assert atoll(server, "show", sandbox.id) == shown


def test_code_that_is_run_once_has_its_rules_and_secrets(server: Server, servers: Upstream) -> None:
    put(server, "ONCE", value=VALUE, hosts=[f"good.test:{TLS_PORT}"])
    code = f'curl -sS -H "X-Key: $ONCE" {SECURE}'
    environment = {"ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    common = ["-t", "base", "-l", "bash", code]
    for options, heard in (([], False), (["--allow", f"good.test:{TLS_PORT}", "--secret", "ONCE"], True)):
        before = len(servers.tls.seen)
        done = CliRunner().invoke(run_command, [*common, *options], env=environment, standalone_mode=False)
        assert (done.return_value == 0) == heard, done.output
        assert (len(servers.tls.seen) > before) == heard
        assert VALUE not in done.output
    assert VALUE in servers.tls.seen[-1]


def test_a_trial_knows_rules_for_requests(server: Server) -> None:
    """Method and path, as the same request would be judged; and that no secret goes along without TLS."""
    put(server, "TRIED", value=VALUE, hosts=[f"good.test:{TLS_PORT}", f"good.test:{HTTP_PORT}"])
    base = f"http://good.test:{HTTP_PORT}"
    rule = {"host": "good.test", "methods": ["GET"], "path_prefixes": ["/pub"]}
    with server.create(policy={"allow": ["@web"], "http": [rule]}, secrets=["TRIED"]) as sandbox:
        for path, method, word in (("/pub/a", "GET", "allowed"), ("/pub", "PUT", "refused"), ("/x", "GET", "refused")):
            assert atoll(server, "test", sandbox.id, base + path, "-X", method).startswith(word)
            said = sandbox.commands.run(f"curl -sS -X {method} {base}{path}").stdout
            assert ("http_rule" in said) == (word == "refused")
        assert "TRIED" not in atoll(server, "test", sandbox.id, f"{base}/pub")
        assert "TRIED" in atoll(server, "test", sandbox.id, f"https://good.test:{TLS_PORT}/pub")
        assert atoll(server, "test", sandbox.id, f"good.test:{TLS_PORT}").startswith("allowed")


def test_policy_through_api_and_audit_log(server: Server, servers: Upstream) -> None:
    with server.create() as sandbox:
        url = f"http://good.test:{HTTP_PORT}/x"
        assert sandbox.commands.run(f"curl -sS {url}").exit_code == 6
        assert not sandbox.network.test(url).allowed
        sandbox.network.set_policy([f"good.test:{HTTP_PORT}"])
        tested = sandbox.network.test(url)
        assert (tested.allowed, tested.rule) == (True, f"good.test:{HTTP_PORT}")
        assert "GET /x" in sandbox.commands.run(f"curl -sS {url}", check=True).stdout
        assert sandbox.network.policy().allow == [f"good.test:{HTTP_PORT}"]

        def logged() -> bool:
            events = server.request("GET", f"/v1/events?target={sandbox.id}&limit=100").json()["items"]
            found = [json.dumps(event) for event in events if event["action"] == "network.connection"]
            return any("good.test" in text for text in found)

        wait_until(logged, 5)
