from __future__ import annotations

import pytest

from atoll.guest import users
from atoll.guest.failure import Refused

PASSWD = "root:x:0:0:root:/root:/bin/bash\nbroken line\nuser:x:1000:1001::/home/user:\nx:x:y:z:::\n"
GROUP = "root:x:0:\nsudo:x:27:other,user\nuser:x:1001:user\n"


def test_by_name_and_by_number() -> None:
    wanted = users.User("user", 1000, 1001, (1001, 27), "/home/user", "/bin/sh")
    assert users.find("user", PASSWD, GROUP) == wanted
    assert users.find("1000", PASSWD, GROUP) == wanted
    assert users.from_message(wanted.to_message()) == wanted


def test_a_number_that_nobody_has() -> None:
    assert users.find("4242", PASSWD, GROUP) == users.User("4242", 4242, 4242, (4242,), "/", "/bin/sh")


@pytest.mark.parametrize("wanted", ["nobody-here", "", "-1", "4294967295", "٣"])
def test_unknown_users(wanted: str) -> None:
    with pytest.raises(Refused) as caught:
        users.find(wanted, PASSWD, GROUP)
    assert caught.value.code == "unknown_user"
