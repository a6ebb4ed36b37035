"""A2A: `/.well-known/agent-card.json`, and both bindings below `/a2a`. Not in the OpenAPI document, as A2A has its own.

Everything but these routes is in `mail.http.a2a`, imported by the first request.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from mail.http.access import AdminOrUser
from mail.http.service import load, service_of

router = APIRouter(include_in_schema=False)


@router.get("/.well-known/agent-card.json")
async def get_agent_card(request: Request) -> Response:
    """Return the agent card. Needs no key."""
    await load("mail.http.a2a.dispatch", "a2a", "A2A")
    from mail.http.a2a.dispatch import public_card

    await service_of(request).refresh()
    return public_card(request)


@router.post("/a2a")
@router.api_route("/a2a/{path:path}", methods=["GET", "POST", "DELETE"])
async def answer_a2a(request: Request, caller: AdminOrUser) -> Response:
    """Answer a request of JSON-RPC, or one of HTTP+JSON."""
    await load("mail.http.a2a.dispatch", "a2a", "A2A")
    from mail.http.a2a.dispatch import handle

    return await handle(request)
