"""Starts the guest: reads its command line, forks the zygote while there is one thread, and serves."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from atoll.guest import incoming, temporary
from atoll.guest.agent import Agent, Settings
from atoll.guest.zygote import Zygote

_PR_SET_CHILD_SUBREAPER = 36


def parse_arguments(arguments: list[str]) -> Settings:
    """Pairs of --name and value. argparse would cost more memory than all of this."""
    if len(arguments) % 2:
        raise SystemExit("guest: options come in pairs")
    pairs = dict(zip(arguments[::2], arguments[1::2], strict=True))
    known = {"--address", "--port", "--token-hash", "--user", "--peer", "--processes-max"}
    if not set(pairs) <= known or "--port" not in pairs or "--token-hash" not in pairs:
        raise SystemExit(f"guest: options are {' '.join(sorted(known))}")
    return Settings(
        address=pairs.get("--address", "0.0.0.0"),
        port=int(pairs["--port"]),
        token_hash=pairs["--token-hash"],
        user=pairs.get("--user", "user"),
        peer=pairs.get("--peer", ""),
        processes_max=int(pairs.get("--processes-max", "0")),
    )


def _adopt_orphans() -> None:
    """Where the guest is not the first process, ask for the same duty, so that both are one case."""
    if os.getpid() != 1:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    settings = parse_arguments(sys.argv[1:])
    _adopt_orphans()
    agent = Agent(settings, Zygote())
    if os.getpid() == 1:  # elsewhere it would be the machine's own that is changed
        incoming.prepare()
        temporary.lay_bare()
        agent.boot_id.lay_over()
    agent.start()
    sys.stdout.write(f"guest: listening on port {agent.port}\n")
    sys.stdout.flush()
    agent.reap_for_ever()


if __name__ == "__main__":
    main()
