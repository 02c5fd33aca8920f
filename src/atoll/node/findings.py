"""Findings of `atoll doctor`: what was looked at, how it stands, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `hint` says what to do and is empty where nothing is to be done."""

    name: str
    status: Status
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in the order in which they were made."""

    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return all(finding.status != "fail" for finding in self.findings)


def ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


def warn(name: str, detail: str, hint: str) -> Finding:
    return Finding(name, "warn", detail, hint)


def fail(name: str, detail: str, hint: str) -> Finding:
    return Finding(name, "fail", detail, hint)
