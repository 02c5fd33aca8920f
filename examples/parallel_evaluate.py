"""A hundred snippets, each in a sandbox of its own, eight at a time."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import atoll
from atoll.client import Evaluation

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 100
AT_ONCE = 8


def snippet(number: int) -> Evaluation:
    return atoll.evaluate(f"print({number} ** 2)", timeout_s=30)


started_s = time.monotonic()
with ThreadPoolExecutor(AT_ONCE) as pool:
    results = list(pool.map(snippet, range(COUNT)))
seconds = time.monotonic() - started_s

wrong = [number for number, result in enumerate(results) if result.stdout != f"{number**2}\n"]
print(f"{COUNT} snippets in {seconds:.1f} s, {COUNT / seconds:.1f} per second, {len(wrong)} wrong")
sys.exit(bool(wrong))
