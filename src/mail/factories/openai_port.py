"""Servers with OpenAI's APIs, by the `openai` SDK alone: OpenAI, Azure, Ollama, vLLM, OpenRouter, a litellm proxy."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from inspect import signature
from typing import Any

from mail.errors import AgentUnavailable
from mail.factories import failures
from mail.factories.answer import AnswerReader
from mail.factories.chat import call_chat, chat_arguments
from mail.factories.connections import ModulePort, http_client
from mail.factories.failures import CallFailed
from mail.factories.models import ModelReply, ModelRequest, OnPiece
from mail.factories.options import is_connection, merge_options
from mail.factories.providers import SERVERS, Server, name_hint, provider_of, similar_model
from mail.factories.responses import call_responses, responses_arguments, responses_options
from mail.factories.retry import Cause, Failure, error_for
from mail.factories.table import without_routes

NO_KEY = "none"
"""The key for servers without one, as the SDK asks for one."""

PROXY = Server(None, (), "LITELLM_PROXY_API_KEY", needs_key=False, has_responses=True)

PLACE = frozenset({"api_base", "base_url", "api_key", "api_version", "organization"})
"""Options of the client; `timeout`, `extra_body`, `extra_headers` and `extra_query` are those of a call."""

OF_CALL = frozenset({"timeout", "extra_body", "extra_headers", "extra_query"})


@dataclass(frozen=True, slots=True)
class Place:
    """The destination of a call.

    Attributes:
        model: its name there; of Azure, the deployment.
        address: the URL below which the paths of the API begin.
        version: of Azure's older API, which has deployments in its paths.
    """

    provider: str
    server: Server
    model: str
    address: str
    key: str = field(repr=False)
    version: str | None = None
    organization: str | None = None


class MissingVariables(Exception):
    """The environment lacks variables without which there is no call."""

    def __init__(self, variables: tuple[str, ...]) -> None:
        super().__init__(", ".join(variables))
        self.variables = variables


class OpenAISDK(ModulePort):
    """The port of the SDK. Its calls share the HTTP client of their event loop."""

    modules = ("openai", "openai.resources.chat.completions", "openai.resources.responses")
    agents = "agents with a language model"

    async def call(
        self, request: ModelRequest, seconds: float | None, on_piece: OnPiece, answer: AnswerReader
    ) -> ModelReply:
        """Call the model, for at most `seconds`."""
        if refused := _refuse_options(request.options):
            raise AgentUnavailable(refused[0])
        place = _find_place(request)
        # Claude's blocks need litellm: there, a reply is text and calls, as every server has them.
        request = replace(
            request, llm=f"{place.provider}/{place.model}", traits=replace(request.traits, claude=False)
        )
        is_responses = request.uses_responses and place.server.has_responses
        client = await _client(place)
        options = {name: value for name, value in request.options.items() if name not in PLACE}
        if is_responses:
            arguments, options = responses_arguments(request), responses_options(options)
            create, raw_create = client.responses.create, client.responses.with_raw_response.create
        else:
            arguments = chat_arguments(request)
            api = client.chat.completions
            create, raw_create = api.create, api.with_raw_response.create
            if place.provider in ("openai", "azure") and "max_tokens" in arguments:
                arguments["max_completion_tokens"] = arguments.pop("max_tokens")
        merged = merge_options({"model": place.model, "timeout": seconds, **arguments}, options)
        raw = await raw_create(**_with_extra_body(create, merged))
        _check_kind(raw, is_responses=is_responses, streams=merged["stream"])
        response = raw.parse()
        if is_responses:
            reply = await call_responses(response, on_piece, answer)
        else:
            reply = await call_chat(response, request, on_piece, answer, lambda _, reason: reason is not None)
        return replace(reply, headers=failures.limits_of(raw.headers))

    def classify(self, error: Exception, request: ModelRequest) -> Failure | None:
        """Return the failure that an error stands for; None for a bug in this program."""
        import openai

        failure = failures.of_reply(error, request) or failures.of_connection(error)
        if failure is None:
            match error:
                case MissingVariables():
                    failure = Failure(Cause.NO_KEY, variables=error.variables)
                case openai.APIStatusError():
                    failure = _of_status(error, error.status_code, request)
                case openai.APIError():  # an event of a stream; OpenRouter's code is a status
                    code: Any = error.code
                    status = code if isinstance(code, int) else _STATUS.get(code, 500)
                    failure = _of_status(error, status, request)
        return failure and failures.placed(failure, error)

    def find_missing_key(self, llm: str) -> Failure | None:
        """Return the failure of a call for which the environment lacks variables; None if it has all."""
        server = SERVERS.get(provider_of(llm))
        missing = () if server is None else _missing_variables(server)
        return Failure(Cause.NO_KEY, variables=missing) if missing else None

    def find_problems(self, llm: str, options: Mapping[str, Any], *, has_key: bool) -> list[str]:
        """Return why a call would fail, one line each with the remedy. Imports the SDK."""
        try:
            self.preload()
        except AgentUnavailable as error:
            return [error.detail]
        name = without_routes(llm)
        if provider_of(llm) not in SERVERS:
            return [error_for(Failure(Cause.NO_PROVIDER, hint=name_hint(name)), llm, 1).detail]
        problems = _refuse_options(options)
        if not has_key and (failure := self.find_missing_key(llm)):
            problems.append(error_for(failure, llm, 1).detail)
        if similar := similar_model(name, is_sure=True):
            problems.append(f"the table of models has no {name!r}. Did you mean {similar!r}?")
        return problems


_STATUS = {"rate_limit_exceeded": 429, "context_length_exceeded": 400}


def _find_place(request: ModelRequest) -> Place:
    """Return where a call goes. Raises MissingVariables."""
    options = request.options
    name = without_routes(request.llm)
    if request.api_base is not None:
        return Place("litellm_proxy", PROXY, name, request.api_base, request.api_key or NO_KEY)
    provider = provider_of(name)
    server = SERVERS[provider]
    given = options.get("api_base") or options.get("base_url")
    own = given or next((found for each in server.addresses if (found := os.environ.get(each))), None)
    key = options.get("api_key") or os.environ.get(server.key) or (NO_KEY if own else "")
    if missing := _missing_variables(server, has_address=bool(own), has_key=bool(key)):
        raise MissingVariables(missing)
    version = options.get("api_version") or (
        os.environ.get("AZURE_API_VERSION") if provider == "azure" else None
    )
    is_dated = provider == "azure" and version is not None and version[:1].isdigit()
    address = str(own or server.address).rstrip("/")
    if own and not is_dated and not address.endswith(server.path):
        address += server.path
    return Place(
        provider,
        server,
        name.removeprefix(f"{provider}/"),
        address,
        key or NO_KEY,
        version if is_dated else None,
        options.get("organization"),
    )


def _missing_variables(
    server: Server, *, has_address: bool | None = None, has_key: bool | None = None
) -> tuple[str, ...]:
    """Return the variables that a call lacks: an address of the user's own may need no key."""
    own = any(map(os.environ.get, server.addresses)) if has_address is None else has_address
    keyed = bool(os.environ.get(server.key)) if has_key is None else has_key
    address = () if own or server.address else server.addresses[:1]
    return (*((server.key,) if server.needs_key and not keyed and not own else ()), *address)


