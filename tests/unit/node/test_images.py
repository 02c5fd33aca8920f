"""Which images may be brought to life where."""

from __future__ import annotations

from dataclasses import replace

from atoll.node.images import Boot, Image, restore_refusal

IMAGE = Image(
    id="sn",
    boot=Boot("hash", "/app", "/runtime"),
    token="t" * 8,
    runtime_version="v1",
    cpu_features="abc",
    files={"checkpoint.img": "0" * 64},
)


def test_another_runtime_or_processor_is_refused_with_the_reason() -> None:
    assert restore_refusal(IMAGE, "v1", "abc") is None
    for version, features, word in (("v2", "abc", "v1"), ("v1", "other", "processor")):
        refused = restore_refusal(IMAGE, version, features)
        assert refused is not None
        assert refused.code == "image_mismatch"
        assert word in refused.message


def test_a_disk_alone_boots_anywhere() -> None:
    assert restore_refusal(replace(IMAGE, files={}), "v9", "none") is None


def test_no_token_in_a_log() -> None:
    assert IMAGE.token not in repr(IMAGE)
