"""Every box of docs/CHECKLIST.md (seed 000), step by step; a test's docstring names its boxes.

The checklist describes the functions of another implementation. Here one reader per API and one assembly do what
its four functions did, so a box about one of them is checked by what comes out, in each dialect.
"""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from factory_agents import (
    ALL,
    CHAT,
    CLAUDES,
    INTERLEAVING,
    RESPONSES,
    Dialect,
    of,
    prompt,
    supervisor,
    swarm_of,
)
from pydantic import ValidationError
from support.services.llm_stub import LLMStub, call, code, redacted, reply, search, text, thinking

from mail.core.protocol.calls import AgentToolCall
from mail.core.task.activity import model_call
from mail.core.task.events import Event, EventKind
from mail.factories.answer import AnswerReader
from mail.factories.base import ignore
from mail.factories.items import assemble
from mail.factories.responses import ResponsesReader
from mail.testing.rig import Outcome, Rig

COMPLETION = {"role": "assistant", "content": "hi"}


async def take_turn(dialect: Dialect) -> tuple[str | None, list[AgentToolCall]]:
    return await supervisor(dialect)([prompt()])


async def run_task(dialect: Dialect, **params: Any) -> Outcome:
    async with Rig(swarm_of(dialect, **params)) as rig:
        return await rig.ask("What is the weather?")


def tool_calls(outcome: Outcome) -> list[Event]:
    return outcome.of(EventKind.TOOL_CALL)


# ------------------------------------------------------------------------------------------------------- step 0


def test_step_0_the_call_has_reasoning_and_preamble() -> None:
    """Add `reasoning: list[str] | None`; add `preamble: str | None`; no other fields removed or defaults changed."""
    fields = AgentToolCall.model_fields
    assert fields["reasoning"].annotation == list[str] | None
    assert fields["preamble"].annotation == str | None
    made = AgentToolCall(tool_name="t", tool_args={}, tool_call_id="c", completion=COMPLETION)
    assert (made.responses, made.reasoning, made.preamble) == ([], None, None)
    assert set(fields) == {
        "tool_name",
        "tool_args",
        "tool_call_id",
        "completion",
        "responses",
        "reasoning",
        "preamble",
    }


def test_step_0_a_call_still_needs_its_origin() -> None:
    """`AgentToolCall` still validates `completion` OR `responses` non-empty; new fields are optional."""
    with pytest.raises(ValidationError, match="completion or the responses"):
        AgentToolCall(tool_name="t", tool_args={}, tool_call_id="c", reasoning=["why"])
    AgentToolCall(tool_name="t", tool_args={}, tool_call_id="c", responses=[{"type": "message"}])


# ------------------------------------------------------------------------------------------------------- step 1


@of(CLAUDES[:1])
async def test_step_1_events_have_name_arguments_id_reasoning_and_preamble(
    stub: LLMStub, dialect: Dialect
) -> None:
    """Emit tool_call events; join reasoning with a blank line after filtering blank blocks; include the preamble;
    events include `tool_name`, `tool_args`, `tool_call_id`; `reasoning_ref` only where reasoning is absent."""
    stub.script(
        reply(
            thinking("First."),
            thinking(" \n"),
            thinking("Second."),
            text("I am done."),
            call("task_complete", finish_message="42"),
        )
    )
    (event,) = tool_calls(await run_task(dialect))
    extra = event.extra.as_json()
    assert extra.pop("usage")
    assert extra.pop("timing")["model_calls"]
    assert extra.pop("tool_call_id").startswith("toolu_")
    assert extra == {
        "agent": "supervisor",
        "tool_name": "task_complete",
        "tool_args": {"finish_message": "42"},
        "reasoning": "First.\n\nSecond.",
        "preamble": "I am done.",
    }


# ---------------------------------------------------------------------------------------------- steps 2, 9 and 10


