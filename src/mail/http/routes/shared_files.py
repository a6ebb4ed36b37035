"""Files of mail to other swarms, which these fetch by links."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response

from mail.core.task.files import FileRef
from mail.errors import FileNotFound
from mail.http.openapi import make_router, problems
from mail.http.routes.files import BYTES, answer_file
from mail.http.service import address_of, service_of

router = make_router("files")


async def _linked(request: Request, link: str) -> tuple[str, FileRef]:
    """Return whose file a link fetches, and which. Raises FileNotFound for any other, RateLimited for many of those."""
    service = service_of(request)
    try:
        return await service.runtime.caller_files.follow(link)
    except FileNotFound:
        service.rates.admit_stranger(address_of(request))
        raise


@router.get(
    "/files/shared/{link}",
    summary="Fetch a file by a link",
    response_class=Response,
    responses={
        200: {"description": "The bytes of the file.", "content": {"*/*": BYTES}},
        **problems(404, 413, 429),
    },
)
async def get_shared_file(
    request: Request, linked: Annotated[tuple[str, FileRef], Depends(_linked)]
) -> Response:
    """Return the file of a message to another swarm, for a week. The link, which the message has, is all it needs."""
    return await answer_file(request, *linked)
