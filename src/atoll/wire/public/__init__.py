"""The bodies of the public API, version 1: what `/v1` takes and gives, as typed values.

Server and SDK share these classes, so a field exists on both sides or on neither. Times are RFC 3339 in UTC. Unknown
fields in a request are refused (a misspelt `timeout` must not pass silently); unknown fields in an answer are ignored,
so that an older SDK talks to a newer server.
"""

from __future__ import annotations

from atoll.wire.public.base import Answer as Answer
from atoll.wire.public.base import Health as Health
from atoll.wire.public.base import Problem as Problem
from atoll.wire.public.base import Request as Request
from atoll.wire.public.files import DirectoryCreate as DirectoryCreate
from atoll.wire.public.files import FileList as FileList
from atoll.wire.public.files import FileMove as FileMove
from atoll.wire.public.files import FileView as FileView
from atoll.wire.public.files import FileWritten as FileWritten
from atoll.wire.public.nodes import NodeView as NodeView
from atoll.wire.public.processes import InputWritten as InputWritten
from atoll.wire.public.processes import ProcessDropped as ProcessDropped
from atoll.wire.public.processes import ProcessEvent as ProcessEvent
from atoll.wire.public.processes import ProcessExited as ProcessExited
from atoll.wire.public.processes import ProcessList as ProcessList
from atoll.wire.public.processes import ProcessOutput as ProcessOutput
from atoll.wire.public.processes import ProcessSignal as ProcessSignal
from atoll.wire.public.processes import ProcessStart as ProcessStart
from atoll.wire.public.processes import ProcessStarted as ProcessStarted
from atoll.wire.public.processes import ProcessView as ProcessView
from atoll.wire.public.processes import PtySize as PtySize
from atoll.wire.public.processes import StreamFailed as StreamFailed
from atoll.wire.public.sandboxes import ResourcesBody as ResourcesBody
from atoll.wire.public.sandboxes import ResourcesView as ResourcesView
from atoll.wire.public.sandboxes import SandboxCreate as SandboxCreate
from atoll.wire.public.sandboxes import SandboxCreated as SandboxCreated
from atoll.wire.public.sandboxes import SandboxDeadline as SandboxDeadline
from atoll.wire.public.sandboxes import SandboxPage as SandboxPage
from atoll.wire.public.sandboxes import SandboxView as SandboxView
from atoll.wire.public.templates import TemplateList as TemplateList
from atoll.wire.public.templates import TemplateView as TemplateView
