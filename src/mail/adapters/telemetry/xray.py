"""Requests to X-Ray's own receiver of OTLP, which wants them signed. Needs the extras `otel` and `aws`."""

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mail.errors import ConfigurationError

if TYPE_CHECKING:  # importing it changes the filters of warnings
    from requests import PreparedRequest, Session

HOST = re.compile(r"xray\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?")
VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def region_of_receiver() -> str:
    """Return the region of X-Ray if the standard variables name it as the receiver of traces; "" otherwise."""
    endpoint = next(filter(None, map(os.environ.get, VARIABLES)), "")
    found = HOST.fullmatch(urlsplit(endpoint).hostname or "")
    return found[1] if found else ""


def signing_session(region: str) -> "Session":
    """Return a session that signs each request with the AWS credentials of the environment.

    Raises ConfigurationError if there are none.
    """
    from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
    from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
    from botocore.session import get_session  # type: ignore[import-untyped]
    from requests import Session

    credentials = get_session().get_credentials()
    if credentials is None:
        raise ConfigurationError(
            "X-Ray takes no traces without AWS credentials: set them, or another receiver"
        )

    def sign(request: "PreparedRequest") -> "PreparedRequest":
        signed = AWSRequest(request.method, request.url, {}, request.body)
        SigV4Auth(credentials.get_frozen_credentials(), "xray", region).add_auth(signed)
        request.headers.update(signed.headers.items())
        return request

    session = Session()
    session.auth = sign
    return session
