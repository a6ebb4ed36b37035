"""Signed webhooks, for those who receive them: `verify` says whether a request is the server's, and of now.

They are signed as the Standard Webhooks specification (https://www.standardwebhooks.com) says, so that its libraries can
check them as well.
"""

import base64
import binascii
import hmac
import json
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from mail.errors import BadRequest, InvalidSignature

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
"""The headers: by what an event is known again, when it was sent in seconds since the epoch, and what proves both."""

SECRET_PREFIX = "whsec_"  # noqa: S105
TOLERANCE = 300.0
"""Seconds by which a request may be older, or newer, than the receiver's clock says."""

_VERSION = "v1"


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> dict[str, Any]:
    """Return the event in the body of a request that was signed with the secret.

    Args:
        headers: those of the request, in upper or lower case.
        body: as it came, not as it was parsed and written again.
        now: seconds since the epoch, instead of the clock's.

    Raises InvalidSignature for a request that was not signed so, or `tolerance` seconds ago. Whoever keeps the
    `webhook-id` of what it has dealt with is also safe from repeats.
    """
    given = {name.lower(): value for name, value in headers.items()}
    content = body.encode() if isinstance(body, str) else body
    try:
        event_id, timestamp, signatures = given[ID], int(given[TIMESTAMP]), given[SIGNATURE]
    except (KeyError, ValueError) as error:
        raise InvalidSignature(f"the request needs the headers {ID}, {TIMESTAMP} and {SIGNATURE}") from error
    right = sign(secret_key(secret), event_id, timestamp, content)
    if not any(hmac.compare_digest(right.encode(), each.encode()) for each in signatures.split()):
        raise InvalidSignature
    if abs((time.time() if now is None else now) - timestamp) > tolerance:
        raise InvalidSignature("the request was not sent just now; is the clock right?")
    event: dict[str, Any] = json.loads(content)
    return event


def sign(key: bytes, event_id: str, timestamp: int, body: bytes) -> str:
    """What stands in the header `webhook-signature`."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, signed, sha256).digest()
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def secret_key(secret: str) -> bytes:
    """Return the bytes of a secret: `whsec_` and base64, or any other text. Raises BadRequest where it is neither."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"what follows {SECRET_PREFIX} in a secret must be base64") from error
