"""What is in a snapshot's file, item by item; and a reader that lets through only what is in order. Pure.

    Head · Folder "" · (Folder ... Up | File (Extent bytes)* | Hardlink | Symlink | Fifo)* · Up · (Memory bytes)* · End

Items are frames (`wire.framing`): a control frame is one item in MessagePack, an input frame is bytes that belong to
the item before it. Every name is one component of a path; where a thing lies follows from the folders that are open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from atoll.model import limits
from atoll.model.errors import AtollError, InvalidArgument, TooLarge
from atoll.model.resources import Resources
from atoll.model.sandbox import check_env, check_name
from atoll.wire import framing

EXTENT_ALIGN_BYTES = 4096
XATTR_PREFIX = b"user."
XATTR_CAPABILITY = b"security.capability"

_ID_MAX = 2**32 - 2
_TIME_NS_MAX = 2**63 - 1
_MEMORY_NAME = re.compile(r"[a-z][a-z0-9_-]{0,60}\.img")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GUEST = re.compile(r"[0-9a-f]{16}")


class _Item(msgspec.Struct, tag=True, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One item; its kind is written with it."""


class MemoryFile(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A file of the memory, as the manifest announces it."""

    name: str
    size: int
    sha256: str


class Head(_Item, frozen=True):
    """The manifest: what the snapshot is of, and what must be the same again where its memory is restored."""

    template: str
    cpu: float
    memory_bytes: int
    disk_bytes: int
    pids: int
    machine: str
    runtime_version: str
    cpu_features: str
    guest: str = ""
    """The fingerprint of the guest's code that is in the memory."""
    interpreter: str = ""
    token: str = ""
    token_hash: str = ""
    env: dict[str, str] = {}
    memory: tuple[MemoryFile, ...] = ()

    @property
    def resources(self) -> Resources:
        return Resources(self.cpu, self.memory_bytes, self.disk_bytes, self.pids)


class Folder(_Item, frozen=True):
    name: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    xattrs: dict[bytes, bytes]


class Up(_Item, frozen=True):
    """The end of the folder that is open."""


class File(_Item, frozen=True):
    """A regular file; what is in no extent of it is a hole."""

    name: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    xattrs: dict[bytes, bytes]
    size: int


class Extent(_Item, frozen=True):
    """So many bytes of the file before, which follow."""

    offset: int
    length: int


class Hardlink(_Item, frozen=True):
    """Another name of a file that came before, which is given by its path from the root of the disk."""

    name: bytes
    target: bytes


class Symlink(_Item, frozen=True):
    name: bytes
    target: bytes
    uid: int
    gid: int
    mtime_ns: int


class Fifo(_Item, frozen=True):
    name: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int


class Memory(_Item, frozen=True):
    """The next file of the memory; all its bytes follow."""

    name: str


class End(_Item, frozen=True):
    """Nothing is missing."""


Item = Head | Folder | Up | File | Extent | Hardlink | Symlink | Fifo | Memory | End

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Item] = msgspec.msgpack.Decoder(Item)


def encode(item: Item) -> bytes:
    return framing.encode(framing.CONTROL, _encoder.encode(item))


def encode_data(data: bytes) -> bytes:
    return framing.encode(framing.INPUT, data)


def damaged(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the snapshot's file is damaged: {why}", code="snapshot_damaged", hint="Export it again, or copy it again."
    )


def unsafe(why: str) -> InvalidArgument:
    return InvalidArgument(f"the snapshot's file is refused: {why}", code="snapshot_unsafe")


def too_large(why: str) -> TooLarge:
    return TooLarge(f"the snapshot is too large: {why}", code="snapshot_too_large")


