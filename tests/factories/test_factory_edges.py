"""What models seldom do, and what must not end a task all the same: say nothing, or what no store can hold."""

import json
from types import SimpleNamespace

import pytest
from factory_agents import ALL, CHAT, CLAUDES, RESPONSES, Dialect, of, prompt, supervisor, swarm_of
from support.services.llm_stub import LLMStub, call, reply, text, thinking

from mail.core.task.activity import model_call
from mail.core.task.events import EventKind
from mail.factories.answer import AnswerReader
from mail.factories.base import ignore
from mail.factories.chat import call_chat
from mail.factories.items import MAX_DEPTH, UnstorableArguments, parse_arguments
from mail.factories.litellm_parts import is_finished
from mail.factories.responses import ResponsesReader
from mail.testing.rig import Rig

HALF = '{"finish_message": "half \\ud83d"}'
DEEP = '{"finish_message": ' + "[" * 700 + "]" * 700 + "}"


class TestSilence:
    @of(ALL)
    async def test_a_reply_of_nothing_is_one_without_calls(self, stub: LLMStub, dialect: Dialect) -> None:
        stub.script(reply())
        assert await supervisor(dialect)([prompt()]) == (None, [])

    @of(ALL)
    async def test_the_agent_is_told_to_call_a_tool(self, stub: LLMStub, dialect: Dialect) -> None:
        stub.script(reply(), reply(call("task_complete", finish_message="42")))
        async with Rig(swarm_of(dialect)) as rig:
            assert (await rig.ask()).answer == "42"
        assert "every turn must call at least one tool" in json.dumps(stub.requests[1].body)

    async def test_a_chat_without_choices(self) -> None:
        request = supervisor(CHAT[0]).request([prompt()])
        response = SimpleNamespace(choices=[])
        silent = await call_chat(response, request, ignore, AnswerReader(model_call("")), is_finished)
        assert (silent.entries, silent.finish) == ([], "stop")


class TestUnstorable:
    @pytest.mark.soak(on="streamed")
    @of(ALL)
    @pytest.mark.parametrize("arguments", [HALF, DEEP], ids=["half", "deep"])
    async def test_the_agent_is_told_and_the_task_goes_on(
        self, stub: LLMStub, dialect: Dialect, arguments: str
    ) -> None:
        """Such a call does nothing, whether it is one of MAIL's tools or an action; the others of its turn do."""
        stub.script(
            reply(thinking("Hm."), call("task_complete", arguments), call("look_up", city="Oslo")),
            reply(thinking("Whole, then."), call("task_complete", finish_message="42")),
            reply(thinking("Still there?"), call("task_complete", finish_message="42")),
        )
        async with Rig(swarm_of(dialect)) as rig:
            outcome = await rig.ask()
            history = await rig.history("supervisor", outcome.key)
        assert outcome.answer == "42"
        errors = [event.text for event in outcome.of(EventKind.AGENT_ERROR)]
        assert len(errors) == 1
        assert "task_complete: its arguments " in errors[0]
        results = json.dumps(history)
        assert "ERROR: task_complete: its arguments " in results
        assert "SUCCESS: it is sunny in Oslo" in results

    @pytest.mark.parametrize("levels", [MAX_DEPTH, 100_000])
    def test_too_deep(self, levels: int) -> None:
        with pytest.raises(UnstorableArguments, match="more than 100 levels"):
            parse_arguments("look_up", '{"city": ' + "[" * levels + "]" * levels + "}")

    def test_just_not_too_deep(self) -> None:
        levels = MAX_DEPTH - 1
        assert parse_arguments("look_up", '{"city": ' + "[" * levels + "]" * levels + "}")

    @of([CHAT[0], RESPONSES[0], CLAUDES[0]])
    async def test_an_action(self, stub: LLMStub, dialect: Dialect) -> None:
        stub.script(
            reply(call("look_up", '{"city": "\\udc00"}')),
            reply(call("task_complete", finish_message="42")),
        )
        async with Rig(swarm_of(dialect)) as rig:
            outcome = await rig.ask()
        assert outcome.answer == "42"
        assert outcome.of(EventKind.ACTION_CALL) == []

    @of(ALL)
    async def test_halves_of_characters_in_text(self, stub: LLMStub, dialect: Dialect) -> None:
        stub.script(reply(text("a \ud83d b"), call("task_complete", finish_message="42")))
        said, _ = await supervisor(dialect)([prompt()])
        assert said == "a � b"

    async def test_halves_that_came_apart_are_joined(self, stub: LLMStub) -> None:
        stub.script(reply(call("task_complete", '{"finish_message": "\ud83d\ude00"}')))
        _, (made,) = await supervisor(CHAT[0])([prompt()])
        assert made.tool_args == {"finish_message": "😀"}


class TestProxyKeys:
    @of([CHAT[0], RESPONSES[0], CLAUDES[0]])
    async def test_no_provider_s_key_is_sent_to_a_proxy(
        self, stub: LLMStub, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stub.script(reply(call("help")), reply(call("help")))
        agent = supervisor(dialect, use_proxy=True, user_token="", reasoning_effort=None)
        await agent([prompt()])
        monkeypatch.setenv("LITELLM_PROXY_API_KEY", "sk-proxy")
        await agent([prompt()])
        assert [request.key for request in stub.requests] == ["none", "sk-proxy"]
        assert "sk-openai" not in str(stub.requests)
        assert "sk-anthropic" not in str(stub.requests)


async def test_nothing_is_stored_by_the_provider(stub: LLMStub) -> None:
    stub.script(reply(call("help")))
    await supervisor(RESPONSES[0], llm="openai/gpt-4o", reasoning_effort=None)([prompt()])
    assert stub.requests[0].body["store"] is False
    assert "include" not in stub.requests[0].body


def test_each_part_of_a_streamed_reply_begins_on_a_line_of_its_own() -> None:
    reader, heard = ResponsesReader(AnswerReader(model_call(""))), list[str]()
    kind = "response.reasoning_summary_text.delta"
    for output, part, piece in [(0, 0, "Fi"), (0, 0, "rst."), (0, 1, "Second."), (2, 0, "Third.")]:
        event = {"type": kind, "output_index": output, "summary_index": part, "delta": piece}
        reader.take(event, lambda _kind, piece: heard.append(piece))
    assert "".join(heard) == "First.\nSecond.\nThird."
    reader.take({"type": kind, "output_index": 0, "summary_index": 0, "delta": "!"}, ignore)
