"""The parts of litellm that `mail.factories.litellm_parts` uses, in the version that is installed."""

import asyncio
import inspect
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from factory_agents import CLAUDE, GPT, prompt
from support.services.llm_stub import LLMStub, call, reply

from mail.factories import LiteLLMSupervisorFunction
from mail.factories.litellm_parts import _FIRST_CALL, is_finished, load_litellm, take_clients


def test_the_modules_of_the_first_call_exist() -> None:
    load_litellm()
    assert [name for name in _FIRST_CALL if find_spec(name) is None] == []


def test_errors_are_those_of_its_libraries() -> None:
    litellm = load_litellm()
    assert litellm.httpx is httpx
    assert litellm.openai is openai
    assert hasattr(litellm.RateLimitError("", "openai", GPT), "llm_provider")


def test_a_stream_knows_whether_the_provider_has_finished() -> None:
    from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper

    source = inspect.getsource(CustomStreamWrapper.__init__)
    for name in ("received_finish_reason", "intermittent_finish_reason"):
        assert f"self.{name}" in source, name
    unfinished = SimpleNamespace(received_finish_reason=None, intermittent_finish_reason=None)
    assert not is_finished(unfinished)
    assert is_finished(SimpleNamespace(received_finish_reason=None, intermittent_finish_reason="stop"))
    assert is_finished(object())


@pytest.mark.parametrize("llm", [GPT, CLAUDE])
async def test_clients_are_cached_under_the_id_of_their_loop(stub: LLMStub, llm: str) -> None:
    settings: dict[str, Any] = {"name": "boss", "comm_targets": [], "tool_format": "completions"}
    stub.script(reply(call("help")))
    await LiteLLMSupervisorFunction(llm=llm, **settings)([prompt()])
    litellm, loop = load_litellm(), asyncio.get_running_loop()
    other = asyncio.new_event_loop()
    assert take_clients(litellm, other) == []
    other.close()
    taken = take_clients(litellm, loop)
    assert taken
    assert "module_level_aclient" not in vars(litellm)
    assert litellm.module_level_aclient is not None, "it is recreated"
    for client in [*taken, *take_clients(litellm, loop)]:
        await (client.aclose() if hasattr(client, "aclose") else client.close())
