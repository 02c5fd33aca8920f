"""A look at the files of an image that goes on while a box is made for it: are they what was written?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from atoll.model.errors import AtollError
from atoll.node.images import Image, Images


class ImageLook:
    """Implements `runtime.base.Seen`."""

    def __init__(self, images: Images, image: Image) -> None:
        self._images = images
        self._image = image
        self._whole = asyncio.get_running_loop().run_in_executor(None, images.verify, image)

    async def but(self, bulk: str) -> None:
        await asyncio.to_thread(self._images.verify_but, self._image, bulk)

    async def whole(self) -> None:
        await asyncio.shield(self._whole)

    async def end(self) -> None:
        """Nobody waits for it any more. It is over soon; a thread cannot be stopped."""
        with contextlib.suppress(AtollError, OSError):
            await self._whole


@contextlib.asynccontextmanager
async def looking(images: Images, image: Image) -> AsyncIterator[ImageLook]:
    """From here on it is looked at, and until the end of the block the image must be there."""
    look = ImageLook(images, image)
    try:
        yield look
    finally:
        await look.end()
