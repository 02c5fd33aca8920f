"""Words of HTTP/2 that carry nothing: an honest end has enough for them, a flood has not."""

from __future__ import annotations

import pytest
from h2 import events
from hyperframe.frame import ExtensionFrame

from atoll.model import limits
from atoll.wire.http2 import Purse

PRIORITY = events.PriorityUpdated()
PING = events.PingReceived(ping_data=b"endless!")
WINDOW = events.WindowUpdated(stream_id=0)
IDLE = [
    PRIORITY,
    PING,
    events.PingAckReceived(ping_data=b"endless!"),
    events.RemoteSettingsChanged(),
    WINDOW,
    events.UnknownFrameReceived(frame=ExtensionFrame(type=99, stream_id=0)),
    events.DataReceived(stream_id=1, data=b""),
]
USEFUL = [
    events.RequestReceived(stream_id=1),
    events.ResponseReceived(stream_id=1),
    events.DataReceived(stream_id=1, data=b"x"),
]


@pytest.mark.parametrize("event", IDLE, ids=lambda event: type(event).__name__)
def test_a_flood_of_what_carries_nothing_has_an_end(event: events.Event) -> None:
    purse = Purse(100.0)
    heard = [purse.hear(event, 100.0) for _ in range(limits.HTTP2_IDLE_FRAMES_MAX + 1)]
    assert all(heard[:-1])
    assert not heard[-1]


@pytest.mark.parametrize("useful", USEFUL, ids=lambda event: type(event).__name__)
def test_beside_what_matters_there_is_room_for_it_without_end(useful: events.Event) -> None:
    purse = Purse(100.0)
    for _ in range(limits.HTTP2_IDLE_FRAMES_MAX):
        assert purse.hear(useful, 100.0)
        assert all(purse.hear(event, 100.0) for event in IDLE)


def test_windows_for_what_we_send_are_no_flood() -> None:
    purse = Purse(100.0)
    for _ in range(limits.HTTP2_IDLE_FRAMES_MAX * 10):
        purse.spoke()
        assert purse.hear(WINDOW, 100.0)
        assert purse.hear(WINDOW, 100.0)


def test_pings_of_a_connection_that_waits_for_days_are_none() -> None:
    purse = Purse(0.0)
    assert all(purse.hear(PING, now_s) for now_s in range(0, 400_000, 10))


def test_what_was_saved_in_days_is_still_one_purse() -> None:
    purse = Purse(0.0)
    heard = [purse.hear(PRIORITY, 400_000.0) for _ in range(limits.HTTP2_IDLE_FRAMES_MAX + 1)]
    assert not heard[-1]


def test_settings_of_ever_more_kinds_have_an_end() -> None:
    """The control is the same kinds again and again."""
    purse = Purse(0.0)

    def changed(first: int) -> events.Event:
        kinds = range(first, first + limits.HTTP2_SETTINGS_MAX // 2)
        return events.RemoteSettingsChanged.from_settings({}, dict.fromkeys(kinds, 1))

    assert all(purse.hear(changed(100), 0.0) for _ in range(10))
    assert purse.hear(changed(1000), 0.0)
    assert not purse.hear(changed(2000), 0.0)
