"""Methods and options that the other programs have no use for: git, lists, connections, and what is refused."""

from __future__ import annotations

import functools
import logging
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

import runner
from e2b import (
    E2B,
    AuthenticationException,
    BuildInfo,
    ConnectionConfig,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    Secret,
    Template,
)
from e2b_code_interpreter import Sandbox as CodeSandbox
from packaging.version import Version
from runner import raised, wait_until

USER = {"author_name": "Ada", "author_email": "ada@example.com"}


@functools.cache
def box() -> Any:
    return Sandbox.create("base", timeout=300, metadata={"run": "options"}, secure=True, logger=logging.getLogger("x"))


def close() -> None:
    box().kill()


def case_git_keeps_a_history() -> None:
    git = box().git
    git.init("repo", initial_branch="main")
    git.configure_user("Ada", "ada@example.com", scope="local", path="repo")
    git.set_config("core.editor", "true", scope="local", path="repo")
    assert git.get_config("core.editor", scope="local", path="repo") == "true"
    box().files.write("repo/a.txt", "1")
    assert [entry.name for entry in git.status("repo").file_status] == ["a.txt"]
    git.add("repo", files=["a.txt"])
    git.commit("repo", "first", **USER)
    assert git.status("repo").is_clean
    git.create_branch("repo", "side")
    assert git.branches("repo").current_branch == "side"
    git.checkout_branch("repo", "main")
    git.delete_branch("repo", "side", force=True)
    assert git.branches("repo").branches == ["main"]
    box().files.write("repo/a.txt", "2")
    git.restore("repo", paths=["a.txt"])
    assert box().files.read("repo/a.txt") == "1"
    box().files.write("repo/a.txt", "3")
    git.add("repo", all=True)
    git.reset("repo", mode="hard", target="HEAD")
    assert box().files.read("repo/a.txt") == "1"
    git.commit("repo", "second", allow_empty=True, **USER)


def case_git_has_remotes() -> None:
    git = box().git
    git.init("/home/user/far.git", bare=True, initial_branch="main")
    git.init("near", initial_branch="main")
    git.remote_add("near", "origin", "/home/user/far.git", overwrite=True)
    assert git.remote_get("near", "origin") == "/home/user/far.git"
    git.commit("near", "one", allow_empty=True, **USER)
    git.push("near", remote="origin", branch="main", set_upstream=True)
    git.clone("/home/user/far.git", "copy", branch="main")
    git.commit("near", "two", allow_empty=True, **USER)
    git.push("near")
    git.pull("copy")
    assert box().commands.run("git log --format=%s", cwd="/home/user/copy").stdout == "two\none\n"
    git.dangerously_authenticate("ada", "word", host="git.example.com")
    assert "git.example.com" in box().commands.run("cat ~/.git-credentials").stdout


def case_lists_are_filtered_and_ordered() -> None:
    begun = box().get_info().started_at
    mine = {"run": "options"}

    def listed(**query: Any) -> list[str]:
        page = Sandbox.list(query=SandboxQuery(metadata=mine, **query), order="asc", limit=10)
        return [entry.sandbox_id for entry in page.next_items()]

    assert listed(template="base") == [box().sandbox_id]
    assert listed(template="code-interpreter-v1") == []
    assert listed(started_after=begun) == [box().sandbox_id]
    assert listed(started_after=begun + timedelta(seconds=1)) == []
    other = Sandbox.create("base", timeout=60, metadata=mine)
    assert listed() == [box().sandbox_id, other.sandbox_id]
    pages = Sandbox.list(query=SandboxQuery(metadata=mine), order="asc", limit=1)
    first = pages.next_items()[0].sandbox_id
    rest = Sandbox.list(query=SandboxQuery(metadata=mine), order="asc", limit=1, next_token=pages.next_token)
    assert [first, rest.next_items()[0].sandbox_id] == [box().sandbox_id, other.sandbox_id]
    other.kill()


def case_snapshots_are_listed_by_page_and_name() -> None:
    taken = box().create_snapshot(name="options-snap", mode="filesystem")
    found = box().list_snapshots(limit=1, name="options-snap").next_items()
    assert [entry.snapshot_id for entry in found] == [taken.snapshot_id]
    assert Sandbox.delete_snapshot(taken.snapshot_id) is True
    assert Sandbox.delete_snapshot(taken.snapshot_id) is False


def case_handles_of_commands_and_terminals() -> None:
    started = box().commands.run("read x; echo $x; echo e >&2", background=True, stdin=True, retain_output=False)
    joined = box().commands.connect(started.pid, timeout=20, retain_output=True)
    started.disconnect()
    joined.send_stdin("hello\n")
    joined.close_stdin()
    out: list[str] = []
    err: list[str] = []
    done = joined.wait(on_stdout=out.append, on_stderr=err.append)
    assert (done.stdout, "".join(out), "".join(err)) == ("hello\n", "hello\n", "e\n")
    terminal = box().pty.create(PtySize(24, 80), user="root", cwd="/tmp", envs={"WHO": "me"}, timeout=20)
    box().pty.stream_input(terminal.pid, iter([b"echo $WHO $(pwd) $(whoami)\n"]), timeout=20)
    seen: list[bytes] = []
    again = box().pty.connect(terminal.pid, timeout=20)
    box().pty.send_stdin(terminal.pid, b"echo $WHO-$USER; exit\n")
    again.wait(on_pty=seen.append)
    assert b"me-root" in b"".join(seen)
    assert box().pty.kill(terminal.pid) is False
    sleeping = box().commands.run("sleep 60", background=True)
    assert sleeping.kill() is True
    wait_until(lambda: sleeping.pid not in {entry.pid for entry in box().commands.list()})


