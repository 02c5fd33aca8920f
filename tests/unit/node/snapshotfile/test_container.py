"""What comes out of a file is bounded by what a block may be, whatever its frames promise; and the seal is checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from backports import zstd

from atoll.model import limits
from atoll.model.errors import AtollError, Forbidden, InvalidArgument
from atoll.node.snapshotfile import container
from atoll.node.snapshotfile.signing import Signing, parse_keys


def written(data: bytes, signing: Signing) -> bytes:
    writer = container.Writer(signing.public)
    return writer.begin() + writer.add(data) + writer.end(signing.sign)


def with_blocks(*packed: bytes, version: int = container.VERSION) -> bytes:
    told = container.MAGIC + version.to_bytes(2, "big") + bytes(32)
    told += b"".join(len(one).to_bytes(4, "big") + one for one in packed) + bytes(4)
    return told + hashlib.sha256(told).digest() + bytes(64)


def read(data: bytes) -> tuple[bytes, container.Seal]:
    reader = container.Reader()
    content = b"".join(reader.feed(data))
    return content, reader.finish()


def code_of(data: bytes) -> str:
    with pytest.raises(AtollError) as caught:
        read(data)
    return caught.value.code


def test_what_was_written_is_read(tmp_path: Path) -> None:
    signing = Signing.open(tmp_path)
    data = b"x" * (3 * limits.SNAPSHOT_BLOCK_BYTES + 17)
    content, seal = read(written(data, signing))
    assert content == data
    signing.check(seal)
    assert (
        Signing.open(tmp_path).public == signing.public == next(iter(parse_keys((tmp_path / "export.pub").read_text())))
    )


def test_a_bomb_does_not_unfold() -> None:
    assert code_of(with_blocks(zstd.compress(bytes(64 * limits.MIB)))) == "snapshot_damaged"


def test_two_frames_in_a_block_are_refused() -> None:
    assert code_of(with_blocks(zstd.compress(b"a") + zstd.compress(b"b"))) == "snapshot_damaged"
    assert code_of(with_blocks(zstd.compress(b"a")[:-1])) == "snapshot_damaged"
    assert code_of(with_blocks(zstd.compress(b""))) == "snapshot_damaged"


def test_a_frame_that_wants_a_large_window_is_refused() -> None:
    parameters: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    compressor = zstd.ZstdCompressor(options=parameters)
    frame = compressor.compress(b"a" * 1000) + compressor.flush()
    assert code_of(with_blocks(frame)) == "snapshot_damaged"


def test_a_block_over_the_bound_is_refused_by_its_length_alone() -> None:
    told = container.MAGIC + container.VERSION.to_bytes(2, "big") + bytes(32) + (2**31).to_bytes(4, "big")
    with pytest.raises(InvalidArgument):
        list(container.Reader().feed(told))


def test_other_files_and_other_versions_are_named() -> None:
    assert code_of(b"PK\x03\x04 and so on") == "snapshot_foreign"
    assert code_of(zstd.compress(b"a tar, perhaps")) == "snapshot_foreign"
    assert code_of(with_blocks(zstd.compress(b"a"), version=2)) == "snapshot_version"
    assert code_of(b"") == "snapshot_damaged"
    assert code_of(with_blocks(zstd.compress(b"a")) + b"more") == "snapshot_damaged"


def test_memory_is_believed_only_of_those_who_are_trusted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = Signing.open(tmp_path / "a")
    other = Signing.open(tmp_path / "b")
    friend = Signing.open(tmp_path / "b", frozenset({one.public}))
    _, seal = read(written(b"x", one))
    friend.check(seal)
    with pytest.raises(Forbidden) as caught:
        other.check(seal)
    assert caught.value.code == "snapshot_untrusted"
    assert one.public.hex() in caught.value.message
    with pytest.raises(Forbidden):
        friend.check(container.Seal(one.public, seal.digest, other.sign(seal.digest)))


@pytest.mark.parametrize("text", ["abc", "zz" * 32, "00" * 31])
def test_a_key_that_is_none_is_refused_at_start(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_keys(text)
    assert caught.value.code == "invalid_settings"
