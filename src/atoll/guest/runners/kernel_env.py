"""Variables of one run for a Jupyter kernel: code that sets them before it, and code that puts things back after it.

The protocol has no word for it, so it is said in the kernel's own language. A value is given as JSON text in a literal
of that language, which needs no escaping that the language does not know.
"""

from __future__ import annotations

import json


def commands(language: str, env: dict[str, str]) -> tuple[str, str]:
    """What to run before and after, in silence; two empty texts if there is nothing to set."""
    if not env:
        return "", ""
    if language == "r":
        return _r(env)
    return _python(env)


def lasting(language: str, env: dict[str, str]) -> str:
    """What sets variables for good."""
    if not env:
        return ""
    return f"Sys.setenv({_r_values(env)})" if language == "r" else f"__import__('os').environ.update({env!r})"


def _python(env: dict[str, str]) -> tuple[str, str]:
    before = (
        "import os as __atoll_os\n"
        f"__atoll_env = {{name: __atoll_os.environ.get(name) for name in {sorted(env)!r}}}\n"
        f"__atoll_os.environ.update({env!r})"
    )
    after = (
        "for __atoll_name, __atoll_value in __atoll_env.items():\n"
        "    __atoll_os.environ.pop(__atoll_name, None)\n"
        "    if __atoll_value is not None: __atoll_os.environ[__atoll_name] = __atoll_value\n"
        "del __atoll_os, __atoll_env, __atoll_name, __atoll_value"
    )
    return before, after


def _r(env: dict[str, str]) -> tuple[str, str]:
    names = ", ".join(_r_text(name) for name in env)
    before = f".atoll_env <- Sys.getenv(c({names}), unset = NA, names = TRUE); Sys.setenv({_r_values(env)})"
    after = (
        "for (.atoll_name in names(.atoll_env)) if (is.na(.atoll_env[[.atoll_name]])) Sys.unsetenv(.atoll_name) else "
        "do.call(Sys.setenv, setNames(list(.atoll_env[[.atoll_name]]), .atoll_name)); rm(.atoll_env, .atoll_name)"
    )
    return before, after


def _r_values(env: dict[str, str]) -> str:
    return ", ".join(f"`{name}` = {_r_text(value)}" for name, value in env.items())


def _r_text(text: str) -> str:
    """A text of R. JSON's escapes are R's too, but for those of characters beyond 16 bits, which JSON writes as two."""
    return '"' + "".join(_r_letter(letter) for letter in text) + '"'


def _r_letter(letter: str) -> str:
    if ord(letter) > 0xFFFF:
        return f"\\U{ord(letter):08x}"
    return json.dumps(letter)[1:-1]