def case_files_of_another_user() -> None:
    files = box().files
    assert files.make_dir("/root/d", user="root")
    files.write_files([{"path": "/root/d/f", "data": "x"}], user="root", use_octet_stream=True, metadata={"k": "v"})
    assert files.get_info("/root/d/f", user="root").metadata == {"k": "v"}
    assert files.exists("~/d/f", user="root")
    assert [entry.name for entry in files.list("~/d", user="root")] == ["f"]
    assert b"".join(files.read("/root/d/f", format="stream", user="root", stream_idle_timeout=20)) == b"x"
    files.rename("/root/d/f", "/root/d/g", user="root")
    files.remove("/root/d", user="root")
    watcher = files.watch_dir("/tmp", user="root", allow_network_mounts=True)
    files.write("/tmp/seen", "1")
    wait_until(watcher.get_new_events)
    watcher.stop()


def case_a_private_sandbox_opens_for_its_token() -> None:
    private = CodeSandbox.create(timeout=60, network={"allow_public_traffic": False})
    try:
        assert private.run_code("1 + 1").text == "2"
        context = private.create_code_context(cwd="/tmp")
        assert private.run_code("x = 3; x", context=context).text == "3"
        assert context.id in {entry.id for entry in private.list_code_contexts()}
        private.restart_code_context(context)
        private.remove_code_context(context)
        private.files.write("/tmp/web/page", "served")
        private.commands.run("python3 -m http.server 8000 -d /tmp/web", background=True)
        private.commands.run("until curl -sf localhost:8000/page; do sleep 0.05; done")
        assert knock(private) == 403
        assert knock(private, private.traffic_access_token) == 200
    finally:
        private.kill()


def knock(sandbox: Any, token: str = "") -> int:
    named = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    shown = {"E2B-Traffic-Access-Token": token} if token else {}
    request = urllib.request.Request(f"{sandbox.envd_api_url}/page", headers={**named, **shown})
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def case_a_wrong_token_opens_nothing() -> None:
    """In words that say what is wrong, whichever way a client asks."""
    named = {"E2b-Sandbox-Id": box().sandbox_id, "E2b-Sandbox-Port": "49983", "X-Access-Token": "wrong"}
    stranger = Sandbox(
        sandbox_id=box().sandbox_id,
        sandbox_domain=box().sandbox_domain,
        envd_version=Version("0.6.13"),
        envd_access_token="wrong",
        traffic_access_token=None,
        connection_config=ConnectionConfig(extra_sandbox_headers=named),
    )
    for call in (
        lambda: stranger.commands.run("true"),
        lambda: stranger.files.read("/etc/hostname"),
        lambda: stranger.files.write("a", "1"),
        lambda: stranger.files.list("/"),
    ):
        assert "token" in str(raised(AuthenticationException, call))


def case_connections_have_options() -> None:
    assert Sandbox.get_info(box().sandbox_id, headers={"X-Own": "1"}, api_headers={"X-Api": "1"}, retries=1)
    assert Sandbox.connect(box().sandbox_id, http_version="1.1", request_timeout=20).commands.run("echo 1").stdout
    config = box().connection_config
    bound = E2B(api_key=config.api_key, api_url=config.api_url, sandbox_url=box().envd_api_url, validate_api_key=True)
    assert bound.Sandbox.connect(box().sandbox_id).commands.run("echo 2").stdout == "2\n"
    assert bound.Template.exists("base")
    assert box().envd_direct_url
    assert box().sandbox_domain


def case_a_pause_can_be_strict() -> None:
    sandbox = Sandbox.create("base", timeout=60)
    assert sandbox.pause(strict=True)
    assert sandbox.beta_pause() is False
    sandbox.kill()


def case_what_cannot_be_is_refused_in_words() -> None:
    refused: list[dict[str, Any]] = [
        {"mcp": {"time": {}}},
        {"iam": {"tokens": {"t": {"audience": "a", "token_type": "JWT-SVID"}}}},
        {"network": {"egress_proxy": {"address": "192.0.2.1:1080"}}},
        {"network": {"dns_servers": ["192.0.2.1"]}},
        {"network": {"https_ports": [8443]}},
    ]
    for options in refused:
        error = raised(SandboxException, lambda options=options: Sandbox.create("base", timeout=60, **options))
        assert "this server does not have that" in str(error), error
    template = Template().from_base_image().run_cmd("true")
    assert "run_cmd" in dir(template)
    assert "RUN true" in Template.to_dockerfile(Template().from_image("python").run_cmd("true"))
    for call in (
        lambda: Template.build_in_background(template, "mine"),
        lambda: Template.assign_tags("base:default", "mine"),
        lambda: Template.remove_tags("base", "default"),
        lambda: Template.get_build_status(BuildInfo("base", "base", "base", "b")),
    ):
        assert "cannot be built" in str(raised(Exception, call))


def case_secrets_have_metadata_and_pages() -> None:
    for name in ("option-one", "option-two"):
        Secret.create(name, "v", metadata={"for": name})
    assert Secret.get_info("option-one").metadata == {"for": "option-one"}
    Secret.update("option-one", "w", metadata={"for": "other"})
    pages = Secret.list(limit=1)
    seen = [entry.name for entry in pages.next_items()]
    assert pages.has_next
    pages = Secret.list(limit=1, next_token=pages.next_token)
    while pages.has_next:
        seen += [entry.name for entry in pages.next_items()]
    assert {"option-one", "option-two"} <= set(seen)
    assert len(seen) == len(set(seen))
    for name in ("option-one", "option-two"):
        assert Secret.destroy(name)


if __name__ == "__main__":
    runner.main(globals())
