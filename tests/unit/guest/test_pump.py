"""The pump's timers; what it moves is tried with real processes."""

from __future__ import annotations

import threading
from functools import partial

from atoll.guest.pump import Pump


def test_a_cancelled_timer_does_not_ring_and_the_others_do_in_order() -> None:
    pump, rung, done = Pump(), list[str](), threading.Event()
    timers = {name: pump.call_later(at / 1000, partial(rung.append, name)) for at, name in enumerate("abcde")}
    pump.call(lambda: pump.cancel(timers["b"]))
    pump.call_later(0.01, done.set)
    pump.start()
    assert done.wait(10)
    assert rung == ["a", "c", "d", "e"]
    again = threading.Event()
    pump.call(lambda: pump.cancel(timers["a"]))  # too late, and no harm
    pump.call(again.set)
    assert again.wait(10)
