"""A long run: its output is read while it comes, its reader may go and come back, and it can be stopped."""

from __future__ import annotations

from atoll import Sandbox
from atoll.client import ExecutionOutput

CODE = """
import time
for step in range(1000):
    print("step", step)
    time.sleep(0.1)
"""

with Sandbox.create("code", timeout_s=300) as sb:
    run = sb.code.start(CODE)
    print("started", run.id)
    steps = 0
    for event in run:
        if isinstance(event, ExecutionOutput):
            steps += event.text.count("step")
            print(event.text, end="", flush=True)
        if steps >= 5:
            break  # the code goes on without a reader

    again = sb.code.attach(run.id)
    again.interrupt()
    ended = again.wait()
    print("ended:", ended.status, "after", ended.stdout.count("step"), "steps")
