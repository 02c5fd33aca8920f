"""The rest of an identity: after its answer, and before whatever comes next."""

from __future__ import annotations

import threading

from atoll.guest.settling import Settling


def test_the_answer_comes_first_and_the_rest_at_once() -> None:
    done: list[str] = []
    Settling().begin(lambda: done.append("rest"), lambda: done.append("answer"))
    assert done == ["answer", "rest"]


def test_whoever_comes_in_between_waits_for_the_rest() -> None:
    settling, answered, may_end, done = Settling(), threading.Event(), threading.Event(), []

    def rest() -> None:
        may_end.wait(10)
        done.append("rest")

    threading.Thread(target=settling.begin, args=(rest, answered.set), daemon=True).start()
    assert answered.wait(10)
    threading.Timer(0.05, may_end.set).start()
    settling.finish()
    assert done == ["rest"]
