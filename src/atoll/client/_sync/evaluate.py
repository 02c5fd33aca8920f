# Generated from src/atoll/client/_async/evaluate.py by tools/unasync.py: change that file, not this one.
"""`evaluate`: code in, everything that came of it out, without a sandbox to look after."""

from __future__ import annotations

import os
from collections.abc import Mapping

from atoll.client import _exchange as exchange
from atoll.client._sync.transport import Transport
from atoll.client._config import discover
from atoll.client._executions import Evaluation
from atoll.model import limits
from atoll.wire.public import EvaluationStart, EvaluationView, ResourcesBody


def evaluate(
    code: str,
    *,
    language: str = "python",
    stdin: str | None = None,
    files: Mapping[str, bytes | str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 60,
    memory: int | str | None = None,
    cpu: float | None = None,
    template: str | None = None,
    url: str | None = None,
    api_key: str | None = None,
) -> Evaluation:
    """Run code in a sandbox that exists for this call only, and give back all that came of it.

    `files` are put into its working directory first; those that it makes or changes there come back.

    Example:
        result = evaluate("print(sum(map(int, input().split())))", stdin="1 2 3")
        print(result.stdout, result.exit_code)
    """
    body = EvaluationStart(
        code=code,
        language=language,
        stdin=stdin,
        files={path: data.encode() if isinstance(data, str) else bytes(data) for path, data in (files or {}).items()},
        env=dict(env or {}),
        timeout_s=timeout_s,
        template=template,
        resources=None if memory is None and cpu is None else _resources(memory, cpu),
    )
    transport = Transport.acquire(discover(url, api_key, os.environ))
    try:
        read_s = timeout_s + limits.CLIENT_ANSWER_S_MAX
        return Evaluation.of(transport.call("POST", "/v1/evaluate", EvaluationView, body, read_s=read_s))
    finally:
        transport.release()


def _resources(memory: int | str | None, cpu: float | None) -> ResourcesBody:
    return ResourcesBody(memory_bytes=exchange.parse_bytes(memory), cpu=cpu)
