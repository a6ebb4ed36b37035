"""Signs requests to Lambda function URLs with `AuthType: AWS_IAM` (AWS Signature Version 4).

AWS checks the signature; the server behind it checks the token (`mail.auth`).
"""

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from mail.core.protocol.error_text import missing_package
from mail.errors import PeerRefused, PeerUnavailable

SERVICE = "lambda"

_LAMBDA_HOST = re.compile(r"\.lambda-url\.([a-z0-9-]+)\.on\.aws$")


class AwsSigner:
    """Signs requests with the credentials that botocore finds in the environment; `session` is a botocore session."""

    def __init__(self, session: Any = None) -> None:
        self._session = session
        self._credentials: Any = None

    async def sign(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, region: str
    ) -> dict[str, str]:
        """Return the headers with those of the signature, which covers all headers and the body.

        Raises PeerRefused without credentials, PeerUnavailable if they can't be fetched now.
        """
        return await asyncio.to_thread(self._sign, method, url, headers, body, region)

    def _sign(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, region: str
    ) -> dict[str, str]:
        try:
            from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
            from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
            from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
        except ImportError as error:
            raise PeerRefused(f"calls with auth 'aws_iam' need {missing_package(error)}") from error
        request = AWSRequest(method, url, data=body, headers=dict(headers))
        try:
            SigV4Auth(self._frozen(), SERVICE, region).add_auth(request)
        except BotoCoreError as error:
            raise PeerUnavailable(f"the AWS credentials can't be fetched: {error}") from error
        return dict(request.headers.items())

    def _frozen(self) -> Any:
        """Return the current credentials; temporary ones are renewed before they expire."""
        if self._credentials is None:
            if self._session is None:
                import botocore.session  # type: ignore[import-untyped]

                self._session = botocore.session.Session()
            self._credentials = self._session.get_credentials()
        if self._credentials is None:
            raise PeerRefused("calls with auth 'aws_iam' need AWS credentials, and none were found")
        return self._credentials.get_frozen_credentials()


def region_for(url: str, metadata: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the region to sign for: from the URL, else `region` of the metadata, else this server's."""
    given = metadata.get("region")
    if isinstance(given, str) and given:
        return lambda_region(url) or given
    return lambda_region(url) or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")


def lambda_region(url: str) -> str | None:
    """Return the region of a Lambda function URL; None for any other URL."""
    found = _LAMBDA_HOST.search(urlsplit(url).hostname or "")
    return found[1] if found else None
