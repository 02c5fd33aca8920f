"""Events of an execution as lines of E2B's interpreter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from atoll.api.compat.e2b import interpreter
from atoll.api.compat.e2b.interpreter import Execute
from atoll.model.errors import InvalidArgument
from atoll.wire import guest
from atoll.wire.public.contexts import ExecutionEnded, ExecutionError, ExecutionOutput, ExecutionResult
from tests.unit.api.compat.e2b.conftest import Inside

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_each_event_is_a_line() -> None:
    assert interpreter.lines_of(ExecutionOutput(stream="stdout", text="x"), NOW) == [
        {"type": "stdout", "text": "x", "timestamp": "2026-01-02T00:00:00+00:00"}
    ]
    assert interpreter.lines_of(ExecutionError(name="E", value="v", traceback="t"), NOW)[0]["type"] == "error"
    ended = ExecutionEnded(status="ok", execution_count=3, exit_code=0, duration_s=0.1, truncated=False)
    assert interpreter.lines_of(ended, NOW) == [
        {"type": "number_of_executions", "execution_count": 3},
        {"type": "end_of_execution"},
    ]


def test_a_result_has_its_forms_without_quotes_around_a_text() -> None:
    shown = interpreter.result(ExecutionResult(main=True, text="'abc'", data={"columns": {"a": [1]}, "rows": 1}))
    assert shown == {"type": "result", "is_main_result": True, "text": "abc", "data": {"a": [1]}}


@pytest.mark.parametrize(
    ("shown", "told"),
    [("'a'", "a"), ('"it\'s"', "it's"), ("'a\"", "'a\""), ("'", "'"), ("''", ""), ("b'a'", "b'a'"), ("", "")],
)
def test_the_outer_quotes_of_a_text_go(shown: str, told: str) -> None:
    assert interpreter.unquoted(shown) == told


def test_updates_of_a_display_are_not_told() -> None:
    assert interpreter.lines_of(ExecutionResult(text="x", update=True), NOW) == []


def test_code_runs_in_a_context_or_in_the_default_one_of_a_language() -> None:
    assert interpreter.run_params(Execute("1"))["context"] == "python"
    assert interpreter.run_params(Execute("1", language="JS"))["context"] == "javascript"
    assert interpreter.run_params(Execute("1", context_id="c"))["context"] == "c"
    with pytest.raises(InvalidArgument):
        interpreter.run_params(Execute("1", context_id="c", language="js"))


async def test_a_language_that_is_not_there_is_a_kernel_that_does_not_start(inside: Inside) -> None:
    def refuse(params: dict[str, Any]) -> list[guest.Message]:
        return [guest.Failure("unsupported", "there is no language 'cobol' here")]

    inside.guest.scripts.update({"contexts.run": refuse, "contexts.create": refuse})
    for path, body in (("/execute", {"code": "1", "language": "cobol"}), ("/contexts", {"language": "cobol"})):
        answer = await inside.ask("POST", path, body, e2b_sandbox_port="49999")
        assert (answer.status, answer.body) == (500, b"there is no language 'cobol' here")
    answer = await inside.ask("POST", "/execute", {"code": "1", "context_id": "cobol"}, e2b_sandbox_port="49999")
    assert (answer.status, answer.body) == (404, b"Context cobol not found")
