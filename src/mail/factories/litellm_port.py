"""litellm, by which all providers can be reached.

It takes seconds to import. It is therefore loaded in a thread by the first call, or in advance by `preload`.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from weakref import WeakSet

from mail.errors import AgentUnavailable
from mail.factories import failures
from mail.factories.answer import AnswerReader
from mail.factories.chat import call_chat, chat_arguments, close_connection
from mail.factories.litellm_parts import (
    headers_of,
    import_rest,
    is_finished,
    load_litellm,
    loaded_litellm,
    take_clients,
)
from mail.factories.models import ModelReply, ModelRequest, OnPiece
from mail.factories.options import merge_options
from mail.factories.providers import (
    ALTERNATIVES,
    KEYLESS,
    credentials_of,
    name_hint,
    similar_model,
)
from mail.factories.responses import call_responses, responses_arguments, responses_options
from mail.factories.retry import Cause, Failure, error_for

KEY_ONLY = frozenset({"anthropic", "deepseek", "gemini", "groq", "mistral", "openai", "xai"})
"""Providers whose settings are environment variables that begin like those of `credentials_of`."""

_known_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


class LiteLLM:
    """The port of litellm."""

    async def open(self) -> None:
        """Import litellm, in a thread. Raises AgentUnavailable."""
        litellm = loaded_litellm() or await asyncio.to_thread(load_litellm)
        loop = asyncio.get_running_loop()
        if loop not in _known_loops:
            _known_loops.add(loop)
            take_clients(litellm, loop)  # left by a closed loop with the same id: they would fail

    def preload(self) -> None:
        """Import litellm in advance. Raises AgentUnavailable or ImportError."""
        load_litellm()
        import_rest()

    async def call(
        self, request: ModelRequest, seconds: float | None, on_piece: OnPiece, answer: AnswerReader
    ) -> ModelReply:
        """Call the model, for at most `seconds`."""
        litellm = load_litellm()
        if request.uses_responses:
            arguments = {**_connection(request, seconds), **responses_arguments(request)}
            response = await litellm.aresponses(
                **merge_options(arguments, responses_options(request.options))
            )
            reply = await call_responses(response, on_piece, answer)
        else:
            arguments = {**_connection(request, seconds), **chat_arguments(request)}
            response = await litellm.acompletion(**merge_options(arguments, request.options))
            reply = await call_chat(response, request, on_piece, answer, is_finished)
        return replace(reply, headers=failures.limits_of(headers_of(response)))

    def classify(self, error: Exception, request: ModelRequest) -> Failure | None:
        """Return the failure that an error stands for; None for a bug in this program."""
        litellm = load_litellm()
        if failure := failures.of_reply(error, request):
            return failure
        match error:
            case litellm.ContextWindowExceededError():
                return Failure(Cause.CONTEXT, 400)
            case litellm.ContentPolicyViolationError():
                return Failure(Cause.FILTERED, 400)
        failure = failures.of_connection(error)
        if failure is None or request.own_address is None:  # a call without a key fails wherever it gets to
            failure = _of_name_or_key(litellm, error, request) or failure
        failure = failure or _of_response(litellm, error, request)
        if failure is None or (failure := failures.placed(failure, error)).place:
            return failure
        return replace(failure, place=_provider_of(litellm, request.llm) or "")

    def find_missing_key(self, llm: str) -> Failure | None:
        """Return the failure of a first call for which the environment has no key; None if it may have one.

        Does not import litellm, which takes seconds. litellm reads a file `.env`, if there is one.
        """
        provider, _, _ = llm.partition("/")
        if provider not in KEY_ONLY or "litellm" in sys.modules:
            return None
        variables = credentials_of(provider)
        prefixes = tuple(f"{name.partition('_')[0]}_" for name in variables)
        package = find_spec("litellm")
        if package is None or package.origin is None or any(name.startswith(prefixes) for name in os.environ):
            return None
        folders = {*Path(package.origin).parents, Path.cwd(), *Path.cwd().parents}
        if any((folder / ".env").exists() for folder in folders):
            return None
        return Failure(Cause.NO_KEY, variables=variables[:1])

    def find_problems(self, llm: str, options: Mapping[str, Any], *, has_key: bool) -> list[str]:
        """Return why a call of the model would fail, one line each with the remedy. Imports litellm."""
        try:
            litellm = load_litellm()
        except AgentUnavailable as error:
            return [error.detail]
        if _provider_of(litellm, llm) is None:
            return [error_for(Failure(Cause.NO_PROVIDER, hint=name_hint(llm)), llm, 1).detail]
        problems = []
        if not has_key and (variables := _missing_variables(litellm, llm)):
            problems.append(error_for(Failure(Cause.NO_KEY, variables=variables), llm, 1).detail)
        if similar := similar_model(llm, is_sure=True):
            named = similar if "/" in similar else f"{_provider_of(litellm, similar)}/{similar}"
            problems.append(f"litellm knows no model {llm!r}. Did you mean {named!r}?")
        return problems

    async def close(self) -> None:
        """Close the connections that litellm keeps open for this event loop, before it ends."""
        if (litellm := loaded_litellm()) is not None:
            for client in take_clients(litellm, asyncio.get_running_loop()):
                await close_connection(client)


def _connection(request: ModelRequest, seconds: float | None) -> dict[str, Any]:
    """Return the arguments of every call: the destination, and no retries, which are done by `model_call`."""
    name = request.llm
    if name.startswith("ollama/"):  # Ollama's older API, which has no tools
        name = f"ollama_chat/{name.removeprefix('ollama/')}"
    arguments: dict[str, Any] = {"model": name, "max_retries": 0, "num_retries": 0, "drop_params": True}
    if request.api_base is not None:
        # A litellm proxy speaks Anthropic's API as well, in which nothing of Claude's is lost on the way.
        provider = "anthropic" if request.traits.claude else "litellm_proxy"
        arguments |= {
            "model": f"{provider}/{request.llm}",
            "api_base": request.api_base,
            "api_key": request.api_key,
        }
    if seconds is not None:
        arguments["timeout"] = seconds
    return arguments


# ------------------------------------------------------------------------------------------------ failures


def _provider_of(litellm: Any, llm: str) -> str | None:
    """Return the provider that litellm calls for a model; None if the name doesn't tell."""
    try:
        return str(litellm.get_llm_provider(model=llm)[1])
    except litellm.BadRequestError:
        return None


