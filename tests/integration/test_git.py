"""Git in a real sandbox, against repositories inside it: by file and by HTTP with a password."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from atoll import Sandbox
from atoll.model.errors import Conflict, InvalidArgument
from atoll.testing.server import Server

pytestmark = pytest.mark.real

SERVER = """
import base64, http.server, os
class Handler(http.server.CGIHTTPRequestHandler):
    cgi_directories = ["/cgi-bin"]
    have_fork = True
    def check(self):
        if self.headers.get("authorization") == "Basic " + base64.b64encode(b"me:s3cret-word").decode():
            return True
        self.send_response(401); self.send_header("www-authenticate", 'Basic realm="git"')
        self.send_header("content-length", "0"); self.end_headers()
        return False
    def do_GET(self):
        if self.check(): super().do_GET()
    def do_POST(self):
        if self.check(): super().do_POST()
os.makedirs("/home/user/www/cgi-bin", exist_ok=True); os.chdir("/home/user/www")
os.environ.update(GIT_PROJECT_ROOT="/home/user/srv", GIT_HTTP_EXPORT_ALL="1")
open("cgi-bin/git", "w").write("#!/bin/sh\\nREMOTE_USER=me exec git http-backend\\n")
os.chmod("cgi-bin/git", 0o755)
http.server.ThreadingHTTPServer(("127.0.0.1", 8900), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", timeout_s=600) as made:
        made.commands.run(
            "git init -q --bare -b main srv/a.git && git -C srv/a.git config http.receivepack true", check=True
        )
        yield made


def test_from_clone_to_push(sandbox: Sandbox) -> None:
    who: Any = {"author_name": "Me", "author_email": "me@example.org"}
    cloned = sandbox.git.clone("file:///home/user/srv/a.git", "work")
    assert (cloned.branch, cloned.commit) == ("main", None)
    sandbox.files.write("work/one.txt", "1\n")
    sandbox.files.write("work/with space é.txt", "2\n")
    status = sandbox.git.status("work")
    assert {(file.path, file.unstaged) for file in status.files} == {("one.txt", "?"), ("with space é.txt", "?")}
    sandbox.git.add("work", ["one.txt"])
    assert [file.staged for file in sandbox.git.status("work").files] == ["A", ""]
    first = sandbox.git.commit("work", "First\n\nwith a body", **who)
    assert first.commit is not None
    sandbox.git.add("work")
    sandbox.git.commit("work", "Second", **who)
    sandbox.git.push("work", branch="main", set_upstream=True)
    log = sandbox.git.log("work")
    assert [commit.message for commit in log] == ["Second", "First\n\nwith a body"]
    assert log[0].parents == [first.commit]
    assert log[0].author_email == "me@example.org"
    sandbox.git.checkout("work", "feature", create=True)
    sandbox.files.write("work/one.txt", "one\n")
    assert "+one" in sandbox.git.diff("work").text
    assert sandbox.git.diff("work", staged=True).text == ""
    sandbox.git.commit("work", "Third", all=True, **who)
    assert "+one" in sandbox.git.diff("work", ["one.txt"], base="main").text
    sandbox.git.branch("work", "side", start="main")
    assert {branch.name: branch.current for branch in sandbox.git.branches("work")} == {
        "feature": True,
        "main": False,
        "side": False,
    }
    sandbox.git.branch("work", "side", delete=True)
    sandbox.git.checkout("work", "main")
    sandbox.git.clone("file:///home/user/srv/a.git", "other", depth=1, branch="main")
    sandbox.files.write("other/three.txt", "3\n")
    sandbox.git.add("other")
    sandbox.git.commit("other", "Theirs", **who)
    sandbox.git.push("other")
    assert sandbox.git.pull("work").commit == sandbox.git.status("other").commit
    assert sandbox.git.status("work").upstream == "origin/main"


def test_a_password_is_used_and_kept_nowhere(sandbox: Sandbox) -> None:
    server = sandbox.commands.start(["python3", "-c", SERVER])
    sandbox.ports.wait(8900)
    url = "http://127.0.0.1:8900/cgi-bin/git/a.git"
    with pytest.raises(Conflict) as caught:
        sandbox.git.clone(url, "denied")
    assert caught.value.code == "git_failed"
    with pytest.raises(Conflict):
        sandbox.git.clone(url, "denied", username="me", password="wrong")
    sandbox.git.clone(url, "private", username="me", password="s3cret-word")
    sandbox.files.write("private/p.txt", "p")
    sandbox.git.add("private")
    sandbox.git.commit("private", "Private", author_name="Me", author_email="me@example.org")
    sandbox.git.push("private", username="me", password="s3cret-word")
    assert sandbox.git.status("private").ahead == 0
    found = sandbox.commands.run(
        "grep -rlF s3cret-word . /tmp /etc /root 2>/dev/null", user="root", timeout_s=60
    ).stdout
    assert found == ""
    server.kill()


def test_bad_wishes(sandbox: Sandbox) -> None:
    for url in ("--upload-pack=touch /tmp/x", "https://me:word@example.org/a.git", "ext::sh -c true"):
        with pytest.raises((InvalidArgument, Conflict)):
            sandbox.git.clone(url, "bad")
    with pytest.raises(InvalidArgument):
        sandbox.git.checkout("work", "--orphan")
    with pytest.raises(Conflict) as caught:
        sandbox.git.status("/tmp")
    assert "not a git repository" in caught.value.message
    with pytest.raises(Conflict):
        sandbox.git.commit("work", "nothing", author_name="Me", author_email="me@example.org")
