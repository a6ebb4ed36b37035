"""Texts too large for the table, as objects in an S3 bucket. Objects have unique names and never change."""

import asyncio
import logging
from collections.abc import Iterable

from mail.adapters.aws.client import AwsClient
from mail.errors import StoreUnavailable

logger = logging.getLogger(__name__)


class Blobs:
    """A bucket of texts."""

    def __init__(self, client: AwsClient, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    async def put(self, name: str, text: str) -> None:
        """Store a text. Raises StoreUnavailable."""
        await self._client.call(
            "put_object", Bucket=self._bucket, Key=name, Body=text.encode(), ContentType="application/json"
        )

    async def get(self, name: str) -> str:
        """Return a text. Raises StoreUnavailable, also if there is none."""
        answer = await self._client.call("get_object", Bucket=self._bucket, Key=name)
        body: bytes = answer["Body"]
        return body.decode()

    async def discard(self, names: Iterable[str]) -> None:
        """Delete unused texts; those that can't be deleted are left to the bucket's lifecycle."""
        deletions = (self._client.call("delete_object", Bucket=self._bucket, Key=name) for name in names)
        for failure in await asyncio.gather(*deletions, return_exceptions=True):
            if isinstance(failure, StoreUnavailable):
                logger.warning("an unused text is left in the bucket")
            elif isinstance(failure, BaseException):
                raise failure
