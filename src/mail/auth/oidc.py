"""Callers with tokens of an identity provider: JSON Web Tokens, by OpenID Connect, beside the keys of this server."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote_plus

import httpx2
import jwt
from pydantic import AfterValidator, BaseModel, ValidationError

from mail.auth.claims import JWTSettings, metadata_url, read_claims, read_issuer
from mail.auth.keys import Authenticator, Caller
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.values import value
from mail.errors import AuthServiceUnavailable, Unauthenticated

if TYPE_CHECKING:
    from mail.auth.caller_tokens import CallerTokens

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by private keys; those by a shared secret could be forged with what a provider publishes."""

TIMEOUT_SECONDS = 10.0

FRESH_SECONDS = 3600.0
"""Seconds after which a provider's keys are read again."""

STORED_SECONDS = 900.0
"""Seconds after which stored keys are replaced, well before those who use them would read them themselves."""

PAUSE_SECONDS = 10.0
"""Seconds between two requests for keys, however many tokens name unknown ones."""

BASIC = "client_secret_basic"
"""A secret in the header, as all providers should take it (RFC 6749, section 2.3.1), rather than in the form."""

Endpoint = Annotated[str, AfterValidator(read_issuer)]


class Metadata(BaseModel):
    """What a provider says of itself (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    jwks_uri: Endpoint
    authorization_endpoint: Endpoint = ""
    token_endpoint: Endpoint = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = (BASIC,)


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


class Known(BaseModel):
    """What is stored of a provider, and when it was read, in seconds since the epoch."""

    metadata: Metadata
    keys: Keys
    read: float


class Tokens(BaseModel):
    """What a provider gives for the code of a person who has signed in there."""

    access_token: str = ""
    id_token: str = ""


class Provider:
    """An identity provider: its metadata, and its keys, which it replaces from time to time.

    Both are read when they are first needed. Keys are read again after an hour, and when a token names one that is not
    known; while the provider can't be reached, the known ones stay valid.

    Args:
        stored: where `keep` stores them for processes that live shorter than that; None if they don't.
    """

    def __init__(
        self, issuer: str, client: httpx2.AsyncClient, stored: ServerDocuments | None = None
    ) -> None:
        self.issuer = issuer
        self._client = client
        self._stored = stored
        self._metadata: Metadata | None = None
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._recalled = False
        self._reading = asyncio.Lock()

    async def metadata(self) -> Metadata:
        """Return the provider's metadata. Raises AuthServiceUnavailable."""
        await self._recall()
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
        if self._lacks(kid):
            async with self._reading:
                await self._recall()
                if self._lacks(kid) and self._is_older(PAUSE_SECONDS):
                    await self._read_keys()
        found = self._keys.get(kid)
        if found is None:
            raise Unauthenticated("the token is signed with a key that its issuer doesn't publish")
        return found

    async def keep(self) -> None:
        """Read the provider's metadata and keys again if those that are stored are old, and store them.

        Raises AuthServiceUnavailable if none are known.
        """
        assert self._stored is not None
        self._recalled = False
        await self._recall()
        if self._is_older(STORED_SECONDS):
            self._metadata = None
            if keys := await self._read_keys():
                known = Known(metadata=await self.metadata(), keys=keys, read=time.time())
                await self._stored.set_issuer_keys(known.model_dump_json())

    async def _recall(self) -> None:
        """Take over what is stored of the provider, once."""
        if self._stored is None or self._recalled:
            return
        self._recalled = True
        record = await self._stored.issuer_keys()
        known = None if record is None else Known.model_validate_json(record)
        if known is not None and known.metadata.issuer == self.issuer:
            self._metadata, self._keys = known.metadata, known.keys.by_id()
            self._read_at = time.monotonic() - (time.time() - known.read)

    async def exchange(self, form: dict[str, str], secret: str = "") -> Tokens:
        """Return the tokens for a code (RFC 6749, section 4.1.3). Raises Unauthenticated, AuthServiceUnavailable."""
        known = await self.metadata()
        if not secret:
            return await self._ask(Tokens, "POST", known.token_endpoint, form)
        if BASIC not in known.token_endpoint_auth_methods_supported:
            return await self._ask(Tokens, "POST", known.token_endpoint, {**form, "client_secret": secret})
        login = httpx2.BasicAuth(quote_plus(form["client_id"]), quote_plus(secret))
        return await self._ask(Tokens, "POST", known.token_endpoint, form, login)

    def _lacks(self, kid: str | None) -> bool:
        return self._is_older(FRESH_SECONDS) or kid not in self._keys

    def _is_older(self, seconds: float) -> bool:
        return self._read_at is None or time.monotonic() - self._read_at > seconds

    async def _read_keys(self) -> Keys | None:
        """Read the keys, and return them. Raises AuthServiceUnavailable if that fails and none are known."""
        found = None
        try:
            found = await self._ask(Keys, "GET", (await self.metadata()).jwks_uri)
            self._keys = found.by_id()
        except AuthServiceUnavailable as error:
            if not self._keys:
                raise
            logger.warning(
                "the keys of %s can't be read, the known ones stay valid: %s", self.issuer, error.detail
            )
        self._read_at = time.monotonic()
        return found

    async def _ask[Answer: BaseModel](
        self,
        kind: type[Answer],
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        login: httpx2.BasicAuth | None = None,
    ) -> Answer:
        try:
            response = await self._client.request(method, url, data=form, auth=login, timeout=TIMEOUT_SECONDS)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise AuthServiceUnavailable("the identity provider can't be reached") from error
        if form is not None and response.status_code in (400, 401):
            logger.warning("%s refuses a sign-in: %r", self.issuer, response.text[:200])
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


@value
class JWTAuthenticator:
    """An `Authenticator` for the tokens of one provider, and over another one for all other keys.

    Attributes:
        _client_secret: this server's secret at the provider, if that wants one of its page.
        _tokens: keeps the tokens for servers to which they are passed on; None if there is none.
    """

    settings: JWTSettings
    provider: Provider
    _others: Authenticator
    _client_secret: str = field(default="", repr=False)
    _tokens: "CallerTokens | None" = None

    async def authenticate(self, bearer: str) -> Caller:
        if read_claims(bearer).get("iss") != self.settings.issuer:
            return await self._others.authenticate(bearer)
        claims = await self._verify(bearer)
        self.settings.check_audience(claims)
        caller = self.settings.caller_of(claims)
        if self._tokens is not None:
            await self._tokens.keep(caller, bearer, float(claims["exp"]))
        return caller

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
        tokens = await self.provider.exchange(form, self._client_secret)
        if read_claims(tokens.access_token):
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
