"""Console scripts get the interpreter of the root that they are put into."""

from __future__ import annotations

import pytest

from atoll.node.install.python_packages import shebang_replaced

BODY = "# -*- coding: utf-8 -*-\nimport sys\n"


@pytest.mark.parametrize(
    "head",
    [
        "#!/work/.venv/bin/python3\n",
        "#!/work/.venv/bin/python\n",
        "#!/bin/sh\n'''exec' '/a b/python' \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_the_first_line_is_the_roots(head: str) -> None:
    assert shebang_replaced(head + BODY) == "#!/usr/bin/python3\n" + BODY


def test_other_programs_stay() -> None:
    assert shebang_replaced("#!/bin/sh\necho\n") == "#!/bin/sh\necho\n"
