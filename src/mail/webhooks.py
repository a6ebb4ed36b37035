"""Verification of signed webhooks, for their receivers.

Signatures follow the Standard Webhooks specification (https://www.standardwebhooks.com), so its libraries can check
them too.
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
"""The headers: a stable event id, the time of sending in seconds since the epoch, and the signature."""

SECRET_PREFIX = "whsec_"  # noqa: S105
TOLERANCE = 300.0
"""Seconds by which the timestamp may differ from the receiver's clock."""

_VERSION = "v1"


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> dict[str, Any]:
    """Verify the signature of a request, and return the event in its body.

    Args:
        headers: the headers of the request, in upper or lower case.
        body: the raw body, not parsed and written again.
        now: seconds since the epoch; the default is the clock's.

    Raises InvalidSignature for a wrong signature, or a timestamp off by more than `tolerance` seconds. A receiver that
    stores the `webhook-id` of handled events is also safe from repeats.
    """
    given = {name.lower(): value for name, value in headers.items()}
    content = body.encode() if isinstance(body, str) else body
    try:
        event_id, timestamp, signatures = given[ID], int(given[TIMESTAMP]), given[SIGNATURE]
    except (KeyError, ValueError) as error:
        raise InvalidSignature(f"the request needs the headers {ID}, {TIMESTAMP} and {SIGNATURE}") from error
    expected = sign(secret_key(secret), event_id, timestamp, content)
    if not any(hmac.compare_digest(expected.encode(), each.encode()) for each in signatures.split()):
        raise InvalidSignature
    if abs((time.time() if now is None else now) - timestamp) > tolerance:
        raise InvalidSignature("the request's timestamp is too old or in the future; is the clock right?")
    event: dict[str, Any] = json.loads(content)
    return event


def sign(key: bytes, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, signed, sha256).digest()
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def secret_key(secret: str) -> bytes:
    """Return the bytes of a secret: `whsec_` and base64, or any other text. Raises BadRequest for invalid base64."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    encoded = secret.removeprefix(SECRET_PREFIX)
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"the part of a secret after {SECRET_PREFIX} must be base64") from error
