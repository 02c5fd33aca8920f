"""The SDK: sandboxes from Python, with and without `async`."""

from __future__ import annotations

from atoll.client._async.code import AsyncCode, AsyncCodeRun
from atoll.client._async.commands import AsyncCommands
from atoll.client._async.evaluate import async_evaluate
from atoll.client._async.events import AsyncEvents as AsyncEvents
from atoll.client._async.events import AsyncWebhooks as AsyncWebhooks
from atoll.client._async.files import AsyncFiles
from atoll.client._async.keys import AsyncKeys as AsyncKeys
from atoll.client._async.network import AsyncNetwork
from atoll.client._async.process import AsyncProcess
from atoll.client._async.sandbox import AsyncSandbox
from atoll.client._async.secrets import AsyncSecrets
from atoll.client._async.shell import AsyncShell as AsyncShell
from atoll.client._async.snapshots import AsyncSnapshot
from atoll.client._async.tenants import AsyncTenants as AsyncTenants
from atoll.client._async.terminal import AsyncTerminal as AsyncTerminal
from atoll.client._async.usage import AsyncUsage as AsyncUsage
from atoll.client._async.volumefiles import AsyncVolumeFiles as AsyncVolumeFiles
from atoll.client._async.volumes import AsyncVolume
from atoll.client._events import CommandResult, Event, Output
from atoll.client._executions import Evaluation, Execution, pictures
from atoll.client._forks import Forks as Forks
from atoll.client._listed import Listed as Listed
from atoll.client._sync.code import Code, CodeRun
from atoll.client._sync.commands import Commands
from atoll.client._sync.evaluate import evaluate
from atoll.client._sync.events import Events as Events
from atoll.client._sync.events import Webhooks as Webhooks
from atoll.client._sync.files import Files
from atoll.client._sync.keys import Keys as Keys
from atoll.client._sync.network import Network
from atoll.client._sync.process import Process
from atoll.client._sync.sandbox import Sandbox
from atoll.client._sync.secrets import Secrets
from atoll.client._sync.shell import Shell as Shell
from atoll.client._sync.snapshots import Snapshot
from atoll.client._sync.tenants import Tenants as Tenants
from atoll.client._sync.terminal import Terminal as Terminal
from atoll.client._sync.usage import Usage as Usage
from atoll.client._sync.volumefiles import VolumeFiles as VolumeFiles
from atoll.client._sync.volumes import Volume
from atoll.wire.public import ContextView as ContextView
from atoll.wire.public import ExecutionCleared as ExecutionCleared
from atoll.wire.public import ExecutionEnded as ExecutionEnded
from atoll.wire.public import ExecutionError as ExecutionError
from atoll.wire.public import ExecutionOutput as ExecutionOutput
from atoll.wire.public import ExecutionResult as ExecutionResult
from atoll.wire.public import (
    FileChanged,
    FileOverflow,
    FileView,
    ProcessDropped,
    ProcessExited,
    ProcessView,
    SandboxView,
    SnapshotView,
    TemplateView,
    VolumeView,
)
from atoll.wire.public import QuotaBody as QuotaBody
from atoll.wire.public import VolumeSnapshotView as VolumeSnapshotView

__all__ = [
    "AsyncCode",
    "AsyncCodeRun",
    "AsyncCommands",
    "AsyncFiles",
    "AsyncNetwork",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSecrets",
    "AsyncSnapshot",
    "AsyncVolume",
    "Code",
    "CodeRun",
    "CommandResult",
    "Commands",
    "ContextView",
    "Evaluation",
    "Event",
    "Execution",
    "ExecutionCleared",
    "ExecutionEnded",
    "ExecutionError",
    "ExecutionOutput",
    "ExecutionResult",
    "FileChanged",
    "FileOverflow",
    "FileView",
    "Files",
    "Network",
    "Output",
    "Process",
    "ProcessDropped",
    "ProcessExited",
    "ProcessView",
    "Sandbox",
    "SandboxView",
    "Secrets",
    "Snapshot",
    "SnapshotView",
    "TemplateView",
    "Volume",
    "VolumeView",
    "async_evaluate",
    "evaluate",
    "pictures",
]
