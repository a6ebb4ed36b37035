"""AG-UI: `POST /ag-ui`, answered by Server-Sent Events. Not in the OpenAPI document, as AG-UI has its own.

Everything but this route is in `mail.http.agui`, imported by the first request.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from mail.http.access import AdminOrUser
from mail.http.service import load

router = APIRouter(include_in_schema=False)


@router.post("/ag-ui")
async def answer_agui(request: Request, caller: AdminOrUser, entrypoint: str | None = None) -> Response:
    """Run an input of AG-UI: `entrypoint` is the agent that it is for."""
    await load("mail.http.agui.call", "ag_ui", "AG-UI")
    from mail.http.agui.call import answer

    return await answer(request, entrypoint)
