"""Callers with tokens of an identity provider: JSON Web Tokens, by OpenID Connect, beside the keys of this server."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Annotated, Any

import httpx2
import jwt
from pydantic import AfterValidator, BaseModel, ValidationError

from mail.auth.claims import JWTSettings, metadata_url, read_issuer
from mail.auth.keys import Authenticator, Caller
from mail.errors import AuthServiceUnavailable, Unauthenticated

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by private keys; those by a shared secret could be forged with what a provider publishes."""

TIMEOUT_SECONDS = 10.0

FRESH_SECONDS = 3600.0
"""Seconds after which a provider's keys are read again."""

PAUSE_SECONDS = 10.0
"""Seconds between two requests for keys, however many tokens name unknown ones."""

Endpoint = Annotated[str, AfterValidator(read_issuer)]


class Metadata(BaseModel):
    """What a provider says of itself (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    jwks_uri: Endpoint
    authorization_endpoint: Endpoint = ""
    token_endpoint: Endpoint = ""


class Keys(BaseModel):
    """A provider's keys (RFC 7517, section 5)."""

    keys: list[dict[str, Any]]

    def by_id(self) -> dict[str | None, jwt.PyJWK]:
        """Return the keys that verify signatures, by their ids; a lone one also as that of tokens that name none."""
        found: dict[str | None, jwt.PyJWK] = {}
        for given in self.keys:
            try:
                key = jwt.PyJWK(given)
            except jwt.PyJWTError:  # of a kind that is not known
                continue
            if key.public_key_use in (None, "sig") and key.algorithm_name in ALGORITHMS:
                found[key.key_id] = key
        return {None: next(iter(found.values())), **found} if len(found) == 1 else found


class Tokens(BaseModel):
    """What a provider gives for the code of a person who has signed in there."""

    access_token: str = ""
    id_token: str = ""


class Provider:
    """An identity provider: its metadata, and its keys, which it replaces from time to time.

    Both are read when they are first needed. Keys are read again after an hour, and when a token names one that is not
    known; while the provider can't be reached, the known ones stay valid.
    """

    def __init__(self, issuer: str, client: httpx2.AsyncClient) -> None:
        self.issuer = issuer
        self._client = client
        self._metadata: Metadata | None = None
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def metadata(self) -> Metadata:
        """Return the provider's metadata. Raises AuthServiceUnavailable."""
        if self._metadata is None:
            found = await self._ask(Metadata, "GET", metadata_url(self.issuer))
            if found.issuer != self.issuer:
                raise AuthServiceUnavailable(
                    f"the identity provider calls itself {found.issuer!r}: this server's operator has to set exactly "
                    "that as issuer in [server.auth.jwt]"
                )
            self._metadata = found
        return self._metadata

    async def key(self, kid: str | None) -> jwt.PyJWK:
        """Return the key with an id; None for the only one. Raises Unauthenticated, AuthServiceUnavailable."""
        if self._is_older(FRESH_SECONDS) or kid not in self._keys:
            async with self._reading:
                if self._is_older(PAUSE_SECONDS):
                    await self._read_keys()
        found = self._keys.get(kid)
        if found is None:
            raise Unauthenticated("the token is signed with a key that its issuer doesn't publish")
        return found

    async def exchange(self, form: Mapping[str, str]) -> Tokens:
        """Return the tokens for a code (RFC 6749, section 4.1.3). Raises Unauthenticated, AuthServiceUnavailable."""
        url = (await self.metadata()).token_endpoint
        return await self._ask(Tokens, "POST", url, form)

    def _is_older(self, seconds: float) -> bool:
        return self._read_at is None or time.monotonic() - self._read_at > seconds

    async def _read_keys(self) -> None:
        """Read the keys. Raises AuthServiceUnavailable if that fails and none are known."""
        try:
            url = (await self.metadata()).jwks_uri
            self._keys = (await self._ask(Keys, "GET", url)).by_id()
        except AuthServiceUnavailable as error:
            if not self._keys:
                raise
            logger.warning(
                "the keys of %s can't be read, the known ones stay valid: %s", self.issuer, error.detail
            )
        self._read_at = time.monotonic()

    async def _ask[Answer: BaseModel](
        self, kind: type[Answer], method: str, url: str, form: Mapping[str, str] | None = None
    ) -> Answer:
        try:
            response = await self._client.request(method, url, data=form, timeout=TIMEOUT_SECONDS)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise AuthServiceUnavailable("the identity provider can't be reached") from error
        if form is not None and response.status_code in (400, 401):
            raise Unauthenticated("the identity provider doesn't accept this sign-in; sign in again")
        if not response.is_success:
            raise AuthServiceUnavailable(
                f"the identity provider answered {response.status_code} to {method} {url}"
            )
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise AuthServiceUnavailable(
                f"the identity provider sent an invalid answer to {method} {url}"
            ) from error


class JWTAuthenticator:
    """An `Authenticator` for the tokens of one provider, and over another one for all other keys."""

    def __init__(
        self, settings: JWTSettings, provider: Provider, others: Authenticator, client_secret: str = ""
    ) -> None:
        self.settings = settings
        self.provider = provider
        self._others = others
        self._client_secret = client_secret

    async def authenticate(self, bearer: str) -> Caller:
        if _read(bearer).get("iss") != self.settings.issuer:
            return await self._others.authenticate(bearer)
        claims = await self._verify(bearer)
        self.settings.check_audience(claims)
        return self.settings.caller_of(claims)

    async def sign_in(self, code: str, verifier: str, redirect_uri: str) -> Caller:
        """Return the person to whom the provider has given a code for this server's page (RFC 7636).

        Their access token counts as if a program had sent it or, if it is no JSON Web Token, their ID token.
        Raises Unauthenticated, Forbidden, AuthServiceUnavailable.
        """
        page = self.settings.client_id
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
            "client_id": page,
        }
        if self._client_secret:
            form["client_secret"] = self._client_secret
        tokens = await self.provider.exchange(form)
        if _read(tokens.access_token):
            return await self.authenticate(tokens.access_token)
        claims = await self._verify(tokens.id_token)
        self.settings.model_copy(update={"audience": page, "audience_claim": "aud"}).check_audience(claims)
        return self.settings.caller_of(claims)

    async def _verify(self, token: str) -> dict[str, Any]:
        """Return the claims of a token that the provider has signed, and that is valid now."""
        try:
            key = await self.provider.key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self.settings.issuer,
                leeway=self.settings.leeway,
                options={"require": ["exp", "iss"], "verify_aud": False},
            )
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"the token of the identity provider is not valid: {error}") from None
        return claims


def _read(token: str) -> dict[str, Any]:
    """Return the claims of a token, which are not verified; none if it is no JSON Web Token."""
    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        return {}
    return claims
