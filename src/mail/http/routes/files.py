"""Files: callers upload them for messages, and fetch those of their tasks."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import Field

from mail.core.task.files import MAX_NAME, File, FileRef
from mail.errors import AnswerTooLarge, FileNotFound
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON, Answered, InChunks, read_body
from mail.http.openapi import make_router, problems
from mail.http.service import header, service_of

SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that a browser may show on the page; it saves all others."""

BYTES = {"schema": {"type": "string", "format": "binary"}}

UPLOAD_FACTOR = 2
"""An upload takes so many times its size: as it came, and as it is stored."""


class StoredFile(Answered):
    """A file, by the reference that messages have of it."""

    id: str = Field(description="For `files` of a message. The same bytes have the same id.")
    name: str
    type: str = Field(description="Its media type.")
    bytes: int = Field(description="Its size.")


router = make_router("files")


@router.post(
    "/files",
    summary="Upload a file",
    status_code=201,
    response_model=StoredFile,
    openapi_extra={"requestBody": {"required": True, "content": {"*/*": BYTES}}},
)
async def upload_file(
    request: Request,
    caller: AdminOrUser,
    name: Annotated[str, Query(max_length=MAX_NAME, description="Its name, for people and models.")] = "",
) -> JSON:
    """Store the body of the request as a file, for `files` of your messages.

    Its type is what its first bytes show, else the `Content-Type`. A file that no message refers to is deleted after a
    day, and others with the last task that refers to them.
    """
    service = service_of(request)
    files = service.runtime.caller_files
    data = await read_body(request, files.max_bytes, factor=UPLOAD_FACTOR)
    declared = (header(request, b"content-type") or "").partition(";")[0]
    file = File(data, name, "" if declared == "application/x-www-form-urlencoded" else declared)
    stored = await files.put(str(caller.principal(service.runtime.swarm.name)), file)
    return JSON(stored.as_json(), status_code=201, headers={"Location": f"/files/{stored.id}"})


@router.get(
    "/files/{file_id}",
    summary="Fetch a file",
    response_class=Response,
    responses={
        200: {"description": "The bytes of the file.", "content": {"*/*": BYTES}},
        **problems(404, 413),
    },
)
async def get_file(request: Request, caller: AdminOrUser, file_id: str) -> Response:
    """Return a file that you have uploaded, or that belongs to one of your tasks."""
    service = service_of(request)
    instance, files = str(caller.principal(service.runtime.swarm.name)), service.runtime.caller_files
    return await answer_file(request, instance, await files.find(instance, file_id))


async def answer_file(request: Request, instance: str, file: FileRef) -> Response:
    """Read a file, once the request holds its bytes. Raises FileNotFound if it is gone, AnswerTooLarge, RateLimited."""
    service = service_of(request)
    limit = service.max_answer_bytes
    if limit is not None and file.size > limit:
        raise AnswerTooLarge(f"the file has {file.size} bytes, and this function can send {limit}")
    service.holding(request).hold(file.size)
    data = await service.runtime.caller_files.read(instance, file.id)
    if data is None:
        raise FileNotFound
    place = "inline" if file.type in SHOWN else "attachment"
    headers: dict[str, Any] = {
        "Content-Disposition": f"{place}; filename*=UTF-8''{quote(file.name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, max-age=31536000, immutable",
    }
    return InChunks(data, media_type=file.type, headers=headers)
