"""Real clients in a real sandbox, through TLS that the proxy opens for a secret: each trusts the sandbox's authority.

Each says nothing but its placeholder, and the other end sees the value. Before the policy is opened, each is refused.
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from atoll import Sandbox
from atoll.testing.server import Server
from tests import upstream
from tests.registries import BASE, PORT, WORD, Registries, registries
from tests.upstream import TLS_PORT
from tests.waiting import wait_until

pytestmark = pytest.mark.real

VALUE = "canary-51c27f3e9a"
AIOHTTP = ("aiohttp", "aiohappyeyeballs", "aiosignal", "attrs", "frozenlist", "idna", "multidict", "propcache", "yarl")

JAVA = """
import java.net.URI;
import java.net.http.*;
public class Hello {
    public static void main(String[] args) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(args[0]))
            .header("Authorization", "Bearer " + System.getenv("TOKEN")).build();
        System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""
REQUESTS = f"""
import os, requests
print(requests.get("{BASE}/hello", headers={{"Authorization": "Bearer " + os.environ["TOKEN"]}}, timeout=20).text)
"""
AIO = f"""
import aiohttp, asyncio, os
async def main():
    async with aiohttp.ClientSession(headers={{"Authorization": "Bearer " + os.environ["TOKEN"]}}) as session:
        async with session.get("{BASE}/hello") as answer:
            print(await answer.text())
asyncio.run(main())
"""
NODE = f"""
fetch("{BASE}/hello", {{headers: {{Authorization: "Bearer " + process.env.TOKEN}}}})
    .then(answer => answer.text()).then(console.log)
"""
HEADER = '"Authorization: Bearer $TOKEN"'
CLIENTS = {
    "curl": f"curl -sS -H {HEADER} {BASE}/hello",
    "wget": f"wget -q -t 1 -O- --header {HEADER} {BASE}/hello",
    "pip": (
        f"pip install -q --user --break-system-packages --no-cache-dir --retries 0 --disable-pip-version-check"
        f" --index-url https://me:$TOKEN@good.test:{PORT}/simple/ atollprobe"
        " && python3 -c 'import atollprobe; print(atollprobe.WORD)'"
    ),
    "npm": (
        "cd /tmp/npm && npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries=0 atollprobe"
        " && node -p 'require(\"atollprobe\")'"
    ),
    "git": f"git -c http.extraHeader={HEADER} clone -q {BASE}/repo.git /tmp/repo && cat /tmp/repo/word",
    "node": "node /tmp/hello.js",
    "requests": "python3 /tmp/hello_requests.py",
    "aiohttp": "PYTHONPATH=/tmp/site python3 /tmp/hello_aiohttp.py",
    "java": f"java -Xshare:auto -XX:TieredStopAtLevel=1 /tmp/Hello.java {BASE}/hello",
}
FILES = {
    "/tmp/Hello.java": JAVA,
    "/tmp/hello.js": NODE,
    "/tmp/hello_requests.py": REQUESTS,
    "/tmp/hello_aiohttp.py": AIO,
    "/tmp/npm/.npmrc": f"registry={BASE}/npm/\n//good.test:{PORT}/npm/:_authToken=${{TOKEN}}\n",
    "/tmp/npm/package.json": "{}",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registries, upstream.Upstream]]:
    folder = tmp_path_factory.mktemp("upstream")
    with upstream.upstream(folder) as servers:
        with registries(tmp_path_factory.mktemp("place"), folder / "upstream-leaf.pem", VALUE) as running:
            yield running, servers


