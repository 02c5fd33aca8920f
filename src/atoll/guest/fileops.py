"""The table of file operations. All run in a process that is the user they act for, or root if that is asked for.

With `as_root`, which some of them know, relative paths and `~` still begin at the home of `user`, and what is made
belongs to that user.
"""

from __future__ import annotations

from collections.abc import Callable

from atoll.guest import changing, joining, listing, packing, reading, restoring, searching, unpacking, watching, writing
from atoll.guest.channel import Channel
from atoll.guest.params import Params
from atoll.guest.users import User

FileOp = Callable[[User, Params, Channel], None]

OPS: dict[str, FileOp] = {
    "file.read": reading.read,
    "file.write": writing.write,
    "file.write_many": writing.write_many,
    "file.stat": listing.stat,
    "file.list": listing.list_folder,
    "file.find": listing.find,
    "file.move": changing.move,
    "file.copy": changing.copy,
    "file.remove": changing.remove,
    "file.mkdir": changing.mkdir,
    "file.chmod": changing.chmod,
    "file.chown": changing.chown,
    "file.symlink": changing.symlink,
    "file.touch": changing.touch,
    "file.join": joining.join,
    "file.xattr": changing.xattr_get,
    "file.set_xattr": changing.xattr_set,
    "file.search": searching.search,
    "file.replace": searching.replace,
    "file.pack": packing.pack,
    "file.unpack": unpacking.unpack,
    "file.watch": watching.watch,
    "file.put_back": restoring.put_back,
}

AS_ROOT_OPS = frozenset(
    {
        "file.read",
        "file.write",
        "file.stat",
        "file.list",
        "file.move",
        "file.remove",
        "file.mkdir",
        "file.join",
        "file.set_xattr",
        "file.watch",
    }
)
