"""The external authentication service (SPEC, section 10): exchanges keys for tokens, and tokens for callers."""

from typing import Annotated, get_args

import httpx2
from pydantic import BaseModel, StringConstraints, ValidationError

from mail.auth.keys import Caller
from mail.core.protocol.values import value
from mail.core.task.documents import CallerRole
from mail.errors import AuthServiceUnavailable, BadRequest, Forbidden, Unauthenticated

TIMEOUT_SECONDS = 10.0
REFUSALS = frozenset({401, 403})

HeaderText = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+$")]


class Login(BaseModel):
    """The service's response to a key."""

    token: HeaderText


class TokenInfo(BaseModel):
    """The service's response to a token; `api_key` is the key it was issued for."""

    role: str
    id: str | int
    api_key: str | None = None


@value
class AuthService:
    """An `Authenticator` over the external service. The HTTP client is shared; its owner closes it."""

    _client: httpx2.AsyncClient
    _auth_endpoint: str
    _token_info_endpoint: str

    async def authenticate(self, bearer: str) -> Caller:
        return read_caller(await self.token_info(await self.login(bearer)))

    async def login(self, api_key: str) -> str:
        """Exchange a key for a token. Raises Unauthenticated, AuthServiceUnavailable."""
        return (await self._request(Login, "POST", self._auth_endpoint, api_key)).token

    async def token_info(self, token: str) -> TokenInfo:
        """Return the owner of a token. Raises Unauthenticated, AuthServiceUnavailable."""
        return await self._request(TokenInfo, "GET", self._token_info_endpoint, token)

    async def _request[Body: BaseModel](self, body: type[Body], method: str, url: str, bearer: str) -> Body:
        headers = {"Authorization": f"Bearer {bearer}"}
        try:
            response = await self._client.request(method, url, headers=headers, timeout=TIMEOUT_SECONDS)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise AuthServiceUnavailable from error
        if response.status_code in REFUSALS:
            raise Unauthenticated("the authentication service does not accept this API key")
        if not response.is_success:
            raise AuthServiceUnavailable
        try:
            return body.model_validate_json(response.content)
        except ValidationError as error:
            raise AuthServiceUnavailable(
                "the authentication service sent an invalid response; tell this server's operator"
            ) from error


def read_caller(info: TokenInfo) -> Caller:
    """Return the caller of a token.

    Raises Forbidden for an unknown role, AuthServiceUnavailable for an invalid id.
    """
    role = next((role for role in get_args(CallerRole) if role == info.role), None)
    if role is None:
        raise Forbidden(f"the role {info.role[:64]!r} may not use this server")
    try:
        return Caller(role, str(info.id))
    except BadRequest as error:
        raise AuthServiceUnavailable(
            f"the authentication service named an invalid caller: {error}"
        ) from error
