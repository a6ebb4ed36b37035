"""Texts too large for the table, and files, as objects in an S3 bucket. Objects have unique names and never change."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from mail.adapters.aws.client import AwsClient, Refused
from mail.errors import StoreUnavailable, TextGone

logger = logging.getLogger(__name__)

TEXT_TYPE = "application/json"


class Blobs:
    """A bucket of texts and files."""

    def __init__(self, client: AwsClient, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    async def put(self, name: str, text: str) -> None:
        """Store a text. Raises StoreUnavailable."""
        await self.put_bytes(name, text.encode(), TEXT_TYPE)

    async def get(self, name: str) -> str:
        """Return a text. Raises TextGone, StoreUnavailable."""
        return (await self.get_bytes(name)).decode()

    async def put_bytes(self, name: str, data: bytes, media_type: str) -> None:
        """Store bytes of a media type. Raises StoreUnavailable."""
        await self._client.call(
            "put_object", Bucket=self._bucket, Key=name, Body=data, ContentType=media_type
        )

    async def get_bytes(self, name: str) -> bytes:
        """Return the bytes of an object. Raises TextGone, StoreUnavailable."""
        answer = await self._of_object("get_object", Bucket=self._bucket, Key=name)
        body: bytes = answer["Body"]
        return body

    async def copy(self, name: str, new_name: str) -> None:
        """Copy an object. Raises TextGone, StoreUnavailable."""
        source = {"Bucket": self._bucket, "Key": name}
        await self._of_object("copy_object", Bucket=self._bucket, Key=new_name, CopySource=source)

    async def renew(self, name: str, media_type: str = TEXT_TYPE) -> None:
        """Copy an object onto itself, as the bucket deletes objects by age. Raises TextGone, StoreUnavailable."""
        source = {"Bucket": self._bucket, "Key": name}
        change = {
            "MetadataDirective": "REPLACE",
            "ContentType": media_type,
        }  # S3 refuses a copy that changes nothing
        await self._of_object("copy_object", Bucket=self._bucket, Key=name, CopySource=source, **change)

    async def _of_object(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            return await self._client.call(operation, expect=("NoSuchKey",), **arguments)
        except Refused as refusal:
            raise TextGone from refusal

    async def discard(self, names: Iterable[str]) -> None:
        """Delete unused objects; those that can't be deleted are left to the bucket's lifecycle."""
        deletions = (self._client.call("delete_object", Bucket=self._bucket, Key=name) for name in names)
        for failure in await asyncio.gather(*deletions, return_exceptions=True):
            if isinstance(failure, StoreUnavailable):
                logger.warning("an unused object is left in the bucket")
            elif isinstance(failure, BaseException):
                raise failure
