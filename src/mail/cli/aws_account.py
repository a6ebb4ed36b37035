"""Clients of the AWS account of the environment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mail.cli.smoke import Failed
from mail.errors import StoreUnavailable

if TYPE_CHECKING:
    from mail.adapters.aws.client import AwsClient


@asynccontextmanager
async def aws(service: str) -> "AsyncIterator[AwsClient]":
    """Make a client of an AWS service. Raises Failed with what AWS says."""
    from mail.adapters.aws.client import Aws

    client = Aws().client(service)
    try:
        yield client
    except StoreUnavailable as error:
        raise Failed(f"{service}: {error.__cause__ or error}") from error
    finally:
        client.close()
