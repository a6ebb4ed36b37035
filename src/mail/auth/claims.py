"""What the claims of an identity provider's token mean here: its caller, and that it is for this server."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from mail.auth.keys import Caller
from mail.core.protocol.values import Value
from mail.core.task.documents import CallerRole
from mail.errors import BadRequest, Forbidden, Unauthenticated

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def read_issuer(text: str) -> str:
    """Return the URL of an issuer; it may be empty. Raises ValueError for http, except on this machine."""
    url = urlsplit(text)
    is_safe = url.scheme == "https" and url.hostname
    if text and not is_safe and not (url.scheme == "http" and url.hostname in _THIS_MACHINE):
        raise ValueError(f"{text!r} must be an https URL")
    return text


def metadata_url(issuer: str) -> str:
    """Return where a provider publishes its metadata (OpenID Connect Discovery 1.0, section 4)."""
    return issuer.rstrip("/") + "/.well-known/openid-configuration"


def read_claims(token: str) -> dict[str, Any]:
    """Return the claims of a token, which are not verified; none if it is no JSON Web Token."""
    import jwt

    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        return {}
    return claims


class JWTSettings(Value):
    """`[server.auth.jwt]`: the identity provider whose tokens name callers, and which claims do.

    Attributes:
        issuer: the `iss` of its tokens, the URL below which it publishes its metadata; empty for no provider.
        audience: for whom its tokens must be: this server's name there, or several.
        audience_claim: the claim with that name; `client_id` in the access tokens of Amazon Cognito.
        id_claim: the claim with a caller's id. Choose one that people can't change themselves.
        role_claim: the claim with a caller's roles or groups, by its name or its path, such as `realm_access.roles`. If
            it is empty, everybody with a token is a user.
        admins, agents: the roles there that make an admin here, or another swarm.
        users: those that make a user; if it is empty, all others are users.
        client_id: this server's page, as a client of the provider; if it is empty, the page doesn't sign in there.
        scope: what the page asks for.
        leeway: seconds by which the clocks of the provider and of this server may differ.
    """

    issuer: Annotated[str, AfterValidator(read_issuer)] = Field(default="", strict=True)
    audience: str | tuple[str, ...] = ""
    audience_claim: str = Field(default="aud", strict=True, min_length=1)
    id_claim: str = Field(default="sub", strict=True, min_length=1)
    role_claim: str = Field(default="", strict=True)
    admins: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    client_id: str = Field(default="", strict=True)
    scope: str = Field(default="openid", strict=True, min_length=1)
    leeway: float = Field(default=30.0, ge=0, le=600)

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences."""
        return (self.audience,) if isinstance(self.audience, str) else self.audience

    def problem(self) -> str:
        """Return what is missing to trust a token; empty if nothing is."""
        if not self.issuer:
            return "set issuer, too" if self != JWTSettings() else ""
        if not any(self.audiences):
            return "set audience: without it, tokens for other services would be accepted"
        if (self.admins or self.agents or self.users) and not self.role_claim:
            return "set role_claim, which has the values of admins, agents and users"
        return ""

    def check_audience(self, claims: Mapping[str, Any]) -> None:
        """Raise Unauthenticated for a token that is for somebody else."""
        given = claims.get(self.audience_claim)
        if not _words(given) & set(self.audiences):
            raise Unauthenticated(
                f"the token's {self.audience_claim} is {str(given)[:200]!r}: get a token for {self.audiences[0]!r}"
            )

    def caller_of(self, claims: Mapping[str, Any]) -> Caller:
        """Return the caller whom verified claims describe. Raises Forbidden if they give no access."""
        given = _claim(claims, self.id_claim)
        try:
            return Caller(self._role(claims), given if isinstance(given, str) else "")
        except BadRequest as error:
            raise Forbidden(
                f"the token's {self.id_claim} names no caller: {error.detail}. This server's operator may choose "
                "another claim as id_claim in [server.auth.jwt]"
            ) from None

    def _role(self, claims: Mapping[str, Any]) -> CallerRole:
        """Return the role with the most rights that the claims give."""
        words = _words(_claim(claims, self.role_claim))
        known: Sequence[tuple[CallerRole, Sequence[str]]] = (("admin", self.admins), ("agent", self.agents))
        for role, accepted in known:
            if words.intersection(accepted):
                return role
        if self.users and not words.intersection(self.users):
            raise Forbidden(f"the token's {self.role_claim} has no role with access to this server")
        return "user"


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name or, if there is none, by its path; None if there is neither."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _words(given: Any) -> set[str]:
    """Return the values of a claim: those of a list, or of a text with spaces between them."""
    words = given.split() if isinstance(given, str) else given if isinstance(given, list) else ()
    return {word for word in words if isinstance(word, str)}
