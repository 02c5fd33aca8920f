"""The file of a snapshot is parsed as if an enemy had written it: every file is taken whole or refused with a code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.errors import AtollError
from atoll.node.snapshotfile import container, items
from atoll.node.snapshotfile.items import (
    End,
    Extent,
    Fifo,
    File,
    Folder,
    Hardlink,
    Head,
    Memory,
    MemoryFile,
    Symlink,
    Up,
)

CODES = {"snapshot_damaged", "snapshot_unsafe", "snapshot_foreign", "snapshot_version", "snapshot_too_large"}
MEMORY = b"m" * 300

names = st.sampled_from([b"a", b"b", b"\xff", b"", b".", b"..", b"x/y", b"n" * 256, b"nul\0"])
numbers = st.integers(-1, 70_000)
wide = st.one_of(numbers, st.integers(-(2**63), 2**64 - 1))
xattrs = st.dictionaries(st.sampled_from([b"user.a", b"trusted.b", b"security.capability", b""]), st.binary(max_size=9))


def head(*memory: bytes) -> Head:
    files = tuple(MemoryFile(f"m{n}.img", len(one), hashlib.sha256(one).hexdigest()) for n, one in enumerate(memory))
    guest = ("0" * 16, "python", "token", "0" * 64) if memory else ("", "", "", "")
    return Head("base", 1.0, 2**30, 2**30, 100, "x86_64", "runsc 1", "cpu", *guest, {"A": "1"}, files)


any_item = st.one_of(
    st.builds(Folder, names, wide, wide, wide, wide, xattrs),
    st.builds(Up),
    st.builds(File, names, wide, wide, wide, wide, xattrs, wide),
    st.builds(Extent, wide, numbers),
    st.builds(Hardlink, names, st.sampled_from([b"a", b"a/b", b"../a", b"/etc/passwd", b"", b"a//b"])),
    st.builds(Symlink, names, st.sampled_from([b"/etc", b"", b"x\0"]), wide, wide, wide),
    st.builds(Fifo, names, wide, wide, wide, wide),
    st.builds(Memory, st.sampled_from(["m0.img", "../x.img", "manifest.json"])),
    st.builds(End),
    st.just(head(MEMORY)),
)
encoded = st.one_of(any_item.map(items.encode), st.binary(max_size=400).map(items.encode_data))


def whole() -> list[bytes]:
    """A small snapshot with one of everything, in order."""
    rights = (0o644, 1000, 1000, 1)
    data = bytes(range(256)) * 16
    return [
        items.encode(head(MEMORY)),
        items.encode(Folder(b"", 0o755, 0, 0, 1, {})),
        items.encode(File(b"file", *rights, {b"user.a": b"1"}, 3 * 4096)),
        items.encode(Extent(0, 4096)),
        items.encode_data(data),
        items.encode(Extent(8192, 10)),
        items.encode_data(data[:10]),
        items.encode(Hardlink(b"hard", b"file")),
        items.encode(Symlink(b"soft", b"/etc/passwd", 0, 0, 1)),
        items.encode(Fifo(b"pipe", *rights)),
        items.encode(Folder(b"below", 0o700, 0, 0, 1, {})),
        items.encode(Up()),
        items.encode(Up()),
        items.encode(Memory("m0.img")),
        items.encode_data(MEMORY),
        items.encode(End()),
    ]


def read(parts: Iterable[bytes]) -> list[items.Item | bytes]:
    reader = items.Reader()
    found = [item for part in parts for item in reader.feed(part)]
    reader.finish()
    return found


def blocks_of(parts: list[bytes]) -> list[bytes]:
    """Each part as a block of its own."""
    packed = [zstd.compress(part) for part in parts]
    return [len(one).to_bytes(4, "big") + one for one in packed]


def sealed(blocks: list[bytes]) -> bytes:
    """A file of these blocks, with a signature that nobody looks at here."""
    begin = container.MAGIC + container.VERSION.to_bytes(2, "big") + b"k" * 32
    told = begin + b"".join(blocks) + bytes(4)
    return told + hashlib.sha256(told).digest() + bytes(64)


def opened(data: bytes, sizes: list[int]) -> list[items.Item | bytes]:
    outside, inside = container.Reader(), items.Reader()
    found: list[items.Item | bytes] = []
    position = turn = 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        for block in outside.feed(data[position : position + size]):
            found += inside.feed(block)
        position += size
        turn += 1
    outside.finish()
    inside.finish()
    return found


@given(st.lists(st.integers(1, 400), min_size=1))
def test_a_file_comes_back_however_it_is_cut(sizes: list[int]) -> None:
    assert opened(sealed(blocks_of(whole())), sizes) == read(whole())


@given(st.lists(encoded, max_size=30))
def test_items_in_any_order_are_taken_or_refused_with_a_code(parts: list[bytes]) -> None:
    try:
        read([items.encode(head(MEMORY)), items.encode(Folder(b"", 0o755, 0, 0, 1, {})), *parts])
    except AtollError as error:
        assert error.code in CODES  # noqa: PT017 - it may or may not be raised


@given(st.binary(max_size=2000))
def test_garbage_inside_is_refused(data: bytes) -> None:
    with pytest.raises(AtollError) as caught:
        read([data])
    assert caught.value.code in CODES


@given(st.binary(max_size=2000))
def test_garbage_is_no_snapshot(data: bytes) -> None:
    with pytest.raises(AtollError) as caught:
        opened(container.MAGIC + data if data[:1] == b"\x00" else data, [97])
    assert caught.value.code in CODES


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_one_changed_byte_is_noticed(where: int, change: int) -> None:
    data = bytearray(sealed(blocks_of(whole())))
    where %= len(data) - container.SIGNATURE_BYTES  # who looks at memory looks at the signature too
    data[where] ^= change
    with pytest.raises(AtollError) as caught:
        opened(bytes(data), [1000])
    assert caught.value.code in CODES


@given(st.integers(0, 10**6))
def test_a_file_that_was_cut_short_is_noticed(where: int) -> None:
    data = sealed(blocks_of(whole()))
    with pytest.raises(AtollError) as caught:
        opened(data[: where % len(data)], [333])
    assert caught.value.code in CODES


@given(st.integers(0, 15), st.integers(0, 15))
def test_blocks_that_changed_places_are_noticed(one: int, other: int) -> None:
    """The checksum is that of the blocks in their order, so even two that could stand in either are noticed."""
    blocks = blocks_of(whole())
    swapped = list(blocks)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    data = sealed(blocks).replace(b"".join(blocks), b"".join(swapped))
    if swapped == blocks:
        assert opened(data, [1000]) == read(whole())
        return
    with pytest.raises(AtollError) as caught:
        opened(data, [1000])
    assert caught.value.code in CODES
