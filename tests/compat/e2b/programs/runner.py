"""Runs every case of a program and says what became of each, a line of JSON for each."""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from typing import Any


def main(names: dict[str, Any]) -> None:
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


def raised(kind: type[BaseException], call: Any) -> Any:
    """The exception that a call ends with, which is of this kind."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


async def araised(kind: type[BaseException], call: Any) -> Any:
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def wait_until(holds: Any, for_s: float = 10.0) -> Any:
    """What a question answers once it is true."""
    import time

    deadline_s = time.monotonic() + for_s
    while time.monotonic() < deadline_s:
        answer = holds()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")
