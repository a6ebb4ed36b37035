"""The external authentication service (SPEC, section 10): a key buys a token, the token tells whose key it is."""

from typing import Annotated, get_args

import httpx
from pydantic import BaseModel, StringConstraints, ValidationError

from mail.auth.keys import Caller
from mail.core.task.documents import CallerRole
from mail.errors import AuthServiceUnavailable, BadRequest, Forbidden, Unauthenticated

TIMEOUT_SECONDS = 10.0
REFUSALS = frozenset({401, 403})

HeaderText = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+$")]


class Login(BaseModel):
    """What the service answers to a key."""

    token: HeaderText


class TokenInfo(BaseModel):
    """What the service answers to a token; `api_key` is the key that bought it."""

    role: str
    id: str | int
    api_key: str | None = None


class AuthService:
    """`Authenticator` that asks the service. The client is shared; whoever made it closes it."""

    def __init__(self, client: httpx.AsyncClient, auth_endpoint: str, token_info_endpoint: str) -> None:
        self._client = client
        self._auth_endpoint = auth_endpoint
        self._token_info_endpoint = token_info_endpoint

    async def authenticate(self, bearer: str) -> Caller:
        return read_caller(await self.token_info(await self.login(bearer)))

    async def login(self, api_key: str) -> str:
        """Trade a key for a token. Raises Unauthenticated, AuthServiceUnavailable."""
        return (await self._ask(Login, "POST", self._auth_endpoint, api_key)).token

    async def token_info(self, token: str) -> TokenInfo:
        """Whose token it is. Raises Unauthenticated, AuthServiceUnavailable."""
        return await self._ask(TokenInfo, "GET", self._token_info_endpoint, token)

    async def _ask[Answer: BaseModel](
        self, answer: type[Answer], method: str, url: str, bearer: str
    ) -> Answer:
        headers = {"Authorization": f"Bearer {bearer}"}
        try:
            response = await self._client.request(method, url, headers=headers, timeout=TIMEOUT_SECONDS)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AuthServiceUnavailable from error
        if response.status_code in REFUSALS:
            raise Unauthenticated("the authentication service does not accept this API key")
        if not response.is_success:
            raise AuthServiceUnavailable
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            raise AuthServiceUnavailable(
                "the authentication service gave an answer that is none; tell this server's operator"
            ) from error


def read_caller(info: TokenInfo) -> Caller:
    """The caller that a token stands for.

    Raises Forbidden for a role that MAIL doesn't have, AuthServiceUnavailable for an id that it can't take.
    """
    role = next((role for role in get_args(CallerRole) if role == info.role), None)
    if role is None:
        raise Forbidden(f"the role {info.role[:64]!r} may not use this server")
    try:
        return Caller(role, str(info.id))
    except BadRequest as error:
        raise AuthServiceUnavailable(f"the authentication service named no usable caller: {error}") from error