@of(ALL)
async def test_steps_2_and_9_arguments_hold_nothing_but_what_the_model_wrote(
    stub: LLMStub, dialect: Dialect
) -> None:
    """Remove `tool_args["reasoning"]` and `tool_args["thinking_blocks"]`; `reasoning` is never placed in
    `tool_args` in any provider path; `preamble` is only on `AgentToolCall.preamble`; all calls carry valid
    `completion` or `responses` data."""
    stub.script(reply(thinking("Hm."), text("Well."), call("await_message", reason="mail"), call("help")))
    _, calls = await take_turn(dialect)
    assert [call.tool_args for call in calls] == [{"reason": "mail"}, {}]
    assert [call.reasoning for call in calls] == [["Hm."], None]
    assert [call.preamble for call in calls] == ["Well.", None]
    for made in calls:
        assert made.tool_format == dialect.tool_format
        assert made.turns == calls[0].turns
        assert made.turns


@of(CLAUDES)
async def test_step_2_the_history_keeps_the_thinking_blocks(stub: LLMStub, dialect: Dialect) -> None:
    """Anthropic assistant message dict still contains full thinking blocks via `completion`."""
    stub.script(reply(thinking("Hm."), redacted("secret"), call("help")))
    _, (made,) = await take_turn(dialect)
    (message,) = made.turns
    first, second, third = message["content"]
    assert (first["type"], first["thinking"]) == ("thinking", "Hm.")
    assert first["signature"].startswith("ErUB")
    assert second == {"type": "redacted_thinking", "data": second["data"]}
    assert third["type"] == "tool_use"


@of([*RESPONSES, CLAUDES[1]])
async def test_step_10_events_tell_reasoning_or_refer_to_it(stub: LLMStub, dialect: Dialect) -> None:
    """`tool_call` events include `reasoning` or `reasoning_ref` only when appropriate; blank blocks are filtered."""
    stub.script(
        reply(
            call("help"), thinking(" "), call("help"), thinking("Now."), call("help"), call("await_message")
        ),
        reply(call("task_complete", finish_message="42")),
    )
    events = tool_calls(await run_task(dialect))
    told = [
        (event.extra.as_json().get("reasoning"), event.extra.as_json().get("reasoning_ref"))
        for event in events
    ]
    third = events[2].extra.as_json()["tool_call_id"]
    assert told == [(None, None), (None, None), ("Now.", None), (None, third), (None, None)]


# ------------------------------------------------------------------------------------------------------- step 3


@of(ALL)
async def test_step_3_text_output_has_a_uuid_and_its_content(stub: LLMStub, dialect: Dialect) -> None:
    """Add `uuid.uuid4()` ids for `text_output` in all four paths; keep `tool_args={"content": ...}` unchanged; no
    `text` key; ids are non-empty."""
    stub.script(reply(text("Hello there.")), reply(text("Hello there.")))
    said, (first,) = await take_turn(dialect)
    _, (second,) = await take_turn(dialect)
    assert said == "Hello there."
    assert (first.tool_name, first.tool_args) == ("text_output", {"content": "Hello there."})
    assert UUID(first.tool_call_id).version == 4
    assert first.tool_call_id != second.tool_call_id


# ------------------------------------------------------------------------------------------------- steps 4 and 5


@of(INTERLEAVING)
async def test_step_4_events_come_for_all_calls_in_order(stub: LLMStub, dialect: Dialect) -> None:
    """Emit at the top of the tool processing loop; `reasoning_ref` points to the most recent call with reasoning;
    events for all calls in original order; emitted before tool-specific mutations such as a `target`."""
    stub.script(
        reply(
            thinking("One."),
            call("send_broadcast", subject="s", body="b"),
            call("send_request", target="worker", subject="s", body="b"),
            thinking("Two."),
            call("help"),
            call("await_message"),
        ),
        to="You are the supervisor",
    )
    stub.script(
        *[reply(call("acknowledge_broadcast")), reply(call("await_message"))], to="You are the worker"
    )
    stub.otherwise = lambda _request: reply(call("task_complete", finish_message="42"))
    events = tool_calls(await run_task(dialect))[:4]
    assert [event.extra.as_json()["tool_name"] for event in events] == [
        "send_broadcast",
        "send_request",
        "help",
        "await_message",
    ]
    assert events[0].extra.as_json()["tool_args"] == {"subject": "s", "body": "b"}
    refs = [event.extra.as_json().get("reasoning_ref") for event in events]
    first, third = events[0].extra.as_json()["tool_call_id"], events[2].extra.as_json()["tool_call_id"]
    assert refs == [None, first, None, third]


TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("send_request", {"target": "worker", "subject": "s", "body": "b"}),
    ("send_response", {"target": "worker", "subject": "s", "body": "b"}),
    ("send_interrupt", {"target": "worker", "subject": "s", "body": "b"}),
    ("send_broadcast", {"subject": "s", "body": "b"}),
    ("task_complete", {"finish_message": "42"}),
    ("look_up", {"city": "Oslo"}),
    ("await_message", {}),
    ("help", {}),
    ("acknowledge_broadcast", {}),
    ("ignore_broadcast", {}),
    ("unheard_of", {}),
]


@pytest.mark.parametrize(("tool", "arguments"), TOOLS, ids=[name for name, _ in TOOLS])
async def test_step_5_every_tool_gets_an_event(stub: LLMStub, tool: str, arguments: dict[str, Any]) -> None:
    """`tool_call` events for MAIL tools, actions, await_message, help, acknowledge/ignore broadcast; no tool path
    bypasses the emission."""
    stub.script(reply(call(tool, **arguments)))
    stub.otherwise = lambda _request: reply(call("task_complete", finish_message="42"))
    events = tool_calls(await run_task(RESPONSES[0]))
    assert events[0].extra.as_json()["tool_name"] == tool
    assert events[0].extra.as_json()["tool_args"] == arguments


@of(INTERLEAVING)
async def test_step_5_builtin_tools_get_an_event(stub: LLMStub, dialect: Dialect) -> None:
    """Builtins (web_search_call, code_interpreter_call); builtins still hit the runtime's builtin branches."""
    stub.script(
        reply(
            thinking("Look."),
            search("Oslo"),
            thinking("Compute."),
            code("1+1", "2"),
            call("task_complete", finish_message="42"),
        )
    )
    outcome = await run_task(dialect)
    told = [
        (event.extra.as_json()["tool_name"], event.extra.as_json().get("reasoning"))
        for event in tool_calls(outcome)
    ]
    assert told == [
        ("web_search_call", "Look."),
        ("code_interpreter_call", "Compute."),
        ("task_complete", None),
    ]
    assert len(outcome.of(EventKind.BUILTIN_TOOL_CALL)) == 2
    assert outcome.answer == "42"


@of([CHAT[0], RESPONSES[1], CLAUDES[0]])
async def test_step_5_breakpoints_emit_tool_call_first(stub: LLMStub, dialect: Dialect) -> None:
    """Breakpoint tool calls emit `tool_call` before `breakpoint_tool_call`."""
    stub.script(reply(thinking("Ask."), call("ask", question="?")))
    outcome = await run_task(dialect, breakpoint_tools=["ask"])
    kinds = outcome.kinds
    assert kinds.index(EventKind.TOOL_CALL) < kinds.index(EventKind.BREAKPOINT_TOOL_CALL)
    assert tool_calls(outcome)[0].extra.as_json()["reasoning"] == "Ask."


# ------------------------------------------------------------------------------------------------- steps 6 and 7


def event(kind: str, index: int = 0, **data: Any) -> SimpleNamespace:
    """A stream's event as an object with fields; `model_dump` makes a dictionary of it, as of litellm's."""
    fields = {"type": kind, "output_index": index, **data}
    return SimpleNamespace(**fields, model_dump=lambda **_options: fields)


def read_stream(*events: Any, **final: Any) -> list[dict[str, Any]]:
    reader = ResponsesReader(AnswerReader(model_call("")))
    for each in events:
        reader.take(each, ignore)
    return reader.reply({"status": "completed", "output": [], **final}).entries


REASONING = {"id": "rs_1", "type": "reasoning", "summary": []}
SUMMARY = "response.reasoning_summary_text.delta"
FUNCTION = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "help", "arguments": "{}"}


