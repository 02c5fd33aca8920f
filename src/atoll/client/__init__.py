"""The SDK: sandboxes from Python, with and without `async`."""

from __future__ import annotations

from atoll.client._async.commands import AsyncCommands
from atoll.client._async.files import AsyncFiles
from atoll.client._async.process import AsyncProcess
from atoll.client._async.sandbox import AsyncSandbox
from atoll.client._events import CommandResult, Event, Output
from atoll.client._sync.commands import Commands
from atoll.client._sync.files import Files
from atoll.client._sync.process import Process
from atoll.client._sync.sandbox import Sandbox
from atoll.wire.public import FileView, ProcessDropped, ProcessExited, ProcessView, SandboxView, TemplateView

__all__ = [
    "AsyncCommands",
    "AsyncFiles",
    "AsyncProcess",
    "AsyncSandbox",
    "CommandResult",
    "Commands",
    "Event",
    "FileView",
    "Files",
    "Output",
    "Process",
    "ProcessDropped",
    "ProcessExited",
    "ProcessView",
    "Sandbox",
    "SandboxView",
    "TemplateView",
]