class Reader:
    """Bytes of the blocks in, items and their data out, each checked against all that came before it."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.ended = False
        self._frames = framing.Decoder()
        self._depth = 0
        self._disk_done = False
        self._file: File | None = None
        self._file_at = 0
        self._left = 0
        """Bytes that must follow before the next item."""
        self._memory_next = 0
        self._entries = 0
        self._items = 0
        self._data_bytes = 0

    def feed(self, data: bytes) -> Iterator[Item | bytes]:
        for kind, payload in self._cut(data):
            if self.ended:
                raise damaged("there is more after its end")
            if kind == framing.INPUT:
                yield self._data(payload)
            elif kind == framing.CONTROL:
                yield self._item(payload)
            else:
                raise damaged("it has a frame of an unknown kind")

    def finish(self) -> None:
        """Everything has been fed: is everything there?"""
        if not self.ended or self._frames.pending_bytes:
            raise damaged("it ends too early")

    def _cut(self, data: bytes) -> list[framing.Frame]:
        try:
            return self._frames.feed(data)
        except framing.FrameError as error:
            raise damaged(str(error)) from None

    def _data(self, payload: bytes) -> bytes:
        if not 0 < len(payload) <= self._left:
            raise damaged("bytes are where none belong")
        self._left -= len(payload)
        return payload

    def _item(self, payload: bytes) -> Item:
        self._items += 1
        if self._items > limits.SNAPSHOT_ITEMS_MAX:
            raise too_large(f"more than {limits.SNAPSHOT_ITEMS_MAX} items")
        if self._left:
            raise damaged("bytes are missing before an item")
        try:
            item = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise damaged(f"an item cannot be read: {str(error)[:120]}") from None
        self._admit(item)
        return item

    def _admit(self, item: Item) -> None:
        if isinstance(item, Head):
            self._admit_head(item)
        elif self.head is None:
            raise damaged("it does not begin with its head")
        elif isinstance(item, Memory):
            self._admit_memory(item)
        elif isinstance(item, End):
            self._admit_end()
        elif self._disk_done:
            raise damaged("something of the disk comes after the disk")
        elif isinstance(item, Extent):
            self._admit_extent(item)
        else:
            self._file = None
            self._admit_entry(item)

    def _admit_head(self, head: Head) -> None:
        if self.head is not None:
            raise damaged("it has two heads")
        check_head(head)
        self.head = head

    def _admit_entry(self, item: Folder | Up | File | Hardlink | Symlink | Fifo) -> None:
        if isinstance(item, Up):
            if self._depth == 0:
                raise damaged("a folder ends that never began")
            self._depth -= 1
            self._disk_done = self._depth == 0
            return
        self._entries += 1
        if self._entries > limits.SNAPSHOT_ENTRIES_MAX:
            raise too_large(f"more than {limits.SNAPSHOT_ENTRIES_MAX} files")
        if self._depth == 0:
            if not isinstance(item, Folder) or item.name:
                raise damaged("the disk does not begin with its root")
        else:
            check_component(item.name)
        _check_entry(item)
        if isinstance(item, Folder):
            self._depth += 1
            if self._depth > limits.TREE_DEPTH_MAX:
                raise unsafe(f"folders lie more than {limits.TREE_DEPTH_MAX} deep")
        elif isinstance(item, File):
            self._file, self._file_at = item, 0

    def _admit_extent(self, extent: Extent) -> None:
        file = self._file
        if file is None or extent.length < 1 or extent.offset % EXTENT_ALIGN_BYTES:
            raise damaged("a part of a file is not where it can be")
        if extent.offset < self._file_at or extent.offset > file.size or extent.length > file.size - extent.offset:
            raise damaged("parts of a file overlap, or lie outside of it")
        self._file_at = extent.offset + extent.length
        self._expect(extent.length, limits.SNAPSHOT_DISK_BYTES_MAX)

    def _admit_memory(self, item: Memory) -> None:
        assert self.head is not None
        if not self._disk_done or self._memory_next >= len(self.head.memory):
            raise damaged("memory is where none belongs")
        announced = self.head.memory[self._memory_next]
        if item.name != announced.name:
            raise damaged("the memory's files are not in the order of the head")
        self._memory_next += 1
        self._left = announced.size

    def _admit_end(self) -> None:
        assert self.head is not None
        if not self._disk_done or self._memory_next != len(self.head.memory):
            raise damaged("it ends before all of it is there")
        self.ended = True

    def _expect(self, size_bytes: int, most_bytes: int) -> None:
        self._data_bytes += size_bytes
        if self._data_bytes > most_bytes:
            raise too_large(f"more than {most_bytes} bytes on its disk")
        self._left = size_bytes


def check_head(head: Head) -> None:
    """A manifest whose values can be used; all of them may have been chosen by an enemy."""
    try:
        head.resources.checked()
        check_name("template", head.template)
        check_env(head.env)
    except (AtollError, UnicodeEncodeError) as error:
        raise unsafe(f"its head is wrong: {error}") from None
    texts = (head.machine, head.runtime_version, head.cpu_features, head.interpreter, head.token)
    if any(len(text) > limits.SNAPSHOT_TEXT_CHARS_MAX or not text.isprintable() for text in texts):
        raise unsafe("its head is wrong: a text is too long or cannot be printed")
    if len(head.memory) > limits.SNAPSHOT_MEMORY_FILES_MAX:
        raise unsafe("its memory has too many files")
    names = [one.name for one in head.memory]
    if sorted(set(names)) != names:
        raise damaged("the memory's files are not in order")
    for one in head.memory:
        if not _MEMORY_NAME.fullmatch(one.name) or not _SHA256.fullmatch(one.sha256) or one.size < 0:
            raise unsafe("its memory has a file that cannot be one")
    if sum(one.size for one in head.memory) > head.memory_bytes + limits.SNAPSHOT_MEMORY_SLACK_BYTES:
        raise too_large("more memory than the sandbox may have")
    if head.memory and not (_GUEST.fullmatch(head.guest) and _SHA256.fullmatch(head.token_hash) and head.token):
        raise unsafe("its memory has no guest")


def check_component(name: bytes) -> None:
    """One name in a folder: neither a path nor a way up."""
    if not 0 < len(name) <= limits.FILE_NAME_BYTES_MAX or b"/" in name or b"\0" in name or name in (b".", b".."):
        raise unsafe(f"{name[:40]!r} cannot be the name of a file")


def target_parts(target: bytes) -> list[bytes]:
    """The components of a path from the root of the disk."""
    parts = target.split(b"/")
    if len(target) > limits.PATH_BYTES_MAX * 16 or len(parts) > limits.TREE_DEPTH_MAX:
        raise unsafe("a link's target is too long")
    for part in parts:
        check_component(part)
    return parts


def _check_entry(item: Folder | File | Hardlink | Symlink | Fifo) -> None:
    if isinstance(item, Hardlink):
        target_parts(item.target)
        return
    if not (0 <= item.uid <= _ID_MAX and 0 <= item.gid <= _ID_MAX and abs(item.mtime_ns) <= _TIME_NS_MAX):
        raise unsafe("a file has an owner or a time that cannot be")
    if isinstance(item, Symlink):
        if not 0 < len(item.target) < limits.PATH_BYTES_MAX or b"\0" in item.target:
            raise unsafe("a link leads to what is no path")
        return
    if not 0 <= item.mode <= 0o7777:
        raise unsafe("a file's rights are more than rights")
    if isinstance(item, File) and not 0 <= item.size <= limits.SNAPSHOT_FILE_BYTES_MAX:
        raise unsafe("a file has a size that cannot be")
    if not isinstance(item, Fifo):
        _check_xattrs(item.xattrs)


def _check_xattrs(xattrs: Mapping[bytes, bytes]) -> None:
    size_bytes = sum(len(name) + len(value) for name, value in xattrs.items())
    if len(xattrs) > limits.SNAPSHOT_XATTRS_MAX or size_bytes > limits.SNAPSHOT_XATTR_BYTES_MAX:
        raise unsafe("a file has too many attributes")
    for name in xattrs:
        if not xattr_carried(name):
            raise unsafe(f"a file has an attribute {name[:40]!r}")


def xattr_carried(name: bytes) -> bool:
    """Attributes that a program inside may set: its own, and the capabilities of a program, which count only there."""
    own = name.startswith(XATTR_PREFIX) and len(XATTR_PREFIX) < len(name) <= limits.FILE_NAME_BYTES_MAX
    return (own or name == XATTR_CAPABILITY) and b"\0" not in name
