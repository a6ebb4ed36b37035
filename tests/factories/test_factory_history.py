"""What goes back to the provider: the stub refuses what the providers refuse, so a second turn that is answered is
the proof; and what it got is looked at."""

from copy import deepcopy

import pytest
from factory_agents import ALL, CHAT, CLAUDES, RESPONSES, Dialect, after, of, prompt, supervisor
from support.services.llm_stub import LLMStub, call, code, redacted, reply, search, text, thinking

from mail.factories.history import NO_RESULT, read_history, to_chat, to_responses

pytestmark = pytest.mark.fast

EVERYTHING = reply(
    thinking("A."),
    redacted(),
    text("I search."),
    search("Oslo"),
    code("1+1", "2"),
    thinking("B."),
    text("I ask."),
    call("send_request", target="worker", subject="s", body="b"),
    call("await_message"),
)


@of(ALL)
async def test_a_provider_takes_back_what_it_said(stub: LLMStub, dialect: Dialect) -> None:
    agent = supervisor(dialect)
    stub.script(EVERYTHING, EVERYTHING, reply(call("task_complete", finish_message="42")))
    history = [prompt()]
    for _ in range(2):
        _, calls = await agent(history)
        history = after(history, calls)
    kept = deepcopy(history)
    _, (made,) = await agent(history)
    assert made.tool_name == "task_complete"
    assert history == kept, "the engine's entries were changed"


@of(CLAUDES)
async def test_claude_gets_its_blocks_word_for_word(stub: LLMStub, dialect: Dialect) -> None:
    agent = supervisor(dialect)
    stub.script(EVERYTHING, reply(call("help")))
    _, calls = await agent([prompt()])
    await agent(after([prompt()], calls, "go on"))
    _, said, told = stub.requests[1].body["messages"]
    (message,) = calls[0].turns
    assert said["content"] == message["content"]
    assert stub.requests[1].body["system"][0].pop("cache_control")
    assert [block["type"] for block in told["content"]] == ["tool_result", "tool_result", "text"]
    assert stub.requests[1].body["system"] == [{"type": "text", "text": "You are the supervisor."}]


@of(RESPONSES)
async def test_responses_gets_its_items_with_reasoning(stub: LLMStub, dialect: Dialect) -> None:
    agent = supervisor(dialect)
    stub.script(EVERYTHING, reply(call("help")))
    _, calls = await agent([prompt()])
    await agent(after([prompt()], calls))
    body = stub.requests[1].body
    assert body["input"][1:-3] == calls[0].turns
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["instructions"] == "You are the supervisor."
    assert [item["type"] for item in body["input"][-3:-1]] == ["function_call_output"] * 2


@of(RESPONSES)
async def test_reasoning_that_can_not_be_sent_back_takes_the_ids_with_it(
    stub: LLMStub, dialect: Dialect
) -> None:
    """A model that litellm doesn't know as a reasoning one is not asked for encrypted content."""
    unknown = Dialect("openai/gpt-of-tomorrow", "responses", dialect.streams)
    agent = supervisor(unknown, reasoning_effort=None)
    stub.script(EVERYTHING, reply(call("help")))
    _, calls = await agent([prompt()])
    await agent(after([prompt()], calls))
    assert "include" not in stub.requests[0].body
    sent = stub.requests[1].body["input"]
    assert [item["type"] for item in sent[1:-3]] == ["message", "message", "function_call", "function_call"]
    assert all("id" not in item for item in sent)


@of(RESPONSES)
async def test_reasoning_at_the_end_is_left_out(stub: LLMStub, dialect: Dialect) -> None:
    agent = supervisor(dialect)
    stub.script(reply(thinking("A."), call("help"), thinking("B.")), reply(call("help")))
    _, calls = await agent([prompt()])
    await agent(after([prompt()], calls))
    assert [item.get("type") for item in stub.requests[1].body["input"]] == [
        None,
        "reasoning",
        "function_call",
        "function_call_output",
        None,
    ]


SWITCHES = [
    (first, second)
    for first in (CHAT[0], RESPONSES[0], CLAUDES[0])
    for second in (CHAT[0], RESPONSES[0], CLAUDES[0])
]


