"""What volumes hold, in E2B's words."""

from __future__ import annotations

import pytest

from atoll.model import limits
from tests.unit.api.compat.e2b.conftest import Front

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_folder_with_too_many_files_is_refused_and_not_cut(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = (await front.ask("POST", "/volumes", {"name": "v"}, x_api_key=front.key)).json()
    content, token = f"/volumecontent/{volume['volumeID']}", f"Bearer {volume['token']}"
    for name in ("a", "b", "c"):
        answer = await front.ask("PUT", f"{content}/file?path=/{name}", b"1", authorization=token)
        assert answer.status == 201, answer.body
    for most, status in ((3, 200), (2, 413)):
        monkeypatch.setattr(limits, "VOLUME_LIST_ENTRIES_MAX", most)
        answer = await front.ask("GET", f"{content}/dir?path=/", authorization=token)
        assert answer.status == status, answer.body
    assert answer.json()["code"] == "volume_list_too_large"
