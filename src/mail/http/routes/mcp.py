"""MCP: streamable HTTP at `POST /mcp`, without sessions. Not in the OpenAPI document, as MCP describes it.

Everything but this route is in `mail.http.mcp`, imported by the first request.
"""

from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import Response

from mail.errors import Forbidden, NotFound
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON
from mail.http.service import base_url, header, load, service_of

router = APIRouter(include_in_schema=False)


@router.get("/.well-known/oauth-protected-resource/mcp")
async def get_protected_resource(request: Request) -> JSON:
    """Return where clients get tokens for `/mcp` (RFC 9728): at the identity provider. Needs no key."""
    identity = service_of(request).identity
    if identity is None:
        raise NotFound("this server has no identity provider: use one of its API keys as the bearer token")
    settings = identity.settings
    return JSON(
        {
            "resource": f"{base_url(request)}/mcp",
            "authorization_servers": [settings.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": settings.scope.split(),
        }
    )


@router.post("/mcp")
async def answer_mcp(request: Request, caller: AdminOrUser) -> Response:
    """Answer a request of MCP, of either generation."""
    _refuse_foreign_page(request)
    await load("mail.http.mcp.server", "mcp", "MCP")
    from mail.http.mcp.server import answer

    return await answer(request)


def _refuse_foreign_page(request: Request) -> None:
    """Raise Forbidden for a web page of an origin that may not call this server, as MCP demands."""
    origin = header(request, b"origin")
    allowed = request.app.cors_origins
    if origin is None or origin in allowed or "*" in allowed:
        return
    if urlsplit(origin).netloc != header(request, b"host"):
        raise Forbidden(
            f"pages of {origin[:80]!r} may not call this server: its operator may set cors_origins"
        )
