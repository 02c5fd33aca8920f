"""Packet filter rules, given to the kernel by nftables' own library, in the language of `nft`.

The library is what the program `nft` is made of. Loaded here it spares a program per sandbox, and the text of the rules
stays what a person can read.
"""

from __future__ import annotations

import ctypes
from functools import cache

from atoll.model.errors import Internal, Unavailable

LIBRARY = "libnftables.so.1"


def apply(rules: str) -> None:
    """Give rules to the network namespace of the calling thread: all of them or none."""
    library = _library()
    context = library.nft_ctx_new(0)
    if not context:
        raise Internal("the packet filter cannot be spoken to", detail="nft_ctx_new gave nothing")
    try:
        library.nft_ctx_buffer_error(context)  # or it would write to our standard error
        if library.nft_run_cmd_from_buffer(context, rules.encode()) != 0:
            said = library.nft_ctx_get_error_buffer(context) or b""
            raise Internal("the packet filter refused its rules", detail=said.decode(errors="replace"))
    finally:
        library.nft_ctx_free(context)


def missing() -> bool:
    """Whether rules cannot be given on this host."""
    try:
        _library()
    except Unavailable:
        return True
    return False


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise Unavailable(
            f"{LIBRARY} is not on this host",
            code="missing_program",
            hint="`make setup` installs what a host needs; `atoll doctor` says what is missing",
            detail=str(error),
        ) from None
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_free.argtypes = [ctypes.c_void_p]
    library.nft_ctx_free.restype = None
    library.nft_ctx_buffer_error.argtypes = [ctypes.c_void_p]
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.nft_ctx_get_error_buffer.argtypes = [ctypes.c_void_p]
    library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    return library
