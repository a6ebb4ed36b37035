"""Texts too large for the table, and files, as objects in an S3 bucket. Objects have unique names and never change."""

import asyncio
import logging
from collections.abc import Iterable

from mail.adapters.aws.client import AwsClient
from mail.errors import StoreUnavailable

logger = logging.getLogger(__name__)


class Blobs:
    """A bucket of texts and files."""

    def __init__(self, client: AwsClient, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    async def put(self, name: str, text: str) -> None:
        """Store a text. Raises StoreUnavailable."""
        await self.put_bytes(name, text.encode(), "application/json")

    async def get(self, name: str) -> str:
        """Return a text. Raises StoreUnavailable, also if there is none."""
        return (await self.get_bytes(name)).decode()

    async def put_bytes(self, name: str, data: bytes, media_type: str) -> None:
        """Store bytes of a media type. Raises StoreUnavailable."""
        await self._client.call(
            "put_object", Bucket=self._bucket, Key=name, Body=data, ContentType=media_type
        )

    async def get_bytes(self, name: str) -> bytes:
        """Return the bytes of an object. Raises StoreUnavailable, also if there is none."""
        answer = await self._client.call("get_object", Bucket=self._bucket, Key=name)
        body: bytes = answer["Body"]
        return body

    async def copy(self, name: str, new_name: str) -> None:
        """Copy an object. Raises StoreUnavailable, also if there is none."""
        source = {"Bucket": self._bucket, "Key": name}
        await self._client.call("copy_object", Bucket=self._bucket, Key=new_name, CopySource=source)

    async def discard(self, names: Iterable[str]) -> None:
        """Delete unused objects; those that can't be deleted are left to the bucket's lifecycle."""
        deletions = (self._client.call("delete_object", Bucket=self._bucket, Key=name) for name in names)
        for failure in await asyncio.gather(*deletions, return_exceptions=True):
            if isinstance(failure, StoreUnavailable):
                logger.warning("an unused object is left in the bucket")
            elif isinstance(failure, BaseException):
                raise failure
