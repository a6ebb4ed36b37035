"""Amazon Bedrock: requests of Converse, signed and decoded by botocore, sent by the HTTP client of the event loop.

No client of botocore is made: it would block a thread for each call, and need the description of the service.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from json import JSONDecodeError
from threading import Lock
from typing import Any
from urllib.parse import quote

from mail.errors import AgentUnavailable
from mail.factories import failures
from mail.factories.answer import AnswerReader
from mail.factories.connections import ModulePort, http_client
from mail.factories.converse import ConverseReader, converse_body
from mail.factories.failures import CallFailed
from mail.factories.models import ModelReply, ModelRequest, OnPiece
from mail.factories.providers import similar_model
from mail.factories.retry import Cause, Failure

SERVICE = "bedrock"
"""The name of the service in signatures."""

KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
"""A key of Bedrock, in place of signatures."""

REGIONS = ("AWS_REGION_NAME", "AWS_REGION", "AWS_DEFAULT_REGION")
ADDRESSES = ("AWS_BEDROCK_RUNTIME_ENDPOINT", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL")

OPTIONS = frozenset(
    {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "aws_profile_name",
        "aws_region_name",
        "aws_bedrock_runtime_endpoint",
    }
)
"""The options with `aws_` that count here, by litellm's names."""

IDENTITY = ("the AWS identity of this process",)
NO_IDENTITY = ("AWS_PROFILE, or AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_ARN = re.compile(r"arn:[^:]+:bedrock:([a-z0-9-]+):")

_STATUS = {
    "throttlingException": 429,
    "validationException": 400,
    "serviceUnavailableException": 503,
}
"""Of the exceptions in streams; the others are the model's or the service's own."""


class Refused(Exception):
    """An error that Bedrock answers with."""

    def __init__(self, status: int, code: str, text: str, headers: Mapping[str, str], place: str) -> None:
        super().__init__(f"{code}: {text}")
        self.status = status
        self.code = code
        self.text = text
        self.headers = headers
        self.place = place


class NoIdentity(Exception):
    """There are no credentials."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a call: the model's id or ARN, the region, and the address of the service."""

    model: str
    region: str
    address: str


class Converse(ModulePort):
    """The port of Bedrock."""

    modules = (
        "botocore.auth",
        "botocore.awsrequest",
        "botocore.credentials",
        "botocore.eventstream",
        "botocore.session",
    )
    agents = "agents with a model of Bedrock"

    def __init__(self) -> None:
        self._lock = Lock()
        self._identities: dict[str | None, Any] = {}

    async def call(
        self, request: ModelRequest, seconds: float | None, on_piece: OnPiece, answer: AnswerReader
    ) -> ModelReply:
        """Call the model, for at most `seconds`."""
        if refused := _refuse_options(request.options):
            raise AgentUnavailable(refused[0])
        to = _destination(request)
        streams = request.streams or request.traits.claude  # whole, a call that was cut would seem complete
        action = "converse-stream" if streams else "converse"
        url = f"{to.address}/model/{quote(to.model, safe='')}/{action}"
        body = json.dumps(converse_body(request)).encode()
        headers = await self._headers(request, to.region, url, body)
        client = await http_client()
        reader = ConverseReader(on_piece, answer)
        async with client.stream("POST", url, content=body, headers=headers, timeout=seconds) as response:
            if response.status_code != 200:
                raise _refused(response, await response.aread())
            if streams:
                async with aclosing(_events(response)) as events:
                    async for kind, data in events:
                        reader.take(kind, data)
            else:
                reader.take_whole(json.loads(await response.aread()))
        return replace(reader.reply(), headers=failures.limits_of(response.headers))

    def classify(self, error: Exception, request: ModelRequest) -> Failure | None:
        """Return the failure that an error stands for; None for a bug in this program."""
        failure = failures.of_reply(error, request) or failures.of_connection(error)
        match error:
            case NoIdentity():
                failure = Failure(Cause.NO_KEY, variables=NO_IDENTITY)
            case Refused(status=424):  # the model failed, not the request
                failure = Failure(Cause.OUTAGE, 424, place=error.place)
            case Refused():
                failure = failures.of_status(
                    request, error.status, codes=[error.code], headers=error.headers, text=error.text
                )
                if failure.cause in (Cause.ACCESS, Cause.FORBIDDEN) and not request.has_own_key:
                    failure = replace(
                        failure, variables=(KEY_VARIABLE,) if os.environ.get(KEY_VARIABLE) else IDENTITY
                    )
                failure = replace(failure, place=error.place)
        return failure and failures.placed(failure, error)

    def find_missing_key(self, llm: str) -> Failure | None:
        """Return None: there are many ways to log in besides variables."""
        return None

    def find_problems(self, llm: str, options: Mapping[str, Any], *, has_key: bool) -> list[str]:
        """Return why a call would fail, one line each with the remedy. Imports botocore."""
        try:
            self.preload()
        except AgentUnavailable as error:
            return [error.detail]
        problems = _refuse_options(options)
        try:
            if not has_key:
                _region(llm, options)
        except AgentUnavailable as error:
            problems.append(error.detail)
        if similar := similar_model(llm, is_sure=True):
            problems.append(f"the table of models has no {llm!r}. Did you mean {similar!r}?")
        return problems

    # ------------------------------------------------------------------------------------------- signatures

    async def _headers(self, request: ModelRequest, region: str, url: str, body: bytes) -> dict[str, str]:
        """Return the headers of a request, with a key or a signature. Raises NoIdentity."""
        headers = {"content-type": "application/json", **(request.options.get("extra_headers") or {})}
        if key := request.options.get("api_key") or os.environ.get(KEY_VARIABLE):
            return {**headers, "authorization": f"Bearer {key}"}
        from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
        from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]

        signed = AWSRequest("POST", url, data=body, headers=headers)
        SigV4Auth(await self._frozen(request.options), SERVICE, region).add_auth(signed)
        return dict(signed.headers.items())

    async def _frozen(self, options: Mapping[str, Any]) -> Any:
        """Return the current credentials. Only fetching them takes a thread: some are renewed over the network."""
        from botocore.credentials import Credentials, RefreshableCredentials  # type: ignore[import-untyped]

        if own := options.get("aws_access_key_id"):
            return Credentials(own, options.get("aws_secret_access_key"), options.get("aws_session_token"))
        profile = options.get("aws_profile_name")
        found: Any = self._identities.get(profile)
        if found is None:
            found = await asyncio.to_thread(self._find_identity, profile)
        if isinstance(found, RefreshableCredentials) and found.refresh_needed():
            return await asyncio.to_thread(found.get_frozen_credentials)
        return found.get_frozen_credentials()

    def _find_identity(self, profile: str | None) -> Any:
        from botocore.session import Session  # type: ignore[import-untyped]

        with self._lock:
            if profile not in self._identities:
                found = Session(profile=profile).get_credentials()
                if found is None:
                    raise NoIdentity("there are no AWS credentials")
                self._identities[profile] = found
            return self._identities[profile]