def test_step_6_reasoning_is_collected_from_deltas() -> None:
    """Collect via `response.reasoning_summary_text.delta`; deltas are joined with "" (not newlines); flush what is
    left on `response.completed`: here the item of the reasoning is never reported as done."""
    said = read_stream(
        event("response.output_item.added", item=REASONING),
        event(SUMMARY, summary_index=0, delta="**Ana"),
        event(SUMMARY, summary_index=0, delta="lyzing**"),
        event(SUMMARY, summary_index=1, delta="More."),
        event("response.output_item.done", 1, item=FUNCTION),
        output=[FUNCTION],
    )
    _, (made,) = assemble(said, "responses")
    assert made.reasoning == ["**Analyzing**", "More."]


def test_step_6_reasoning_goes_to_the_call_at_its_place() -> None:
    """Use `response.output_item.added` to map reasoning to tool outputs by `output_index`; the keys align with
    `res.output` indices, also where `res.output` itself lacks the reasoning."""
    searched = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    said = read_stream(
        event("response.output_item.added", 0, item=REASONING),
        event(SUMMARY, 0, summary_index=0, delta="Search."),
        event("response.output_item.added", 1, item={**searched, "status": "in_progress"}),
        event("response.output_item.added", 2, item={**REASONING, "id": "rs_2"}),
        event(SUMMARY, 2, summary_index=0, delta="Help."),
        event("response.output_item.added", 3, item={**FUNCTION, "arguments": ""}),
        output=[searched, FUNCTION],
    )
    _, calls = assemble(said, "responses")
    assert [(call.tool_name, call.reasoning) for call in calls] == [
        ("web_search_call", ["Search."]),
        ("help", ["Help."]),
    ]


@pytest.mark.parametrize("make", [event, lambda *args, **data: event(*args, **data).model_dump()])
def test_steps_6_and_7_dictionaries_and_objects_are_read_alike(make: Any) -> None:
    """Handle dict and object event items; handle both formats for reasoning, message, function_call,
    web_search_call, code_interpreter_call."""
    message = {"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    ran = {"id": "ci_1", "type": "code_interpreter_call", "code": "1+1", "status": "completed"}
    searched = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"query": "q"}}
    summary = {**REASONING, "summary": [{"type": "summary_text", "text": "Hm."}]}
    output = [summary, message, searched, ran, FUNCTION]
    events = [make("response.output_item.done", n, item=item) for n, item in enumerate(output)]
    _, streamed = assemble(read_stream(*events), "responses")
    _, whole = assemble(read_stream(output=output), "responses")
    assert streamed == whole
    assert [call.tool_name for call in whole] == ["web_search_call", "code_interpreter_call", "help"]
    assert (whole[0].reasoning, whole[0].preamble) == (["Hm."], "Hi.")


@of(RESPONSES)
@pytest.mark.parametrize("leaves_out_reasoning", [False, True])
async def test_step_7_calls_are_in_the_order_of_the_output(
    stub: LLMStub, dialect: Dialect, leaves_out_reasoning: bool
) -> None:
    """A single pass over `res.output`; ordering matches; `responses=outputs` on every call; streamed reasoning
    fills in where the final output has none."""
    stub.script(
        reply(
            thinking("A."),
            search("Oslo"),
            thinking("B.\n\nC."),
            call("help"),
            call("await_message"),
            leaves_out_reasoning=leaves_out_reasoning,
        )
    )
    _, calls = await take_turn(dialect)
    assert [call.tool_name for call in calls] == ["web_search_call", "help", "await_message"]
    assert [call.reasoning for call in calls] == [["A."], ["B.", "C."], None]
    kinds = ["reasoning", "web_search_call", "reasoning", "function_call", "function_call"]
    for made in calls:
        assert [item["type"] for item in made.responses] == kinds


