"""Signing in to the page by links that work once, or with an identity provider, so that nobody has to copy a token.

    POST /sign-in-links   an API key makes a link, whose code the page has in its fragment: /ui#sign-in=CODE
    GET /sign-in          the page learns where the identity provider is, if there is one, whose code it gets
    POST /sign-in         the page exchanges the code for a token that expires
    POST /sign-out        the page revokes that token

The link of the person who runs the server brings a second session, of an admin, for the page's administration.

Nothing is in a cookie: a page of another origin can neither read the token nor send it.
"""

from typing import Annotated, Literal

from fastapi import Depends, Request
from pydantic import Field, StringConstraints

from mail.auth import tokens
from mail.auth.keys import Caller, find_bearer
from mail.core.task.audit import Act
from mail.core.task.documents import CallerRole
from mail.errors import BadRequest
from mail.http.access import AdminOrUser
from mail.http.audit import audited, refuse_session
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.routes.tokens import NO_STORE, issuing_service
from mail.http.service import address_of, service_of


class SignInLink(Answered):
    """A link for one browser."""

    code: str = Field(description="The code for `/ui#sign-in=CODE` at this server's address.")
    expires: str = Field(description="When the link expires, in ISO 8601.")


class IdentityProvider(Answered):
    """Where people sign in, and what the page says there (RFC 6749, section 4.1.1)."""

    authorization_endpoint: str
    client_id: str
    scope: str


class SignInWays(Answered):
    """How people can sign in to the page."""

    provider: IdentityProvider | None = Field(
        description="The identity provider; null for none. Links and tokens work as well."
    )


class PostSignIn(Given):
    """The code of a link, or one of the identity provider with what it was asked for with."""

    code: Annotated[str, StringConstraints(min_length=1, max_length=3000)]
    verifier: Annotated[str, StringConstraints(min_length=43, max_length=128)] | None = Field(
        default=None,
        description="The verifier of the challenge that the identity provider has seen (RFC 7636).",
    )
    redirect_uri: Annotated[str, StringConstraints(max_length=2000)] = Field(
        default="", description="The address to which the identity provider has sent the code."
    )


class SignedIn(Answered):
    """A session of the page."""

    token: str = Field(description="The API key of the session.")
    role: CallerRole
    id: str
    expires: str = Field(description="When the session ends, in ISO 8601.")
    admin_token: str | None = Field(
        description="The API key of a second session, of an admin, that ends with this one; null unless the link "
        "brings it."
    )


class SignedOut(Answered):
    """The end of a session."""

    status: Literal["signed out"]
    revoked: bool = Field(
        description="Whether the key was the token of a session, and is revoked. Other keys stay."
    )


router = make_router("tokens")
_body = JSONBody(PostSignIn, max_bytes=8192)


@router.post("/sign-in-links", summary="Make a sign-in link", status_code=201, **answers(SignInLink, 404))
async def post_sign_in_link(request: Request, caller: AdminOrUser) -> JSON:
    """Make a link that signs a browser in as the caller: once, within ten minutes.

    The token of such a session can't make one. The session ends after a day, or with the key that made the link.
    """
    service = issuing_service(request)
    clock = service.runtime.clock
    async with audited(request, caller, Act.MAKE_LINK):
        refuse_session(caller, "mail ui")
        if caller.is_local:
            link = await tokens.issue_operator_link(service.documents, clock)
        else:
            bearer = find_bearer(request.headers)
            link = await tokens.issue_link(service.documents, caller, clock, bearer=bearer)
    answer = {"code": link.code, "expires": tokens.expiry_of(link)}
    return JSON(answer, status_code=201, headers=NO_STORE)


async def _admit(request: Request) -> None:
    """Count a request of a stranger, by its address. Raises RateLimited."""
    service_of(request).rates.admit_stranger(address_of(request))


@router.get("/sign-in", summary="Ask how to sign in", **answers(SignInWays, 429))
async def get_sign_in(request: Request, _admitted: Annotated[None, Depends(_admit)]) -> JSON:
    """Return where people sign in to the page, besides links and tokens. Needs no key."""
    service = service_of(request)
    identity = service.identity
    if identity is None or not identity.settings.client_id or not service.issues_tokens:
        return JSON({"provider": None})
    metadata = await identity.provider.metadata()
    settings = identity.settings
    return JSON(
        {
            "provider": {
                "authorization_endpoint": metadata.authorization_endpoint,
                "client_id": settings.client_id,
                "scope": settings.scope,
            }
        }
    )


@router.post("/sign-in", summary="Sign in with a link", **answers(SignedIn, 401, 403, 404, 429))
async def post_sign_in(
    request: Request, _admitted: Annotated[None, Depends(_admit)], body: Annotated[PostSignIn, Depends(_body)]
) -> JSON:
    """Exchange a code, which works once, for a token of its caller that expires. Needs no key.

    With `verifier`, the code is one of the identity provider; otherwise, it is that of a sign-in link.
    """
    service = issuing_service(request)
    clock, admin = service.runtime.clock, None
    if body.verifier is None:
        session, admin = await tokens.sign_in(service.documents, body.code, clock)
    elif service.identity is None:
        raise BadRequest("this server has no identity provider: leave out verifier, or set [server.auth.jwt]")
    else:
        caller = await service.identity.sign_in(body.code, body.verifier, body.redirect_uri)
        session = await tokens.issue_session(service.documents, caller, clock)
    for token in (each.stored for each in (session, admin) if each is not None):
        async with audited(request, Caller(token.role, token.id), Act.SIGN_IN, tokens.number_of(token)):
            pass  # its token is of no use unless it is sent
    stored = session.stored
    return JSON(
        {
            "token": session.text,
            "role": stored.role,
            "id": stored.id,
            "expires": tokens.expiry_of(stored),
            "admin_token": None if admin is None else admin.text,
        },
        headers=NO_STORE,
    )


@router.post("/sign-out", summary="End a session", response_model=SignedOut)
async def post_sign_out(request: Request, caller: AdminOrUser) -> JSON:
    """Revoke the token of this request if a sign-in link was exchanged for it."""
    service = service_of(request)
    revoked = False
    if service.issues_tokens and caller.is_session:
        async with audited(request, caller, Act.SIGN_OUT):
            revoked = await tokens.sign_out(service.documents, find_bearer(request.headers))
        service.revoke()
    return JSON({"status": "signed out", "revoked": revoked})
