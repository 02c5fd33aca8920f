"""The rest of an identity: after its answer, once, and before whatever comes next."""

from __future__ import annotations

import threading

from atoll.guest.settling import Settling

_FOR_EVER_S = 3600.0


def test_the_answer_comes_first_and_the_rest_at_once() -> None:
    done: list[str] = []
    Settling().begin(lambda: done.append("rest"), lambda: done.append("answer"), 0.0)
    assert done == ["answer", "rest"]


def test_whoever_comes_before_its_time_finds_the_rest_done() -> None:
    settling, done, answered = Settling(), [], threading.Event()

    def begin() -> None:
        settling.begin(lambda: done.append("rest"), answered.set, _FOR_EVER_S)

    threading.Thread(target=begin, daemon=True).start()
    assert answered.wait(10)
    settling.finish()
    settling.finish()
    assert done == ["rest"]


def test_what_nobody_waits_for_is_done_when_its_time_has_come() -> None:
    settling, done = Settling(), []
    settling.begin(lambda: done.append("rest"), lambda: None, 0.001)
    assert done == ["rest"]


def test_an_identity_that_comes_in_between_takes_the_place_of_the_one_before() -> None:
    settling, done, answered = Settling(), [], threading.Event()

    def begin() -> None:
        settling.begin(lambda: done.append("first"), answered.set, _FOR_EVER_S)

    threading.Thread(target=begin, daemon=True).start()
    assert answered.wait(10)
    settling.begin(lambda: done.append("second"), lambda: None, 0.0)
    settling.finish()
    assert done == ["second"]
