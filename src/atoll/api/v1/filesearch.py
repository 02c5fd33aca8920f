"""/v1/sandboxes/{sandbox}/files/search and /replace: what files hold; and /attributes, their extended attributes."""

from __future__ import annotations

import base64

from atoll.api.endpoint import Call, Endpoint, Nothing
from atoll.api.stream import until_disconnected
from atoll.api.v1 import filewords, guestwords
from atoll.api.v1.files import FILE_ERRORS, PATH, FileQuery, file_ask, file_params
from atoll.model import limits
from atoll.model.errors import DeadlineExceeded, OutOfSpace, TooLarge
from atoll.wire.public import (
    AttributeSet,
    AttributesView,
    FileMatchList,
    FileReplace,
    FileReplacementList,
    FileSearch,
)


class AttributesQuery(FileQuery, omit_defaults=True):
    """All attributes of a file, or the one that is named."""

    name: str | None = None


class AttributeQuery(FileQuery, kw_only=True):
    """One attribute of a file."""

    name: str


async def search(call: Call[FileSearch, Nothing]) -> FileMatchList:
    params = file_params(call.body)
    params["matches_max"] = params.pop("limit")
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    answers: list[FileMatchList] = []

    async def work() -> None:
        async with sandbox.stream("file.search", params) as stream:
            found, end = await filewords.collected(stream, filewords.match, limits.SEARCH_MATCHES_MAX)
        answers.append(FileMatchList(items=found, searched=end.searched, skipped=end.skipped, truncated=end.truncated))

    await until_disconnected(call.receive, work)
    if not answers:
        raise guestwords.ended_early()
    return answers[0]


async def replace(call: Call[FileReplace, Nothing]) -> FileReplacementList:
    sandbox = await call.control.guest(call.principal, call.path["sandbox"])
    async with sandbox.stream("file.replace", file_params(call.body)) as stream:
        found, end = await filewords.collected(stream, filewords.replacement, limits.SEARCH_MATCHES_MAX)
    return FileReplacementList(items=found, replaced=end.replaced, skipped=end.skipped, truncated=end.truncated)


async def attributes(call: Call[Nothing, AttributesQuery]) -> AttributesView:
    return AttributesView(attributes=filewords.attributes(await file_ask(call, "file.xattr", file_params(call.query))))


async def attribute_set(call: Call[AttributeSet, Nothing]) -> None:
    params = {**file_params(call.body), "value": base64.b64encode(call.body.value).decode("ascii")}
    await file_ask(call, "file.set_xattr", params)


async def attribute_remove(call: Call[Nothing, AttributeQuery]) -> None:
    await file_ask(call, "file.set_xattr", file_params(call.query))


ENDPOINTS = (
    Endpoint(
        "POST",
        PATH + "/search",
        "Search in the text of files",
        search,
        body=FileSearch,
        answer=FileMatchList,
        needs="read",
        errors=(*FILE_ERRORS, TooLarge, DeadlineExceeded),
    ),
    Endpoint(
        "POST",
        PATH + "/replace",
        "Replace in the text of files",
        replace,
        body=FileReplace,
        answer=FileReplacementList,
        errors=(*FILE_ERRORS, TooLarge, DeadlineExceeded, OutOfSpace),
    ),
    Endpoint(
        "GET",
        PATH + "/attributes",
        "Show extended attributes",
        attributes,
        query=AttributesQuery,
        answer=AttributesView,
        errors=FILE_ERRORS,
    ),
    Endpoint(
        "PUT", PATH + "/attributes", "Set an extended attribute", attribute_set, body=AttributeSet, errors=FILE_ERRORS
    ),
    Endpoint(
        "DELETE",
        PATH + "/attributes",
        "Remove an extended attribute",
        attribute_remove,
        query=AttributeQuery,
        errors=FILE_ERRORS,
    ),
)
