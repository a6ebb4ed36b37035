"""Turns as their owner watches them: the order and the data of events (SPEC, section 9)."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from mail.core.protocol.xml import render_message
from mail.core.task.events import EventKind
from mail.testing.agents import (
    Call,
    View,
    acknowledge,
    broadcast,
    build_swarm,
    call,
    complete,
    ignore,
    request,
    respond,
    turns,
    wait,
)
from mail.testing.rig import Rig, ask_once


async def weather(args: dict[str, Any]) -> str:
    return f"sunny in {args['city']}"


def weather_agent(view: View) -> list[Call]:
    if view.mail.sender_type == "system":
        return [respond("supervisor", view.mail.body)]
    return [call("get_weather", city="Tokyo")]


WEATHER_SWARM = build_swarm(
    {
        "supervisor": turns(
            [request("weather", "Tokyo?"), wait("weather's answer")], [complete("It is sunny.")]
        ),
        "weather": weather_agent,
    },
    actions={"get_weather": weather},
)


async def test_order_of_events_with_two_agents_and_an_action() -> None:
    outcome = await ask_once(WEATHER_SWARM, "How is Tokyo?")
    assert outcome.kinds == [
        "new_message", "tool_call", "tool_call", "await_message", "new_message", "tool_call",
        "action_call", "action_complete", "new_message", "tool_call", "new_message", "tool_call",
        "task_complete_call", "new_message", "task_complete",
    ]  # fmt: skip
    assert [event.extra.as_json()["tool_name"] for event in outcome.of(EventKind.TOOL_CALL)] == [
        "send_request", "await_message", "get_weather", "send_response", "task_complete",
    ]  # fmt: skip


async def test_descriptions_and_data() -> None:
    outcome = await ask_once(WEATHER_SWARM, "How is Tokyo?", task_id="weather-1")
    data = [event.data("weather-1") for event in outcome.events]
    assert all(each["task_id"] == "weather-1" for each in data)
    assert all(datetime.fromisoformat(each["timestamp"]).tzinfo is not None for each in data)
    assert [each["description"] for each in data[:-1] if not each["description"].startswith("sending")] == [
        "agent supervisor called send_request",
        "agent supervisor called await_message",
        "agent 'supervisor' is awaiting a new message: weather's answer",
        "agent weather called get_weather",
        "agent weather executing action tool: get_weather with args: {'city': 'Tokyo'}",
        "action complete (caller = weather):\nsunny in Tokyo",
        "agent weather called send_response",
        "agent supervisor called task_complete",
        "agent supervisor called task_complete, full response to follow",
    ]
    assert data[-1] == {
        "timestamp": data[-1]["timestamp"],
        "task_id": "weather-1",
        "response": "It is sunny.",
    }
    assert outcome.events[-1].logged("weather-1") == {
        **data[-1],
        "description": "task completed",
        "extra_data": {},
    }
    assert outcome.events[0].logged("weather-1") == data[0]


async def test_events_name_the_agent_that_they_are_about() -> None:
    outcome = await ask_once(WEATHER_SWARM, "How is Tokyo?")
    notes = [event for event in outcome.events if event.message is None and not event.is_terminal]
    assert [event.extra.as_json()["agent"] for event in notes] == [
        *["supervisor"] * 3,
        *["weather"] * 4,
        *["supervisor"] * 2,
    ]


async def test_new_message_events_carry_the_whole_message() -> None:
    outcome = await ask_once(WEATHER_SWARM, "How is <Tokyo> & you?")
    first, *_ = outcome.of(EventKind.NEW_MESSAGE)
    assert first.message is not None
    data = first.data(outcome.key.task_id)
    assert data["description"] == f"sending message:\n{render_message(first.message)}"
    assert "<body>How is <Tokyo> & you?</body>" in data["description"]
    message = data["extra_data"]["full_message"]
    UUID(message["id"])
    assert message == {
        "id": message["id"],
        "timestamp": message["timestamp"],
        "msg_type": "request",
        "message": {
            "task_id": outcome.key.task_id,
            "request_id": message["message"]["request_id"],
            "sender": {"address_type": "user", "address": "ann"},
            "recipient": {"address_type": "agent", "address": "supervisor"},
            "subject": "New Message",
            "body": "How is <Tokyo> & you?",
            "routing_info": {},
        },
    }
    json.dumps(data)


async def test_tool_call_events_carry_the_call() -> None:
    outcome = await ask_once(WEATHER_SWARM)
    extras = [event.data("x")["extra_data"] for event in outcome.of(EventKind.TOOL_CALL)]
    assert extras[0] == {
        "agent": "supervisor",
        "tool_name": "send_request",
        "tool_args": {"target": "weather", "subject": "Request", "body": "Tokyo?"},
        "tool_call_id": "supervisor1.0",
    }
    assert extras[1] == {
        "agent": "supervisor",
        "tool_name": "await_message",
        "tool_args": {"reason": "weather's answer"},
        "tool_call_id": "supervisor1.1",
    }
    assert len({extra["tool_call_id"] for extra in extras}) == len(extras)


async def test_reasoning_preamble_and_reference_to_earlier_reasoning() -> None:
    thinking = request("worker")._replace(reasoning=["first", " \n", "second"], preamble="Let me ask.")
    silent = Call("await_message", {}, reasoning=["", "  "])
    outcome = await ask_once(
        build_swarm(
            {
                "supervisor": turns([wait(), thinking, silent, request("worker", "more")], [complete()]),
                "worker": lambda view: [respond("supervisor")],
            }
        )
    )
    extras = [event.extra.as_json() for event in outcome.of(EventKind.TOOL_CALL)][:4]
    assert "reasoning" not in extras[0]
    assert "reasoning_ref" not in extras[0]
    assert "preamble" not in extras[0]
    assert extras[1]["reasoning"] == "first\n\nsecond"
    assert extras[1]["preamble"] == "Let me ask."
    assert "reasoning_ref" not in extras[1]
    for extra in extras[2:]:
        assert "reasoning" not in extra
        assert extra["reasoning_ref"] == extras[1]["tool_call_id"]


async def test_reasoning_is_not_carried_over_to_the_next_turn() -> None:
    outcome = await ask_once(
        build_swarm(
            {
                "supervisor": turns(
                    [Call("help", {}, reasoning=["thought"])], [complete("no thought of its own")]
                )
            }
        )
    )
    extras = [event.extra.as_json() for event in outcome.of(EventKind.TOOL_CALL)]
    assert extras[0]["reasoning"] == "thought"
    assert "reasoning_ref" not in extras[1]


async def test_await_message_event_carries_its_reason() -> None:
    outcome = await ask_once(WEATHER_SWARM)
    (event,) = outcome.of(EventKind.AWAIT_MESSAGE)
    assert event.data("x")["extra_data"] == {"agent": "supervisor", "reason": "weather's answer"}


@pytest.mark.parametrize(
    ("script", "kind", "start"),
    [
        ([call("help")], EventKind.HELP_CALLED, "agent supervisor called help"),
        ([call("nonsense")], EventKind.ACTION_ERROR, "action error (caller = supervisor)"),
        ([call("send_request")], EventKind.AGENT_ERROR, "agent 'supervisor'"),
        ([call("web_search_call", query="x"), call("help")], EventKind.BUILTIN_TOOL_CALL, "agent supervisor"),
    ],
)
async def test_other_events_have_a_description_and_an_agent(
    script: list[Call], kind: EventKind, start: str
) -> None:
    outcome = await ask_once(build_swarm({"supervisor": turns(script, [complete()])}))
    (event,) = outcome.of(kind)
    data = event.data("x")
    assert data["description"].startswith(start)
    assert data["extra_data"] == {"agent": "supervisor"}


async def test_every_call_is_reported_in_order_before_what_it_does() -> None:
    script = [
        call("web_search_call"),
        call("act", n=1),
        request("worker"),
        broadcast(),
        call("help"),
        wait(),
        call("nonsense"),
        call("act", n=2),
    ]
    numbers: list[int] = []

    async def act(args: dict[str, Any]) -> str:
        numbers.append(args["n"])
        return str(args["n"])

    swarm = build_swarm(
        {
            "supervisor": lambda view: script if len(view.messages) == 1 else [complete()],
            "worker": lambda view: (
                [acknowledge()] if view.mail.subject == "News" else [respond("supervisor")]
            ),
        },
        actions={"act": act},
    )
    outcome = await ask_once(swarm)
    assert outcome.kinds[:17] == [
        "new_message",
        "tool_call", "builtin_tool_call",
        "tool_call", "action_call", "action_complete",
        "tool_call", "tool_call",
        "tool_call", "help_called",
        "tool_call", "await_message",
        "tool_call", "action_error",
        "tool_call", "action_call", "action_complete",
    ]  # fmt: skip
    assert outcome.kinds[17:22] == ["new_message"] * 5
    sent = outcome.messages[1:6]
    assert [message.message.subject for message in sent] == [
        "Request", "News", "::help::", "::action_error::", "::action_complete::",
    ]  # fmt: skip
    assert [event.extra.as_json()["tool_name"] for event in outcome.of(EventKind.TOOL_CALL)][:8] == [
        each.tool for each in script
    ]
    assert numbers == [1, 2]


async def test_ignored_broadcasts_are_reported() -> None:
    outcome = await ask_once(
        build_swarm(
            {
                "supervisor": turns([broadcast(), request("worker"), wait()], [complete()]),
                "worker": lambda view: (
                    [ignore("not mine")] if view.mail.subject == "News" else [respond("supervisor")]
                ),
            }
        )
    )
    (event,) = outcome.of(EventKind.BROADCAST_IGNORED)
    assert event.data("x")["extra_data"] == {"agent": "worker"}
    assert "worker" in event.text


async def test_seqs_are_gapless_over_several_generations() -> None:
    async with Rig(build_swarm({"supervisor": lambda view: [complete(str(len(view.messages)))]})) as rig:
        first = await rig.ask(task_id="t")
        second = await rig.ask("more", task_id="t", resume_from="user_response")
    assert [event.seq for event in first.events + second.events] == list(range(1, 11))
    assert (first.answer, second.answer) == ("1", "2")
