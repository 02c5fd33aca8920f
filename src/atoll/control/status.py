"""What should worry somebody who looks at a server."""

from __future__ import annotations

from atoll.model import limits
from atoll.model.quota import Quota
from atoll.wire.node import NodeStatus

NEARLY = 0.9  # of a budget, or of the disk


def warnings(node: NodeStatus, quota: Quota, month_s: float, month_money: float, templates: int = 1) -> list[str]:
    """In words, the most urgent first; nothing if all is well."""
    found: list[str] = []
    if not templates:
        found.append("there is no template, so no sandbox can be made: run `atoll setup` with this data directory")
    if node.disk_free_bytes < limits.POOL_RESERVE_BYTES:
        found.append("the disk pool is full: no sandbox can be made")
    elif node.disk_free_bytes < node.disk_total_bytes * (1 - NEARLY):
        found.append("the disk pool is nearly full")
    if node.memory_available_bytes < limits.ADMISSION_FREE_BYTES + limits.MEMORY_RESERVE_BYTES:
        found.append("memory is short: new sandboxes are refused")
    if node.memory_promised_bytes > node.memory_total_bytes:
        found.append("more memory is promised to sandboxes than the machine has")
    for name, used, most in (("seconds", month_s, quota.budget_s), ("money", month_money, quota.budget_money)):
        if most is not None and used >= most:
            found.append(f"the budget of this month in {name} is spent")
        elif most is not None and used >= most * NEARLY:
            found.append(f"the budget of this month in {name} is nearly spent")
    return found
