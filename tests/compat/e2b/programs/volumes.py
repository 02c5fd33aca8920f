"""Volumes and what is in them with the Python client, sync and async, beside sandboxes that have them."""

from __future__ import annotations

import io

import runner
from e2b import AsyncVolume, AuthenticationException, NotFoundException, Volume, VolumeException
from e2b_code_interpreter import Sandbox
from runner import araised, raised


def case_files_of_a_volume() -> None:
    volume = Volume.create("content")
    written = volume.write_file("/a.txt", "hello")
    assert (written.path, written.name, written.size, written.type) == ("/a.txt", "a.txt", 5, "file")
    assert volume.read_file("/a.txt") == "hello"
    assert volume.read_file("a.txt", format="bytes") == b"hello"
    assert b"".join(volume.read_file("/a.txt", format="stream")) == b"hello"
    volume.write_file("/a.txt", b"again", force=True)
    volume.write_file("/deep/er/b.bin", io.BytesIO(bytes(3_000_000)), uid=0, gid=0, mode=0o600)
    found = volume.get_info("/deep/er/b.bin")
    assert (found.size, found.uid, found.gid, found.mode) == (3_000_000, 0, 0, 0o600)
    assert volume.exists("/a.txt") is True
    assert volume.exists("/nothing") is False
    assert [entry.path for entry in volume.list("/")] == ["/a.txt", "/deep"]
    assert [entry.path for entry in volume.list("/", depth=3)] == ["/a.txt", "/deep", "/deep/er", "/deep/er/b.bin"]
    assert volume.update_metadata("/a.txt", mode=0o640, uid=7).uid == 7
    volume.remove("/deep")
    raised(NotFoundException, lambda: volume.read_file("/deep/er/b.bin"))
    raised(NotFoundException, lambda: volume.remove("/deep"))
    raised(NotFoundException, lambda: volume.list("/deep"))
    Volume.destroy(volume.volume_id)


def case_folders_of_a_volume() -> None:
    volume = Volume.create("folders")
    made = volume.make_dir("/one", mode=0o700)
    assert (made.path, made.mode) == ("/one", 0o700)
    raised(VolumeException, lambda: volume.make_dir("/one"))
    raised(NotFoundException, lambda: volume.make_dir("/p/q/r"))
    assert volume.make_dir("/p/q/r", force=True).path == "/p/q/r"
    error = raised(VolumeException, lambda: volume.write_file("/../x", "1"))
    assert "400" in str(error)
    Volume.destroy(volume.volume_id)


def case_a_token_opens_its_own_volume_only() -> None:
    one, two = Volume.create("one"), Volume.create("two")
    assert one.token
    assert one.token != two.token
    one.write_file("/f", "1")
    again = Volume.connect(one.volume_id)
    assert again.read_file("/f") == "1"
    raised(AuthenticationException, lambda: one.read_file("/f", token=two.token))
    raised(AuthenticationException, lambda: one.read_file("/f", token="0" * 64))
    for volume in (one, two):
        Volume.destroy(volume.volume_id)
    raised(AuthenticationException, lambda: one.read_file("/f"))


def case_a_sandbox_and_the_client_see_the_same() -> None:
    volume = Volume.create("shared")
    volume.write_file("/before", "1")
    sandbox = Sandbox.create("base", timeout=60, volume_mounts={"/data": volume})
    assert sandbox.commands.run("cat /data/before; echo 2 > /data/inside").stdout == "1"
    assert volume.read_file("/inside") == "2\n"
    volume.write_file("/after", "3")
    assert sandbox.files.read("/data/after") == "3"
    sandbox.kill()
    Volume.destroy(volume.volume_id)


async def case_the_asynchronous_client() -> None:
    volume = await AsyncVolume.create("async")
    await volume.write_file("/f", "1")
    assert await volume.read_file("/f") == "1"
    assert b"".join([data async for data in await volume.read_file("/f", format="stream")]) == b"1"
    assert [entry.name for entry in await volume.list("/")] == ["f"]
    await volume.make_dir("/d")
    await volume.update_metadata("/d", mode=0o711)
    assert (await volume.get_info("/d")).mode == 0o711
    await volume.remove("/d")
    assert await volume.exists("/d") is False
    await araised(NotFoundException, volume.read_file("/nothing"))
    await AsyncVolume.destroy(volume.volume_id)


if __name__ == "__main__":
    runner.main(globals())
