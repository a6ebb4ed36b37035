"""`MAILClient`, an asynchronous HTTP client of MAIL servers.

async with MAILClient("http://localhost:8000", api_key="…") as client:
    answer = await client.post_message("weather in Tokyo")
"""

from mail.client.client import MAILClient
from mail.client.errors import (
    BadAnswer,
    ConnectionLost,
    InvalidConnection,
    InvalidRequest,
    MAILClientError,
    NotJSON,
    QuestionOpen,
    RequestTimedOut,
    ServerUnreachable,
    SeveralCalls,
    TooManyRequests,
)
from mail.client.stream import EventStream
from mail.config import ClientConfig

__all__ = [
    "BadAnswer",
    "ClientConfig",
    "ConnectionLost",
    "EventStream",
    "InvalidConnection",
    "InvalidRequest",
    "MAILClient",
    "MAILClientError",
    "NotJSON",
    "QuestionOpen",
    "RequestTimedOut",
    "ServerUnreachable",
    "SeveralCalls",
    "TooManyRequests",
]
