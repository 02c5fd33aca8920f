"""Writes the description of the API to openapi/v1.json; with --check says whether the file there is the right one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from atoll import __version__
from atoll.api.app import endpoints
from atoll.api.openapi import document

TARGET = Path(__file__).resolve().parent.parent / "openapi" / "v1.json"


def main(arguments: list[str]) -> int:
    text = json.dumps(document(endpoints(), __version__), indent=2) + "\n"
    if arguments == ["--check"]:
        if TARGET.exists() and TARGET.read_text("utf-8") == text:
            return 0
        print("openapi/v1.json does not describe the API as it is; run tools/openapi.py", file=sys.stderr)
        return 1
    if arguments:
        print("usage: openapi.py [--check]", file=sys.stderr)
        return 2
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
