"""Sleep, waking, snapshots and forks for a long time, and a look at what grows, what is lost and what disagrees.

    tools/soak.py [--rounds 200] [--survivals 20] [--moments 50] [--only flat,survive,agree]

Three runs, described in `atoll.testing.soak`, each on a server of its own. The exit code is 1 if any of them found a
fault.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from atoll.node.install.layout import Layout
from atoll.testing import scratch
from atoll.testing.server import Server
from atoll.testing.soak import agree, flat, survive


def on_a_server(name: str, run: Callable[[Server, int], list[str]], count: int) -> list[str]:
    folder = scratch.data_dir_create(Layout.from_environment())
    server = Server(folder, {})
    try:
        server.start()
        faults = run(server, count)
    finally:
        server.close()
        scratch.data_dir_remove(folder)
    print("\n".join(f"{name}: {fault}" for fault in faults) or f"{name}: {count} times, no fault", flush=True)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="of flat")
    parser.add_argument("--survivals", type=int, default=20, help="rounds of survive")
    parser.add_argument("--moments", type=int, default=50, help="of agree: a snapshot and a fork each")
    parser.add_argument("--only", default="flat,survive,agree", help="which runs, separated by commas")
    chosen = parser.parse_args()
    runs = {"flat": (flat, chosen.rounds), "survive": (survive, chosen.survivals), "agree": (agree, chosen.moments)}
    faults: list[str] = []
    for name in chosen.only.split(","):
        faults += on_a_server(name, *runs[name])
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
