"""Tokens of an identity provider, as functions know it: each in a process of its own, with its own role and layers."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from function_stage import ALICE, Stage
from support.services.identity_provider import AUDIENCE, CLIENT, IdentityProvider, identity_provider

from mail.auth.caller_tokens import Seal

VERIFIER = "v" * 43
CHALLENGE = "7w_YNF9DSfIdPf_pRjSq646_kPr-2-o9NAl16JGghdM"
REDIRECT = "https://api.example.com/ui"


@pytest.fixture
def issuer() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


def variables(issuer: IdentityProvider) -> dict[str, str]:
    """What the template sets."""
    return {
        "MAIL_JWT_ISSUER": issuer.issuer,
        "MAIL_JWT_AUDIENCE": AUDIENCE,
        "MAIL_JWT_CLIENT_ID": CLIENT,
    }


async def grow_old(stage: Stage, seconds: float) -> None:
    """Let the keys be stored for so long: those that were read just now are not read again."""
    known = json.loads(await stage.table.records.issuer_keys() or "")
    await stage.table.records.set_issuer_keys(json.dumps({**known, "read": known["read"] - seconds}))


@pytest.mark.soak
def test_functions_share_the_keys_that_one_of_them_reads(stage: Stage, issuer: IdentityProvider) -> None:
    def whoami(token: str) -> tuple[int, Any]:
        """What a function answers that has just been started."""
        event = stage.request("whoami", authorization=f"Bearer {token}")
        with stage.start("whoami", variables(issuer)) as function:
            answer = function.invoke(event)
        return answer["statusCode"], json.loads(answer["body"])

    token = issuer.token(sub="ann")
    assert whoami(token) == (200, {"role": "user", "id": "ann"})
    assert issuer.requests.count("/jwks") == 1  # nothing is stored yet
    with stage.start("peer_health", variables(issuer)) as function:
        function.invoke(stage.event("peer_health"))
    assert issuer.requests.count("/jwks") == 2
    issuer.is_down = True
    assert whoami(token)[0] == 200
    assert issuer.requests.count("/jwks") == 2
    issuer.is_down = False
    issuer.rotate()
    asyncio.run(grow_old(stage, 60))
    assert whoami(issuer.token(sub="eve")) == (200, {"role": "user", "id": "eve"})
    assert issuer.requests.count("/jwks") == 3


def test_a_message_leaves_its_token_for_turns(stage: Stage, issuer: IdentityProvider) -> None:
    private = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = b64encode(private.public_key().public_bytes_raw()).decode()
    token = issuer.token(sub="alice")
    event = stage.request("message", authorization=f"Bearer {token}", prefer="respond-async")
    with stage.start("message", {**variables(issuer), "MAIL_SEALING_PUBLIC_KEY": public}) as function:
        assert function.invoke(event)["statusCode"] == 202
    found = asyncio.run(stage.table.records.caller_token(ALICE))
    assert found is not None
    assert Seal(private.public_key(), private).open(found[0], ALICE) == token


def test_the_page_signs_in(stage: Stage, issuer: IdentityProvider) -> None:
    with stage.start("whoami", variables(issuer)) as function:

        def ask(method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
            event = stage.request("whoami", method=method, path="/sign-in", body=body, authorization="")
            answer = function.invoke(event)
            assert answer["statusCode"] == 200, answer
            found: dict[str, Any] = json.loads(answer["body"])
            return found

        assert ask("GET")["provider"]["authorization_endpoint"] == f"{issuer.issuer}/authorize"
        query = {"redirect_uri": REDIRECT, "client_id": CLIENT, "code_challenge": CHALLENGE, "state": "s"}
        code = issuer.agree(query).partition("code=")[2].partition("&")[0]
        session = ask("POST", {"code": code, "verifier": VERIFIER, "redirect_uri": REDIRECT})
        answer = function.invoke(stage.request("whoami", authorization=f"Bearer {session['token']}"))
    assert (session["id"], json.loads(answer["body"])["id"]) == ("ann", "ann")