async def _client(place: Place) -> Any:
    """Return a client of the SDK for one call, which costs little beside the HTTP client that it uses."""
    import openai

    http: Any = await http_client()
    if place.version is not None:
        return openai.AsyncAzureOpenAI(
            azure_endpoint=place.address,
            api_key=place.key,
            api_version=place.version,
            max_retries=0,
            http_client=http,
        )
    return openai.AsyncOpenAI(
        api_key=place.key,
        base_url=place.address,
        organization=place.organization,
        max_retries=0,
        http_client=http,
    )


def _refuse_options(options: Mapping[str, Any]) -> list[str]:
    """Return a line if some of the options say how litellm makes a call, which the SDK doesn't know."""
    unknown = sorted(name for name in options if is_connection(name) and name not in PLACE | OF_CALL)
    named = ", ".join(unknown)
    return [f"only litellm has the option {named}: pip install 'mail-serverless[llm]'"] if unknown else []


def _with_extra_body(create: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with those that the SDK doesn't declare, such as `top_k`, in the body all the same."""
    declared = _parameters(getattr(create, "__func__", create))
    others = {name: value for name, value in arguments.items() if name not in declared}
    known = {name: value for name, value in arguments.items() if name in declared}
    if others:
        known["extra_body"] = {**others, **(known.get("extra_body") or {})}
    return known


@lru_cache(maxsize=8)
def _parameters(create: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(create).parameters)


def _check_kind(raw: Any, *, is_responses: bool, streams: bool) -> None:
    """Raise CallFailed for a response that is no reply: a page, or that of another API."""
    kind = raw.headers.get("content-type", "")
    if streams and kind and "text/event-stream" not in kind:
        raise CallFailed(Cause.OTHER_API if is_responses and "json" in kind else Cause.NO_REPLY)
    if not streams:
        if "json" not in kind:
            raise CallFailed(Cause.NO_REPLY)
        if getattr(raw.parse(), "output" if is_responses else "choices", None) is None:
            raise CallFailed(Cause.OTHER_API if is_responses else Cause.NO_REPLY)


def _of_status(error: Any, status: int, request: ModelRequest) -> Failure:
    codes = [error.code, error.param]
    headers = failures.headers_of(error)
    failure = failures.of_status(request, status, codes=codes, headers=headers, text=error.message)
    if failure.cause in (Cause.ACCESS, Cause.FORBIDDEN) and not failure.variables and not request.has_own_key:
        server = SERVERS.get(provider_of(request.llm))
        return failure if server is None else Failure(Cause.NO_KEY, status, variables=(server.key,))
    return failure