@pytest.fixture(scope="module")
def server(place: tuple[Registries, upstream.Upstream], make_data_dir: Callable[[], Path]) -> Iterator[Server]:
    server = Server(make_data_dir(), place[1].settings)
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def sandbox(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    hosts = [f"good.test:{PORT}", f"good.test:{TLS_PORT}"]
    secret = {"value": VALUE, "hosts": hosts, "basic": True}
    assert server.request("PUT", "/v1/secrets/TOKEN", json=secret).status_code == 200
    with server.create("code", secrets=["TOKEN"]) as sandbox:
        for path, text in FILES.items():
            sandbox.files.write(path, text)
        sandbox.files.push(_packages(tmp_path_factory.mktemp("site")), "/tmp/site")
        yield sandbox


def _packages(folder: Path) -> Path:
    """aiohttp and what it needs, as they lie in the environment that runs the tests: the same Python is inside."""
    for name in AIOHTTP:
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(Path(str(file.locate())).read_bytes())
    return folder


def run_all(sandbox: Sandbox) -> dict[str, tuple[int | None, str]]:
    """Every client, two at a time: how it ended and what it said."""

    def run(line: str) -> tuple[int | None, str]:
        result = sandbox.commands.run(line, timeout_s=120)
        return result.exit_code, result.stdout + result.stderr

    with ThreadPoolExecutor(3) as pool:
        return dict(zip(CLIENTS, pool.map(run, CLIENTS.values()), strict=True))


def test_every_client_reaches_what_is_allowed_with_a_secret_that_it_does_not_hold(
    place: tuple[Registries, upstream.Upstream], sandbox: Sandbox
) -> None:
    registry = place[0]
    refused = run_all(sandbox)
    assert {name for name, (_, said) in refused.items() if WORD in said} == set()
    assert registry.seen == []
    sandbox.network.set_policy([f"good.test:{PORT}"])
    reached = run_all(sandbox)
    assert {name: said for name, (_, said) in reached.items() if WORD not in said} == {}
    assert all(VALUE not in said for _, said in reached.values())
    asked = {path.partition("?")[0] for path, shown in registry.seen if VALUE in shown}
    assert {"/hello", "/simple/atollprobe/", "/npm/atollprobe", "/repo.git/info/refs"} <= asked
    assert sum(path == "/hello" and VALUE in shown for path, shown in registry.seen) == 6
    used = [event for event in sandbox.network.status().events if event.kind == "secret_used"]
    assert len(used) >= len(CLIENTS)


def test_pip_in_a_live_interpreter_installs_or_says_why_not(sandbox: Sandbox) -> None:
    """Without a word of the policy for its index, and with one; what it installs can be imported at once."""
    index = f"--index-url https://me:$TOKEN@good.test:{PORT}/simple/"
    install = f"pip install -q --no-cache-dir --retries 0 --disable-pip-version-check {index} --force-reinstall"
    sandbox.network.set_policy([])
    refused = sandbox.code.run(f"!{install} atollprobe")
    why = "pip could not reach its package index: this sandbox's network policy does not allow good.test."
    assert why in refused.stderr
    assert why not in sandbox.code.run("!pip install --no-such-option").stderr
    sandbox.commands.run("rm -rf ~/.local/lib", check=True)  # of whoever came before
    sandbox.code.restart()
    assert sandbox.code.run("import atollprobe").status == "error"
    sandbox.network.set_policy([f"good.test:{PORT}"])
    done = sandbox.code.run(f"%{install} atollprobe\nimport atollprobe\natollprobe.WORD")
    assert done.text == repr(WORD), done
    assert why not in done.stderr


def test_neither_the_value_nor_the_authoritys_key_is_ever_inside(
    place: tuple[Registries, upstream.Upstream], server: Server, sandbox: Sandbox
) -> None:
    """All of its memory and disk, as they are when it sleeps. Positive control: its placeholder is there."""
    sandbox.network.set_policy([f"good.test:{PORT}"])
    line = 'curl -sS -H "Authorization: Bearer $TOKEN" {}/hello; export TOKEN; (exec sleep 1000 &)'
    sandbox.commands.run(line.format(BASE), check=True)
    placeholder = sandbox.commands.run("printf %s $TOKEN").stdout.encode()
    pem = (server.data / "network" / sandbox.id / "authority.pem").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    number = key.private_numbers().private_value.to_bytes(32)
    value = VALUE.encode()
    wanted = {
        "placeholder": placeholder,
        "value": value,
        "value in base64": base64.b64encode(value)[:-4],
        "value in hexadecimal": value.hex().encode(),
        "key": number,
        "key in the other order": number[::-1],
        "key as text": pem.split(b"\n")[1],
    }
    sandbox.files.write("/home/user/kept", placeholder)
    sandbox.pause()
    image = _image(server, sandbox)
    found = {
        (kind, name)
        for kind, paths in (("memory", _memory(server, image)), ("disk", _disk(server, image)))
        for path in paths
        for name, secret in wanted.items()
        if _contains(path, secret)
    }
    sandbox.resume()
    assert found == {("memory", "placeholder"), ("disk", "placeholder")}


def _image(server: Server, sandbox: Sandbox) -> str:
    """What a paused sandbox sleeps in, once its own disk is in its place there."""
    manifests = (server.data / "images").glob("*/manifest.json")
    [image] = [path.parent.name for path in manifests if json.loads(path.read_bytes())["sandbox_id"] == sandbox.id]
    pool = server.data / "pool"
    elsewhere = ("sandboxes/*/home/user/kept", f"snapshots/{image}+")
    wait_until(lambda: not any(any(pool.glob(one)) for one in elsewhere), 20, "its disk is in its place")
    return image


def _memory(server: Server, image: str) -> list[Path]:
    return [path for path in (server.data / "images" / image).iterdir() if path.suffix != ".json"]


def _disk(server: Server, image: str) -> list[Path]:
    """What a sandbox may have written to."""
    folders = [server.data / "pool" / "snapshots" / image / name for name in ("home", "tmp", "root", "etc", "var/tmp")]
    return [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def _contains(path: Path, wanted: bytes) -> bool:
    if path.stat().st_size < len(wanted):
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        return content.find(wanted) >= 0


def test_a_value_that_comes_back_is_covered_wherever_output_goes(
    place: tuple[Registries, upstream.Upstream], sandbox: Sandbox
) -> None:
    """A command, its kept output, a context's print, in pieces too, and its result, a shell session and a terminal.

    The last one here: from now on the value is in the memory of programs that were answered with it.
    """
    sandbox.network.set_policy([f"good.test:{TLS_PORT}"])
    url = f"https://good.test:{TLS_PORT}/x"
    call = f"curl -sS -H {HEADER} {url}"
    said = {"command": sandbox.commands.run(call).stdout, "process": sandbox.commands.start(call).wait().stdout}
    get = f"requests.get('{url}', headers={{'Authorization': 'Bearer ' + os.environ['TOKEN']}}).text"
    ran = sandbox.code.run(f"import os, requests\nr = {get}\nprint(r)\nr", check=True)
    pieces = "print(v[:9], end='', flush=True); display(1); print(v[9:], end='', flush=True); display(2); print()"
    said["pieces"] = sandbox.code.run(f"v = r.split('Bearer ')[1].split()[0]\n{pieces}", check=True).stdout
    failed = sandbox.code.run("raise ValueError(r)").error
    assert failed is not None
    said |= {"print": ran.stdout, "result": ran.text or "", "error": failed.value, "traceback": failed.traceback}
    with sandbox.shell() as shell:
        said["shell"] = shell.run(call).stdout
    with sandbox.terminals.open(call, cols=200) as terminal:
        said["terminal"] = b"".join(terminal).decode()
    assert {where for where, text in said.items() if "*" * len(VALUE) not in text} == set(), said
    assert {where for where, text in said.items() if VALUE in text} == set()
