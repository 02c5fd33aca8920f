"""API keys in the spelling of E2B: `e2b_` and hexadecimal digits.

E2B's clients of some versions refuse any other key before they send it. Both spellings are the same key.
"""

from __future__ import annotations

import base64
import binascii

from atoll.wire import token

PREFIX = "e2b_"


def spelled(key: str) -> str:
    """A key of ours as E2B's clients want it."""
    return PREFIX + base64.urlsafe_b64decode(key.removeprefix(token.PREFIX) + "=").hex()


def read(text: str) -> str:
    """The key of ours behind either spelling; what is neither is returned as it is, for the door to refuse."""
    digits = text.removeprefix(PREFIX)
    if digits == text or len(digits) != 2 * token.CHANCE_BYTES:
        return text
    try:
        return token.key_mint(binascii.unhexlify(digits))
    except (ValueError, binascii.Error):
        return text
