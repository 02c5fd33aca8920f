"""What a server knows the bytes of its own images by."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from atoll.node.imagekey import ImageKey

DATA = os.urandom(3_000_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pages.img"
    path.write_bytes(DATA)
    return path


def told(key: ImageKey) -> str:
    digest = key.begin()
    view = memoryview(DATA)
    for start in range(0, len(DATA), 700_000):
        digest.update(view[start : start + 700_000])
    return digest.told()


def test_a_file_is_known_again_by_another_start_of_the_same_server(tmp_path: Path, file: Path) -> None:
    key = ImageKey(tmp_path / "images.key")
    text = told(key)
    assert ImageKey(tmp_path / "images.key").matches(file, text)
    assert (tmp_path / "images.key").stat().st_mode & 0o777 == 0o600
    assert told(key) != text  # a key is used for one file only


@pytest.mark.parametrize("where", [0, 1_500_000, len(DATA) - 1])
def test_a_flipped_byte_is_noticed(tmp_path: Path, file: Path, where: int) -> None:
    text = told(ImageKey(tmp_path / "images.key"))
    with open(file, "r+b") as changed:
        changed.seek(where)
        changed.write(bytes([DATA[where] ^ 1]))
    assert not ImageKey(tmp_path / "images.key").matches(file, text)


def test_what_is_cut_reordered_or_of_another_server_is_noticed(tmp_path: Path, file: Path) -> None:
    key = ImageKey(tmp_path / "images.key")
    text = told(key)
    assert not ImageKey(tmp_path / "other.key").matches(file, text)
    file.write_bytes(DATA[:-1])
    assert not key.matches(file, text)
    file.write_bytes(DATA[1_000_000:] + DATA[:1_000_000])
    assert not key.matches(file, text)


@pytest.mark.parametrize(
    "text", ["", "poly1305", "poly1305:", "poly1305:zz:00", "poly1305::", "md5:00", "poly1305:00:00"]
)
def test_a_digest_that_is_none_matches_nothing(tmp_path: Path, file: Path, text: str) -> None:
    assert not ImageKey(tmp_path / "images.key").matches(file, text)


def test_what_came_from_elsewhere_is_compared_by_its_hash(tmp_path: Path, file: Path) -> None:
    key = ImageKey(tmp_path / "images.key")
    assert key.matches(file, hashlib.sha256(DATA).hexdigest())
    assert not key.matches(file, hashlib.sha256(DATA + b".").hexdigest())
    assert not (tmp_path / "images.key").exists()


def test_two_first_images_at_once_have_one_secret(tmp_path: Path, file: Path) -> None:
    """Else the next start would know only one of them."""
    for number in range(20):
        path = tmp_path / f"{number}.key"
        key = ImageKey(path)
        ready = threading.Barrier(4)

        def first(key: ImageKey = key, ready: threading.Barrier = ready) -> str:
            ready.wait()
            return told(key)

        with ThreadPoolExecutor(4) as threads:
            texts = [one.result() for one in [threads.submit(first) for _ in range(4)]]
        assert all(ImageKey(path).matches(file, text) for text in texts)
