"""`MAILClient`, an asynchronous HTTP client of MAIL servers.

async with MAILClient("http://localhost:8000", api_key="…") as client:
    answer = await client.post_message("weather in Tokyo")
"""

from mail.client.client import MAILClient as MAILClient
from mail.client.errors import BadAnswer as BadAnswer
from mail.client.errors import ConnectionLost as ConnectionLost
from mail.client.errors import InvalidConnection as InvalidConnection
from mail.client.errors import InvalidRequest as InvalidRequest
from mail.client.errors import MAILClientError as MAILClientError
from mail.client.errors import NotJSON as NotJSON
from mail.client.errors import QuestionOpen as QuestionOpen
from mail.client.errors import RequestTimedOut as RequestTimedOut
from mail.client.errors import ServerUnreachable as ServerUnreachable
from mail.client.errors import SeveralCalls as SeveralCalls
from mail.client.errors import TooManyRequests as TooManyRequests
from mail.client.stream import EventStream as EventStream
from mail.config import ClientConfig as ClientConfig