def _missing_variables(litellm: Any, llm: str) -> tuple[str, ...]:
    """Return the environment variables that the provider of a model needs and that are not set; no network is used."""
    provider = _provider_of(litellm, llm)
    if provider is None or provider in KEYLESS:
        return ()
    if provider in ALTERNATIVES:
        names = ALTERNATIVES[provider]
        return () if any(map(os.environ.get, names)) else names[:1]
    if provider in ("bedrock", "sagemaker", "vertex_ai"):  # they have many ways to log in besides variables
        return ()
    empty = [name for name in credentials_of(provider) if os.environ.get(name) == ""]
    return (*litellm.validate_environment(model=llm)["missing_keys"], *empty)


def _of_name_or_key(litellm: Any, error: Exception, request: ModelRequest) -> Failure | None:
    """Return the failure of a call for which litellm has no provider or no key; None if it has both."""
    if (
        isinstance(error, litellm.BadRequestError)
        and not request.names_provider
        and _provider_of(litellm, request.llm) is None
    ):
        return Failure(Cause.NO_PROVIDER, hint=name_hint(request.llm))
    if request.has_own_key:
        return None
    is_denied = getattr(error, "status_code", None) in (401, 403)
    if not is_denied and _has_response(error):
        return None
    if missing := _missing_variables(litellm, request.llm):
        return Failure(Cause.NO_KEY, variables=missing)
    if any(type(each) is litellm.openai.OpenAIError for each in failures.chain(error)):  # before the request
        return Failure(Cause.NO_KEY)
    return None


def _has_response(error: Exception) -> bool:
    """Return whether the provider sent a response, or a fault of this program prevented it."""
    return any(
        failures.is_response(each) or isinstance(each, failures.FAULTS) for each in failures.chain(error)
    )


def _of_response(litellm: Any, error: Exception, request: ModelRequest) -> Failure | None:
    if isinstance(error, litellm.APIConnectionError):
        *_, root = failures.chain(error)
        return None if isinstance(root, failures.FAULTS) else Failure(Cause.CONNECTION)
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return None
    codes = [code for each in failures.chain(error) for code in failures.codes_of(each)]
    failure = failures.of_status(request, status, codes=codes, headers=failures.headers_of(error))
    if failure.cause in (Cause.OUTAGE, Cause.REJECTED, Cause.TIMEOUT):
        if not _has_response(error) and _is_unreadable(error, status):
            return failures.no_reply(request)
        if status == 200 and request.uses_responses:  # JSON without the fields of a response
            return Failure(Cause.OTHER_API, status)
    return failure


def _is_unreadable(error: Exception, status: int) -> bool:
    """Return whether litellm found no reply in a response: a page, or nothing. It then makes up the status."""
    if not getattr(error, "is_pre_first_chunk", True):  # litellm's word for a stream that broke in the middle
        return False
    return status >= 500 or any(isinstance(each, JSONDecodeError) for each in failures.chain(error))
