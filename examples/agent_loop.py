"""An agent's loop: the model writes code, the sandbox runs it, the model reads what came of it, until it is done.

The model here is a stand-in with three prepared turns, the first of them wrong, so that the example needs no account.
Put a call of your model in the place of `Model.next`.
"""

from __future__ import annotations

from atoll import Sandbox
from atoll.client import Execution

TASK = "How many primes are there below 1000, and what is their sum?"


class Model:
    """Says what to run next, or None when it has its answer."""

    def __init__(self) -> None:
        self._turns = [
            "primes = [n for n in range(2, 1000) if is_prime(n)]",
            "def is_prime(n): return all(n % d for d in range(2, int(n**0.5) + 1))",
            "primes = [n for n in range(2, 1000) if is_prime(n)]\nlen(primes), sum(primes)",
        ]

    def next(self, messages: list[str]) -> str | None:
        """`messages` is all that was said so far: a real model would read it."""
        return self._turns.pop(0) if self._turns and messages else None


def as_message(execution: Execution) -> str:
    """What a model should see: all that it needs to go on, and no more than it can read."""
    parts = [execution.stdout, execution.stderr, execution.text or ""]
    if execution.error:
        parts.append(f"{execution.error.name}: {execution.error.value}")
    return "\n".join(part.strip() for part in parts if part.strip())[:4000] or "(nothing)"


model = Model()
messages = [TASK]
with Sandbox.create("code", timeout_s=300) as sb:
    while (code := model.next(messages)) is not None:
        print(">>>", code.replace("\n", "\n... "))
        answer = as_message(sb.code.run(code, timeout_s=30))
        print(answer)
        messages += [code, answer]
print("answer:", messages[-1])
