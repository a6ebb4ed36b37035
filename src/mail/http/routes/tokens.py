"""API tokens that the server has issued: list, create and revoke them."""

from contextlib import suppress
from typing import Annotated, Literal

from fastapi import Depends, Path, Request
from pydantic import Field

from mail.auth import tokens
from mail.auth.keys import Caller, digest, find_bearer
from mail.core.task.audit import Act
from mail.core.task.documents import CallerRole
from mail.errors import NotFound, TokensElsewhere, Unauthenticated
from mail.http.access import Admin
from mail.http.audit import audited, refuse_session
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.service import Service, service_of

LONGEST_LIFE = 3650 * 24 * 3600
"""Seconds after which a token that expires does so at the latest."""

NO_STORE = {"Cache-Control": "no-store"}
"""The header of answers with a secret."""


class Token(Answered):
    """A token, without its text."""

    number: str = Field(description="The beginning of its SHA-256 digest, which identifies it.")
    role: CallerRole
    id: str = Field(description="The id of its bearer.")
    created: str = Field(description="Time of its creation, in ISO 8601.")
    expires: str | None = Field(description="When it expires, in ISO 8601; null for never.")
    session: bool = Field(description="Whether a browser got it for a sign-in link.")
    current: bool = Field(description="Whether this request has it.")


class Tokens(Answered):
    """The tokens that can be used."""

    tokens: list[Token]


class PostTokens(Given):
    """A token to create."""

    role: CallerRole = Field(description="The bearer's role: `agent` for another swarm.")
    id: str = Field(description="The bearer's id: 1 to 256 characters, without `:` and `@`.")
    expires_in: int | None = Field(
        default=None,
        ge=1,
        le=LONGEST_LIFE,
        strict=True,
        description="Seconds after which it expires; the default is never.",
    )


class NewToken(Token):
    """A new token."""

    token: str = Field(description="Its text, which can't be shown again.")


class TokenRevoked(Answered):
    """The token is deleted; other processes of the server may accept it for another five seconds."""

    status: Literal["revoked"]
    number: str


router = make_router("tokens")
_body = JSONBody(PostTokens)


@router.get("/tokens", summary="List tokens", **answers(Tokens, 404))
async def get_tokens(request: Request, caller: Admin) -> JSON:
    """Return the tokens of all callers that can be used, the oldest first. Only for admins."""
    service = issuing_service(request)
    mine = digest(find_bearer(request.headers))
    found = await tokens.valid_tokens(service.documents, service.runtime.clock)
    return JSON({"tokens": [{**tokens.describe(token), "current": token.digest == mine} for token in found]})


@router.post("/tokens", summary="Create a token", status_code=201, **answers(NewToken, 404))
async def post_token(request: Request, caller: Admin, body: Annotated[PostTokens, Depends(_body)]) -> JSON:
    """Create a token for any caller. The answer is the only place where its text is shown. Only for admins.

    A browser's session can't create one.
    """
    service = issuing_service(request)
    clock = service.runtime.clock
    async with audited(request, caller, Act.CREATE_TOKEN, f"{body.role}:{body.id}") as entry:
        refuse_session(caller, f"mail token create --role {body.role} --id ID")
        if not caller.is_local:
            await tokens.check_token(service.documents, find_bearer(request.headers), clock)
        expires = None if body.expires_in is None else clock.now().timestamp() + body.expires_in
        bearer = Caller(body.role, body.id)
        issued = await tokens.issue(service.documents, bearer, clock, expires=expires)
        entry.on += f" {tokens.number_of(issued.stored)}"
    if service.mail_host is not None:
        # An agent has no account, nor has an id that can't be in an address; and on AWS, the host may have no name yet.
        with suppress(Unauthenticated, NotFound):
            await (await service.mail_host(request)).accounts.ensure(bearer)
    shown = {**tokens.describe(issued.stored), "current": False, "token": issued.text}
    return JSON(shown, status_code=201, headers=NO_STORE)


@router.delete("/tokens/{number}", summary="Revoke a token", **answers(TokenRevoked, 404))
async def delete_token(
    request: Request, caller: Admin, number: Annotated[str, Path(description="The token's number.")]
) -> JSON:
    """Revoke a token, and all sessions that began with a sign-in link made with it. Only for admins.

    It is refused immediately, and by other processes of the server within five seconds.
    """
    service = issuing_service(request)
    async with audited(request, caller, Act.REVOKE_TOKEN, number) as entry:
        token = await tokens.revoke_token(service.documents, number)
        entry.on = f"{token.role}:{token.id} {number}"
    service.revoke()
    return JSON({"status": "revoked", "number": number})


def issuing_service(request: Request) -> Service:
    """Return the service of a server that issues its own tokens. Raises TokensElsewhere for any other."""
    service = service_of(request)
    if not service.issues_tokens:
        raise TokensElsewhere
    return service
