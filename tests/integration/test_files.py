"""Files of real sandboxes: all operations, as root and as an ordinary user, with bad input and bad luck."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx2
import pytest

from atoll import AtollError, Sandbox
from atoll.model import limits
from atoll.testing.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    with server.create("base", disk="64MiB", timeout_s=600) as sandbox:
        yield sandbox


@pytest.fixture(params=["user", "root"])
def home(request: pytest.FixtureRequest, sandbox: Sandbox) -> Iterator[tuple[str, str]]:
    """A user, and an empty folder of its own."""
    user = str(request.param)
    folder = f"/var/tmp/{user}"
    sandbox.files.mkdir(folder, user=user)
    yield user, folder
    sandbox.files.remove(folder, recursive=True, user="root")


def test_write_append_and_read_by_range(sandbox: Sandbox, home: tuple[str, str]) -> None:
    user, folder = home
    path = f"{folder}/new/deep/file"
    data = os.urandom(3 * limits.MIB + 5)
    assert sandbox.files.write(path, data, user=user).size == len(data)
    sandbox.files.write(path, b"more", append=True, user=user)
    assert sandbox.files.read_bytes(path, user=user) == data + b"more"
    assert sandbox.files.read_bytes(path, offset=5, length=7, user=user) == data[5:12]
    assert sandbox.files.read_bytes(path, offset=len(data), user=user) == b"more"
    assert sandbox.files.read_bytes(path, offset=2**40, user=user) == b""
    view = sandbox.files.stat(path, user=user)
    assert (view.owner, view.mode, view.type, view.size) == (user, 0o644, "file", len(data) + 4)


def test_a_file_that_is_rewritten_all_the_time_is_read_as_it_was_at_one_moment(sandbox: Sandbox) -> None:
    """Empty, half or whole, as any reader may see it; never a size that its bytes do not have."""
    loop = sandbox.commands.start("while true; do echo 123456 > count; done")
    wait_until(lambda: sandbox.files.exists("count"), 10)
    assert {sandbox.files.read("count") for _ in range(100)} <= {"", "123456\n"}
    loop.kill()


def test_the_tree(sandbox: Sandbox, home: tuple[str, str]) -> None:
    user, folder = home
    files = sandbox.files
    files.write(f"{folder}/a.txt", "a", user=user)
    assert files.copy(f"{folder}/a.txt", f"{folder}/x/b.txt", parents=True, user=user).owner == user
    files.move(f"{folder}/x/b.txt", f"{folder}/y/c.txt", parents=True, user=user)
    assert files.chmod(f"{folder}/y/c.txt", 0o750, user=user).mode == 0o750
    assert files.symlink(f"{folder}/link", "y/c.txt", user=user).link_target == "y/c.txt"
    assert files.stat(f"{folder}/link", user=user).type == "symlink"
    assert files.stat(f"{folder}/link", follow=True, user=user).mode == 0o750
    moment = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert files.touch(f"{folder}/a.txt", modified_at=moment, user=user).modified_at == moment
    assert files.stat(f"{folder}/a.txt", user=user).mime == "text/plain"
    files.set_attribute(f"{folder}/a.txt", "user.origin", b"\xff\x00", user=user)
    assert files.attributes(f"{folder}/a.txt", user=user) == {"user.origin": b"\xff\x00"}
    files.set_attribute(f"{folder}/a.txt", "user.origin", None, user=user)
    assert files.attributes(f"{folder}/a.txt", user=user) == {}
    assert [view.name for view in files.list(folder, depth=2, user=user)] == ["a.txt", "link", "x", "y", "c.txt"]
    assert [view.name for view in files.find(folder, "*.txt", type="file", user=user)] == ["a.txt", "c.txt"]
    assert [view.name for view in files.find(folder, limit=1, user=user)] == ["a.txt"]
    assert files.copy(f"{folder}/y", f"{folder}/z", user=user).type == "directory"
    with pytest.raises(AtollError) as caught:
        files.copy(f"{folder}/a.txt", f"{folder}/z/c.txt", overwrite=False, user=user)
    assert caught.value.code == "exists"
    files.remove(f"{folder}/y", recursive=True, user=user)
    files.remove(f"{folder}/y", missing_ok=True, user=user)
    assert files.read(f"{folder}/z/c.txt", user=user) == "a"


def test_owners_are_for_root_to_change(sandbox: Sandbox) -> None:
    sandbox.files.write("/tmp/owned", "x", user="user")
    with pytest.raises(AtollError) as caught:
        sandbox.files.chown("/tmp/owned", "root", user="user")
    assert caught.value.code == "permission_denied"
    view = sandbox.files.chown("/tmp/owned", "root", 1000, user="root")
    assert (view.owner, view.group) == ("root", "user")


def test_search_and_replace(sandbox: Sandbox, home: tuple[str, str]) -> None:
    user, folder = home
    texts: dict[str, str | bytes] = {"one.py": "import os\nprint(os)\n", "two.txt": "os", "bin": b"os\0"}
    sandbox.files.write_many({f"{folder}/{name}": text for name, text in texts.items()}, user=user)
    found = sandbox.files.search(folder, r"\bos\b", glob="*.py", user=user)
    assert [(match.line, match.column, match.text) for match in found.items] == [
        (1, 8, "import os"),
        (2, 7, "print(os)"),
    ]
    assert sandbox.files.search(folder, "os", user=user).skipped == 1
    assert sandbox.files.search(folder, "o", limit=1, user=user).truncated
    assert sandbox.files.replace(folder, "(o)s", r"\1S", dry_run=True, user=user).replaced == 3
    changed = sandbox.files.replace(folder, "(o)s", r"\1S", glob="*.py", user=user)
    assert [(item.path, item.count) for item in changed.items] == [(f"{folder}/one.py", 2)]
    assert sandbox.files.read(f"{folder}/one.py", user=user) == "import oS\nprint(oS)\n"
    with pytest.raises(AtollError) as caught:
        sandbox.files.search(folder, "(", user=user)
    assert caught.value.code == "invalid_argument"


def test_a_thousand_files_in_one_call(sandbox: Sandbox, home: tuple[str, str]) -> None:
    user, folder = home
    files = {f"{folder}/{number % 7}/{number}": f"{number}" for number in range(1000)}
    assert sandbox.files.write_many(files, mode=0o600, user=user) == 1000
    assert sandbox.files.read(f"{folder}/5/999", user=user) == "999"
    assert sandbox.files.stat(f"{folder}/5/999", user=user).mode == 0o600
    assert len(sandbox.files.find(folder, type="file", user=user)) == 1000
    with pytest.raises(AtollError) as caught:
        sandbox.files.write_many([(f"{folder}/good", "1"), (f"{folder}/5", "2"), (f"{folder}/never", "3")], user=user)
    assert caught.value.code == "is_directory"
    assert sandbox.files.exists(f"{folder}/good", user=user)
    assert not sandbox.files.exists(f"{folder}/never", user=user)


def test_a_batch_that_is_no_batch(sandbox: Sandbox, server: Server) -> None:
    path = f"/v1/sandboxes/{sandbox.id}/files/batch"
    for body in (b"hello", b"\xff" * 10, b"\0\0\0\1\3x", b"\0\0\0\2\0{}"):
        answer = server.request("POST", path, content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_body")


NAMES = [b"with space", b"new\nline", b"\xff\xfe not utf-8", b"-rf", b"\xe2\x82\xac", b"'\"$`\\", b"a:b"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_bytes(sandbox: Sandbox, name: bytes) -> None:
    folder, text = "/tmp/names", os.fsdecode(name)
    sandbox.files.write_many({f"{folder}/{text}": name})
    assert sandbox.files.read_bytes(f"{folder}/{text}") == name
    assert [view.name for view in sandbox.files.find(folder)] == [text]
    assert sandbox.files.search(folder, ".").items[0].path == f"{folder}/{text}"
    sandbox.files.move(f"{folder}/{text}", f"{folder}/moved")
    sandbox.files.copy(f"{folder}/moved", f"{folder}/{text}")
    assert httpx2.get(sandbox.files.download_url(f"{folder}/{text}")).content == name
    sandbox.files.remove(folder, recursive=True)


BAD = [
    ("a\0b", "invalid_argument"),
    ("/" + "a" * 300, "invalid_argument"),
    ("/a" * 3000, "invalid_argument"),
    ("", "invalid_argument"),
    ("/tmp", "is_directory"),
    ("/etc/hostname/x", "not_directory"),
    ("/dev/tty0", "not_found"),
]


@pytest.mark.parametrize(("path", "code"), BAD)
def test_bad_paths(sandbox: Sandbox, path: str, code: str) -> None:
    with pytest.raises(AtollError) as caught:
        sandbox.files.read(path)
    assert caught.value.code == code
    if code != "not_found":
        for write in (lambda: sandbox.files.write(path, "x"), lambda: sandbox.files.write_many({path: "x"})):
            with pytest.raises(AtollError) as caught:
                write()
            assert caught.value.code == code


def test_rights_and_unknown_users(sandbox: Sandbox) -> None:
    for act in (
        lambda: sandbox.files.read("/etc/shadow"),
        lambda: sandbox.files.write("/etc/new", "x"),
        lambda: sandbox.files.remove("/etc/hostname"),
        lambda: sandbox.files.unpack(b"", "/etc/new"),
        lambda: list(sandbox.files.pack("/etc/shadow")),
    ):
        with pytest.raises(AtollError) as caught:
            act()
        assert caught.value.code == "permission_denied"
    assert sandbox.files.read("/etc/shadow", user="root").startswith("root:")
    with pytest.raises(AtollError) as caught:
        sandbox.files.read("/etc/hostname", user="nobody-here")
    assert caught.value.code == "unknown_user"


def test_a_full_disk_leaves_a_file_that_can_only_be_written_in_place(sandbox: Sandbox) -> None:
    """In a folder that its user may not write, and of an owner that its user cannot give away."""
    line = "mkdir /srv/fixed; cd /srv/fixed; touch own /var/tmp/theirs; chown user own; chmod 666 /var/tmp/theirs"
    sandbox.commands.run(line, user="root", check=True)
    for path in ("/srv/fixed/own", "/var/tmp/theirs"):
        sandbox.files.write(path, "old")
        with pytest.raises(AtollError) as caught:
            sandbox.files.write(path, os.urandom(80 * limits.MIB))
        assert caught.value.code in ("quota", "disk_full")
        assert sandbox.files.read(path) == "old"


def test_a_full_disk_leaves_the_old_file(sandbox: Sandbox, home: tuple[str, str]) -> None:
    user, folder = home
    sandbox.files.write(f"{folder}/kept", "old", user=user)

    def endless() -> Iterator[bytes]:
        for _ in range(200):
            yield os.urandom(limits.MIB)

    for act in (
        lambda: sandbox.files.write(f"{folder}/kept", endless(), user=user),
        lambda: sandbox.files.write(f"{folder}/kept", endless(), append=True, user=user),
        lambda: sandbox.files.write_many({f"{folder}/kept": endless()}, user=user),
    ):
        with pytest.raises(AtollError) as caught:
            act()
        assert caught.value.code in ("quota", "disk_full")
        assert sandbox.files.read(f"{folder}/kept", user=user) == "old"
    assert [view.name for view in sandbox.files.list(folder, user=user)] == ["kept"]
    sandbox.files.write(f"{folder}/kept", "new", user=user)


def test_an_upload_that_breaks_off_changes_nothing(sandbox: Sandbox, home: tuple[str, str]) -> None:
    user, folder = home
    sandbox.files.write(f"{folder}/kept", "old", user=user)

    def broken() -> Iterator[bytes]:
        yield bytes(5 * limits.MIB)
        raise KeyError("the caller has gone wrong")

    with pytest.raises(KeyError):
        sandbox.files.write(f"{folder}/kept", broken(), user=user)
    wait_until(lambda: len(sandbox.files.list(folder, user=user)) == 1, 10, "the half file is gone")
    assert sandbox.files.read(f"{folder}/kept", user=user) == "old"
