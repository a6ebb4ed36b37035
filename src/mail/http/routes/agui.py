"""AG-UI: `POST /ag-ui`, answered by Server-Sent Events. Not in the OpenAPI document, as AG-UI has its own.

Everything but this route is in `mail.http.agui`, imported by the first request.
"""

from importlib.util import find_spec

from fastapi import APIRouter, Request
from fastapi.responses import Response

from mail.errors import NotInstalled
from mail.http.access import AdminOrUser
from mail.http.service import load

router = APIRouter(include_in_schema=False)


@router.post("/ag-ui")
async def answer_agui(request: Request, caller: AdminOrUser, entrypoint: str | None = None) -> Response:
    """Run an input of AG-UI: `entrypoint` is the agent that it is for."""
    if find_spec("ag_ui") is None:
        raise NotInstalled(
            "this server has no AG-UI: its operator may run pip install 'mail-serverless[agui]'"
        )
    await load("mail.http.agui.call")
    from mail.http.agui.call import answer

    return await answer(request, entrypoint)