@pytest.mark.parametrize(("first", "second"), SWITCHES, ids=[f"{a}-then-{b}" for a, b in SWITCHES])
async def test_the_model_may_change_within_a_task(stub: LLMStub, first: Dialect, second: Dialect) -> None:
    stub.script(EVERYTHING, EVERYTHING, reply(call("task_complete", finish_message="42")))
    _, calls = await supervisor(first)([prompt()])
    history = after([prompt()], calls)
    _, calls = await supervisor(second)(history)
    _, (made,) = await supervisor(first)(after(history, calls))
    assert made.tool_name == "task_complete"
    sent = str(stub.requests[1].body)
    assert "I search." in sent
    assert "send_request" in sent
    assert "SUCCESS: done" in sent


@of(CLAUDES[:1])
async def test_a_turn_that_was_forced_does_not_end_thinking(stub: LLMStub, dialect: Dialect) -> None:
    """Forced to a tool Claude can't think; the turn after that it thinks again, and 'must start with thinking'."""
    agent = supervisor(dialect)
    stub.script(
        reply(thinking("A."), call("help")),
        reply(call("task_complete", finish_message="42")),
        reply(thinking("B."), call("help")),
    )
    _, calls = await agent([prompt()])
    history = after([prompt()], calls)
    _, calls = await agent(history, {"type": "function", "function": {"name": "task_complete"}})
    await agent(after(history, calls, "thank you"))
    first, forced, resumed = (request.body for request in stub.requests)
    assert first["thinking"]["type"] == resumed["thinking"]["type"] == "enabled"
    assert first["tool_choice"] == resumed["tool_choice"] == {"type": "auto"}
    assert "thinking" not in forced
    assert forced["tool_choice"] == {"type": "tool", "name": "task_complete"}
    assert "I called task_complete" in str(resumed["messages"][-2])
    assert "SUCCESS: done" in str(resumed["messages"][-1])


async def test_a_model_that_adapts_thinks_while_it_is_forced(stub: LLMStub) -> None:
    agent = supervisor(Dialect("anthropic/claude-opus-4-6", "completions"))
    stub.script(reply(call("task_complete", finish_message="42")), reply(call("help")))
    _, calls = await agent([prompt()], {"type": "function", "function": {"name": "task_complete"}})
    await agent(after([prompt()], calls))
    forced, resumed = (request.body for request in stub.requests)
    assert forced["thinking"]["type"] == resumed["thinking"]["type"] == "adaptive"
    assert forced["tool_choice"]["type"] == "tool"
    assert resumed["tool_choice"] == {"type": "any"}
    assert resumed["messages"][1]["content"][0]["type"] == "tool_use"


@of(ALL)
async def test_calls_without_results_and_results_without_calls(stub: LLMStub, dialect: Dialect) -> None:
    """As after a breakpoint that was never answered, or where history was cut."""
    agent = supervisor(dialect)
    stub.script(EVERYTHING, reply(call("help")))
    _, calls = await agent([prompt()])
    stray = calls[-1].create_response_msg("stray").copy()
    for key in ("tool_call_id", "call_id"):
        if key in stray:
            stray[key] = "call_unheard_of"
    await agent([prompt(), stray, *calls[0].turns, calls[-1].create_response_msg("SUCCESS"), prompt("go on")])
    sent = str(stub.requests[1].body)
    assert NO_RESULT in sent
    assert "stray" not in sent


@of([CHAT[0], RESPONSES[0], CLAUDES[0]])
async def test_without_memory_only_the_newest_message_is_sent(stub: LLMStub, dialect: Dialect) -> None:
    agent = supervisor(dialect, memory=False)
    stub.script(EVERYTHING, reply(call("help")))
    _, calls = await agent([prompt("first")])
    await agent(after([prompt("first")], calls, "second"))
    body = stub.requests[1].body
    sent = body.get("input") or body["messages"]
    assert len([entry for entry in sent if entry["role"] == "user"]) == 1
    assert "second" in str(sent)
    assert "first" not in str(sent)
    assert "You are the supervisor." in str(body)


def test_instructions_in_the_history_are_kept() -> None:
    told = [{"role": "system", "content": "Be brief."}, prompt("a")]
    assert to_chat(read_history(told), claude=False) == told
    assert to_responses(read_history(told)) == told


def test_gemini_gets_its_thought_signatures_back() -> None:
    signed = {
        "id": "c1",
        "type": "function",
        "function": {"name": "help", "arguments": "{}"},
        "provider_specific_fields": {"thought_signature": "sig"},
    }
    history = [prompt(), {"role": "assistant", "content": None, "tool_calls": [signed]}]
    messages = to_chat(read_history(history), claude=False)
    assert messages[1]["tool_calls"] == [signed]
