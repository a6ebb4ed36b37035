"""Signatures of webhooks: the vectors of Standard Webhooks (https://www.standardwebhooks.com), and its library both
ways.
"""

import base64
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from mail.errors import InvalidSignature
from mail.webhooks import ID, SIGNATURE, TIMESTAMP, secret_key, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVENT = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIME = 1614265330
BODY = b'{"test": 2432232314}'
PUBLISHED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
"""The vector that the libraries of Standard Webhooks share."""

OTHERS = (
    "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=",
    "v2,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=",
)
"""Signatures by other keys and of other versions, as their suites have them."""

NON_ASCII = '{"name": "Grüße 🌍"}'.encode()


def headers(**changes: str | None) -> dict[str, str]:
    given = {ID: EVENT, TIMESTAMP: str(TIME), SIGNATURE: PUBLISHED}
    changed = {f"webhook-{name}": value for name, value in changes.items()}
    return {name: value for name, value in {**given, **changed}.items() if value is not None}


def test_the_published_vector_is_signed_and_verified() -> None:
    assert sign(secret_key(SECRET), EVENT, TIME, BODY) == PUBLISHED
    assert verify(SECRET, headers(), BODY, now=TIME) == {"test": 2432232314}


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": f"{OTHERS[0]} {PUBLISHED} {OTHERS[1]}"},  # while a secret is replaced
        {"signature": f"{OTHERS[1]} {PUBLISHED}"},
    ],
)
def test_one_of_several_signatures_suffices(changes: dict[str, str]) -> None:
    assert verify(SECRET, headers(**changes), BODY, now=TIME) == {"test": 2432232314}


@pytest.mark.parametrize(
    "changes",
    [
        {"id": None},
        {"timestamp": None},
        {"signature": None},
        {"timestamp": "soon"},
        {"signature": OTHERS[0]},
        {"signature": OTHERS[0].replace("v1", "v2")},
        {"signature": PUBLISHED.replace("v1", "v2")},
        {"signature": PUBLISHED.removeprefix("v1,")},
        {"signature": ""},
        {"id": "msg_p5jXN8AQM9LWM0D4loKWxJel"},
        {"timestamp": str(TIME + 1)},
    ],
)
def test_other_requests_are_refused(changes: dict[str, str | None]) -> None:
    with pytest.raises(InvalidSignature):
        verify(SECRET, headers(**changes), BODY, now=TIME)


@pytest.mark.parametrize(("seconds", "is_valid"), [(-301, False), (-300, True), (300, True), (301, False)])
def test_the_timestamp_may_differ_by_five_minutes(seconds: int, is_valid: bool) -> None:
    if is_valid:
        verify(SECRET, headers(), BODY, now=TIME + seconds)
    else:
        with pytest.raises(InvalidSignature):
            verify(SECRET, headers(), BODY, now=TIME + seconds)


SECRETS = {
    "24 bytes": SECRET,
    "64 bytes": "whsec_" + base64.b64encode(bytes(range(64))).decode(),
    "without padding": "whsec_" + base64.b64encode(bytes(range(32))).decode().rstrip("="),
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("body", [BODY, NON_ASCII, b"[]"])
def test_its_library_verifies_ours(secret: str, body: bytes) -> None:
    now = int(time.time())  # its library has no other clock
    given = headers(timestamp=str(now), signature=sign(secret_key(secret), EVENT, now, body))
    Webhook(secret).verify(body, given)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body + b" ", given)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("body", [BODY, NON_ASCII])
def test_ours_verifies_its_library_s(secret: str, body: bytes) -> None:
    signature = Webhook(secret).sign(EVENT, datetime.fromtimestamp(TIME, UTC), body.decode())
    verify(secret, headers(signature=signature), body, now=TIME)
    with pytest.raises(InvalidSignature):
        verify(secret, headers(signature=signature), body + b" ", now=TIME)


def test_a_secret_of_any_text_is_its_bytes() -> None:
    signature = Webhook(b"plain text").sign(EVENT, datetime.fromtimestamp(TIME, UTC), BODY.decode())
    assert signature == sign(secret_key("plain text"), EVENT, TIME, BODY)