def _refuse_options(options: Mapping[str, Any]) -> list[str]:
    unknown = sorted(name for name in options if name.startswith("aws_") and name not in OPTIONS)
    if not unknown:
        return []
    return [
        f"calls of Bedrock don't take {', '.join(unknown)}: configure it in a profile, and use aws_profile_name"
    ]


def _destination(request: ModelRequest) -> Destination:
    """Return where a call goes. Raises AgentUnavailable without a region."""
    options = request.options
    segments = request.llm.removeprefix("bedrock/").removeprefix("converse/").split("/")
    model = "/".join(segments[1:] if _REGION.fullmatch(segments[0]) else segments)
    region = _region(request.llm, options)
    own = options.get("aws_bedrock_runtime_endpoint") or options.get("api_base") or options.get("base_url")
    own = own or next((found for name in ADDRESSES if (found := os.environ.get(name))), None)
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return Destination(model, region, str(own or f"https://bedrock-runtime.{region}.{suffix}").rstrip("/"))


def _region(llm: str, options: Mapping[str, Any]) -> str:
    """Return the region of the name, the options or the environment, in this order. Raises AgentUnavailable."""
    first = llm.removeprefix("bedrock/").removeprefix("converse/").partition("/")[0]
    if _REGION.fullmatch(first):
        return first
    if found := _ARN.match(first):
        return found[1]
    given = options.get("aws_region_name") or next(filter(None, map(os.environ.get, REGIONS)), None)
    if given is None:
        from botocore.session import Session

        given = Session(profile=options.get("aws_profile_name")).get_config_variable("region")
    if not given:
        raise AgentUnavailable(f"{llm} needs a region of AWS: set AWS_REGION where this agent runs")
    return str(given)


# ---------------------------------------------------------------------------------------------- responses


async def _events(response: Any) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    """Yield the kind and the data of each event of a stream. Raises Refused for an error among them, CallFailed."""
    from botocore.eventstream import EventStreamBuffer, ParserError  # type: ignore[import-untyped]

    buffer = EventStreamBuffer()
    async for chunk in response.aiter_bytes():
        buffer.add_data(chunk)
        try:
            messages = list(buffer)
        except ParserError as error:
            raise CallFailed(Cause.NO_REPLY) from error
        for message in messages:
            headers = message.headers
            data = json.loads(message.payload or b"{}")
            if headers.get(":message-type") == "event":
                yield headers[":event-type"], data
            else:
                code = headers.get(":exception-type") or headers.get(":error-code") or "error"
                text = data.get("message") or headers.get(":error-message") or ""
                raise Refused(_STATUS.get(code, 500), code, text, {}, _place(response))


def _refused(response: Any, body: bytes) -> Refused:
    """Return the error of a response; its code stands in a header or in the body."""
    try:
        data = json.loads(body)
    except JSONDecodeError:
        data = {}
    data = data if isinstance(data, dict) else {}
    code = response.headers.get("x-amzn-errortype") or data.get("__type") or ""
    text = data.get("message") or data.get("Message") or ""
    code = code.partition(":")[0].rpartition("#")[2]
    return Refused(response.status_code, code, text, dict(response.headers), _place(response))


def _place(response: Any) -> str:
    url = response.request.url
    return f"{url.host}:{url.port}" if url.port else str(url.host)
