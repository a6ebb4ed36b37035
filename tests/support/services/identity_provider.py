"""An identity provider on loopback: OpenID Connect's metadata and keys, and the code flow, which asks nobody."""

import json
import secrets
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

from support.services.loopback import Handler, serve

AUDIENCE = "mail"
CLIENT = "mail-page"


@cache
def make_key(number: int) -> RSAPrivateKey:
    """A key for all providers of this process, as making one takes a while."""
    return generate_private_key(65537, 2048)


class IdentityProvider:
    """Signs tokens, publishes its keys, and sends people back with a code.

    Attributes:
        issuer: its URL.
        person: the claims of the person who signs in at its page.
        requests: the paths that it was asked for.
        is_opaque: whether its access tokens are no JSON Web Tokens.
        is_down: whether it answers 503.
        secret: that of its client; empty for a public one.
        takes: how it takes the secret; empty if it doesn't say so, for the usual one.
    """

    def __init__(self) -> None:
        self.issuer = ""
        self.person: dict[str, Any] = {"sub": "ann", "groups": ["staff"]}
        self.requests: list[str] = []
        self.is_opaque = False
        self.is_down = False
        self.secret = ""
        self.takes = ""
        self.keys: dict[str, RSAPrivateKey] = {}
        self._codes: dict[str, dict[str, str]] = {}
        self._rotations = 0
        self.rotate()

    def rotate(self) -> None:
        """Replace the key."""
        self._rotations += 1
        self.keys = {f"key-{self._rotations}": make_key(self._rotations)}

    def token(self, *, key: RSAPrivateKey | None = None, algorithm: str = "RS256", **claims: Any) -> str:
        """A token with these claims besides the usual ones; None leaves one out."""
        ((kid, own),) = self.keys.items()
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300}
        given = {name: claim for name, claim in {**usual, **claims}.items() if claim is not None}
        return jwt.encode(given, key or own, algorithm, {"kid": kid})

    def metadata(self) -> dict[str, Any]:
        """What it says of itself."""
        names = {"jwks_uri": "jwks", "authorization_endpoint": "authorize", "token_endpoint": "token"}
        methods = {"token_endpoint_auth_methods_supported": [self.takes]} if self.takes else {}
        urls = {name: f"{self.issuer}/{path}" for name, path in names.items()}
        return {"issuer": self.issuer, **urls, **methods}

    def knows(self, login: str, form: dict[str, str]) -> bool:
        """Whether its client has shown its secret as it is taken."""
        if not self.secret:
            return True
        if self.takes == "client_secret_post":
            return not login and form.get("client_secret") == self.secret
        name, _, given = b64decode(login.removeprefix("Basic ")).decode().partition(":")
        return "client_secret" not in form and (unquote_plus(name), unquote_plus(given)) == (
            CLIENT,
            self.secret,
        )

    def key_set(self) -> dict[str, Any]:
        """Its public keys, and some that nobody here can use."""
        own = [
            {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}
            for kid, key in self.keys.items()
        ]
        return {
            "keys": [*own, {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}, {"kty": "new", "kid": "odd"}]
        }

    def agree(self, query: dict[str, str]) -> str:
        """The address to which a person is sent who has signed in."""
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: dict[str, str]) -> dict[str, str] | None:
        """The tokens for a code; None for what RFC 7636 refuses."""
        asked = self._codes.pop(form["code"], None)
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        expected = {
            "redirect_uri": form["redirect_uri"],
            "client_id": form["client_id"],
            "code_challenge": challenge,
        }
        if asked is None or any(asked[name] != text for name, text in expected.items()):
            return None
        access = secrets.token_urlsafe(16) if self.is_opaque else self.token(**self.person)
        return {"access_token": access, "id_token": self.token(**{**self.person, "aud": CLIENT})}


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Yield one that answers."""
    provider = IdentityProvider()

    class Answers(Handler):
        def respond(self) -> None:
            url = urlsplit(self.path)
            provider.requests.append(url.path)
            if provider.is_down:
                self.answer(503)
            elif url.path == "/authorize":
                query = {name: texts[0] for name, texts in parse_qs(url.query).items()}
                self.answer(302, headers={"Location": provider.agree(query)})
            elif url.path == "/token":
                form = {name: texts[0] for name, texts in parse_qs(self.body().decode()).items()}
                if not provider.knows(self.headers.get("Authorization", ""), form):
                    self._say({"error": "invalid_client"}, 401)
                    return
                answer = provider.exchange(form)
                self._say(answer or {"error": "invalid_grant"}, 400 if answer is None else 200)
            elif url.path == "/jwks":
                self._say(provider.key_set())
            else:
                self._say(provider.metadata())

        def _say(self, answer: object, status: int = 200) -> None:
            self.answer(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    with serve(Answers) as url:
        provider.issuer = url
        yield provider
