"""Runs every case of a program and says what became of each, a line of JSON for each, and then what was called."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import driven


def main(names: dict[str, Any]) -> None:
    watch = driven.Watch()
    watch.begin()
    cases = {name: value for name, value in names.items() if name.startswith("case_")}
    for name, case in cases.items():
        try:
            if inspect.iscoroutinefunction(case):
                asyncio.run(case())
            else:
                case()
            outcome = "ok"
        except BaseException:
            outcome = traceback.format_exc()
        print("@ " + json.dumps({"case": name, "outcome": outcome}), flush=True)
    if "close" in names:
        names["close"]()
    print("% " + json.dumps({name: sorted(options) for name, options in watch.seen.items()}), flush=True)


def main_of_both(names: dict[str, Any]) -> None:
    """A program that is written for the asynchronous client; with the word `sync` it is run for the other one."""
    if "sync" in sys.argv[1:]:
        path = names["__file__"]
        names = {"__name__": "both", "__file__": path}
        exec(compile(_without_waiting(Path(path).read_text()), path, "exec"), names)
    main(names)


def _without_waiting(text: str) -> str:
    for pattern, instead in ((r"\basync (?=def |with |for )", ""), (r"\bawait ", ""), (r"\bAsync(?=[A-Z])", "")):
        text = re.sub(pattern, instead, text)
    return text.replace("araised", "raised").replace("await_until", "wait_until")


def raised(kind: type[BaseException], call: Any) -> Any:
    """The exception that a call ends with, which is of this kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


async def araised(kind: type[BaseException], call: Any) -> Any:
    try:
        await (call() if callable(call) else call)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


async def await_until(holds: Any, for_s: float = 20.0) -> Any:
    """What a question answers once it is true, if the question itself may have to wait."""
    deadline_s = time.monotonic() + for_s
    while time.monotonic() < deadline_s:
        answer = holds()
        answer = (await answer) if inspect.isawaitable(answer) else answer
        if answer:
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen in time")


def wait_until(holds: Any, for_s: float = 20.0) -> Any:
    """What a question answers once it is true."""
    deadline_s = time.monotonic() + for_s
    while time.monotonic() < deadline_s:
        answer = holds()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")