@of(RESPONSES)
async def test_step_7_builtin_calls_keep_their_fields(stub: LLMStub, dialect: Dialect) -> None:
    """Keep richer builtin fields (status, outputs, search_type)."""
    stub.script(reply(search("Oslo"), code("1+1", "2"), call("help")))
    _, (searched, ran, _) = await take_turn(dialect)
    assert searched.tool_args["search_type"] == "search"
    assert searched.tool_args["query"] == "Oslo"
    assert searched.tool_args["status"] == ran.tool_args["status"] == "completed"
    assert ran.tool_args["code"] == "1+1"
    assert ran.tool_args["container_id"] == "cntr_1"
    assert ran.tool_args["outputs"] == [{"type": "logs", "logs": "2"}]


@of(RESPONSES)
async def test_step_7_reasoning_that_cannot_be_read_is_none(stub: LLMStub, dialect: Dialect) -> None:
    """An encrypted item without a summary adds nothing."""
    stub.script(reply(redacted(), call("help")))
    _, (made,) = await take_turn(dialect)
    assert (made.reasoning, made.tool_args) == (None, {})


@of(INTERLEAVING)
async def test_steps_6_and_7_text_alone_gets_the_reasoning(stub: LLMStub, dialect: Dialect) -> None:
    """Streaming fallback reasoning is available for text-only responses; text-only responses create `text_output`
    with the first message chunk."""
    stub.script(reply(thinking("Nothing to do."), text("Hello."), leaves_out_reasoning=True))
    _, (made,) = await take_turn(dialect)
    assert (made.tool_name, made.tool_args) == ("text_output", {"content": "Hello."})
    assert made.reasoning == ["Nothing to do."]
    assert made.preamble is None


@of(RESPONSES)
async def test_step_7_text_output_has_the_first_message(stub: LLMStub, dialect: Dialect) -> None:
    """Text-only responses create `text_output` with the first message chunk; the text is all of them."""
    stub.script(reply(text("One."), text("Two.")))
    said, (made,) = await take_turn(dialect)
    assert made.tool_args == {"content": "One."}
    assert said == "One.\n\nTwo."


# ------------------------------------------------------------------------------------------------------- step 8


@of(CLAUDES)
async def test_step_8_calls_get_what_came_since_the_last_one(stub: LLMStub, dialect: Dialect) -> None:
    """Track pending reasoning and preamble by block order; `[redacted thinking]` as placeholder; reasoning is a
    list on the call; each call gets only the reasoning since the previous call; text contributes to the preamble
    and does not reset thinking."""
    stub.script(
        reply(
            thinking("A."),
            text("I search."),
            thinking("B."),
            redacted(),
            search("Oslo"),
            thinking("C."),
            text("I ask."),
            text(" And wait."),
            call("send_request", target="worker", subject="s", body="b"),
            call("await_message"),
            thinking("D."),
        )
    )
    _, calls = await take_turn(dialect)
    assert [(call.tool_name, call.reasoning, call.preamble) for call in calls] == [
        ("web_search_call", ["A.", "B.", "[redacted thinking]"], "I search."),
        ("send_request", ["C."], "I ask. And wait."),
        ("await_message", None, None),
    ]


@of(CLAUDES)
async def test_step_8_completion_is_preserved(stub: LLMStub, dialect: Dialect) -> None:
    """Preserve `completion` for history: every block, results of server tools too, in order."""
    stub.script(reply(thinking("A."), search("Oslo"), thinking("B."), text("Well."), call("help")))
    _, calls = await take_turn(dialect)
    (message,) = calls[0].turns
    assert [block["type"] for block in message["content"]] == [
        "thinking",
        "server_tool_use",
        "web_search_tool_result",
        "thinking",
        "text",
        "tool_use",
    ]


# -------------------------------------------------------------------------------------------------- afterwards


@of(INTERLEAVING)
async def test_afterwards_text_alone_gets_an_event(stub: LLMStub, dialect: Dialect) -> None:
    """Text-only responses emit `tool_call` with UUID and reasoning (if any)."""
    stub.script(reply(thinking("Hm."), text("Hello.")), reply(call("task_complete", finish_message="42")))
    first = tool_calls(await run_task(dialect))[0]
    assert first.extra.as_json()["tool_name"] == "text_output"
    assert UUID(first.extra.as_json()["tool_call_id"])
    assert first.extra.as_json()["reasoning"] == "Hm."
