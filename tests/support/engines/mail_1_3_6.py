"""A database as MAIL 1.3.6 leaves it: its four tables, as its documentation has them, and tasks in them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import psycopg
from psycopg.types.json import Jsonb

TABLES = ("agent_histories", "tasks", "task_events", "task_responses")

SCHEMA = """
CREATE TABLE public.agent_histories (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,      -- 'admin', 'agent', or 'user'
    caller_id TEXT NOT NULL,
    tool_format TEXT NOT NULL,      -- 'completions' or 'responses'
    task_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    history JSONB NOT NULL,         -- LLM message history
    created_at TIMESTAMP WITH TIME ZONE DEFAULT NOW(),
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT NOW()
);
CREATE TABLE public.tasks (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    task_id TEXT NOT NULL,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    task_owner TEXT NOT NULL,
    task_contributors JSONB DEFAULT '[]',
    remote_swarms JSONB DEFAULT '[]',
    is_running BOOLEAN DEFAULT FALSE,
    completed BOOLEAN DEFAULT FALSE,
    start_time TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT NOW(),
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT NOW(),
    UNIQUE(task_id, swarm_name, caller_role, caller_id)
);
CREATE TABLE public.task_events (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    task_id TEXT NOT NULL,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    event_type TEXT,
    event_data TEXT,
    event_id TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT NOW()
);
CREATE TABLE public.task_responses (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    task_id TEXT NOT NULL,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    response JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT NOW(),
    UNIQUE(task_id, swarm_name, caller_role, caller_id)
);
"""

BEGAN = datetime(2025, 11, 3, 9, 30, tzinfo=UTC)
NOTHING: Mapping[str, Any] = MappingProxyType({})


def address(text: str) -> dict[str, str]:
    """`user:ann`, `system:example`; without a colon an agent."""
    kind, _, name = text.rpartition(":")
    return {"address_type": kind or "agent", "address": name}


def message(
    task_id: str, kind: str, sender: str, recipient: str, subject: str, body: str, minute: int = 0
) -> dict[str, Any]:
    """A `MAILMessage` of 1.3.6, with its absent members as null."""
    own_id = str(uuid5(NAMESPACE_URL, f"{task_id}{kind}{sender}{recipient}{body}"))
    several = kind not in ("request", "response")
    name = {"request": "request_id", "response": "request_id", "interrupt": "interrupt_id"}.get(
        kind, "broadcast_id"
    )
    swarms = {"recipient_swarms": None} if several else {"recipient_swarm": None}
    to = {"recipients": [address(recipient)]} if several else {"recipient": address(recipient)}
    return {
        "id": own_id,
        "timestamp": (BEGAN + timedelta(minutes=minute)).isoformat(),
        "message": {
            "task_id": task_id, name: own_id, "sender": address(sender), **to, "subject": subject, "body": body,
            "sender_swarm": None, **swarms, "routing_info": {},
        },
        "msg_type": kind,
    }  # fmt: skip


def event(
    task_id: str, kind: str, description: str, minute: int, extra: Mapping[str, Any] = NOTHING
) -> tuple[str, str]:
    """The type and the data of an event."""
    time = (BEGAN + timedelta(minutes=minute)).isoformat()
    if kind in ("task_complete", "task_error"):
        return kind, json.dumps({"timestamp": time, "task_id": task_id, "response": description})
    data = {"timestamp": time, "description": description, "task_id": task_id, "extra_data": dict(extra)}
    return kind, json.dumps(data)


def sent(found: Mapping[str, Any], minute: int) -> tuple[str, str]:
    """The event that announces a message."""
    text = "sending message:\n<incoming_message>…"
    return event(found["message"]["task_id"], "new_message", text, minute, {"full_message": found})


def answered(
    task_id: str, body: str, subject: str = "::task_complete::", sender: str = "supervisor"
) -> dict[str, Any]:
    """The finishing message of a task."""
    return message(task_id, "broadcast_complete", sender, "all", subject, body, 9)


def user_turn(sender: str, subject: str, body: str) -> dict[str, str]:
    """What an agent has read."""
    kind, _, name = sender.rpartition(":")
    return {
        "role": "user",
        "content": (
            "<incoming_message>\n<timestamp>2025-11-03T09:30:00+00:00</timestamp>\n"
            f'<from type="{kind or "agent"}">{name}</from>\n<to>\n<address type="agent">supervisor</address>\n</to>\n'
            f"<subject>{subject}</subject>\n<body>{body}</body>\n</incoming_message>"
        ),
    }


def tool_call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    """A reply with a call, in the style of Chat Completions."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def tool_result(call_id: str, content: str) -> dict[str, str]:
    """Its result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


class OldDatabase:
    """The tables in a database, which `remove` deletes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(SCHEMA)

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        cursor = self._connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def add(
        self,
        task_id: str,
        *,
        swarm: str = "example",
        caller: str = "user:ann",
        owner: str = "",
        contributors: Sequence[str] = (),
        remote_swarms: Sequence[str] = (),
        is_running: bool = False,
        completed: bool = True,
        histories: Mapping[str, Sequence[Mapping[str, Any]]] = NOTHING,
        tool_format: str = "completions",
        events: Sequence[tuple[str, str]] = (),
        response: Mapping[str, Any] | None = None,
    ) -> None:
        """Store a task."""
        role, _, caller_id = caller.partition(":")
        key = (task_id, swarm, role, caller_id)
        owner = owner or f"{caller}@{swarm}"
        self.execute(
            "INSERT INTO public.tasks (task_id, swarm_name, caller_role, caller_id, task_owner, task_contributors,"
            " remote_swarms, is_running, completed, start_time) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            *key, owner, Jsonb([owner, *contributors]), Jsonb([*remote_swarms]), is_running, completed, BEGAN,
        )  # fmt: skip
        for agent, history in histories.items():
            self.execute(
                "INSERT INTO public.agent_histories (task_id, swarm_name, caller_role, caller_id, tool_format,"
                " agent_name, history) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                *key, tool_format, agent, Jsonb([*history]),
            )  # fmt: skip
        for kind, data in events:
            self.execute(
                "INSERT INTO public.task_events (task_id, swarm_name, caller_role, caller_id, event_type, event_data)"
                " VALUES (%s, %s, %s, %s, %s, %s)",
                *key, kind, data,
            )  # fmt: skip
        if response is not None:
            self.execute(
                "INSERT INTO public.task_responses (task_id, swarm_name, caller_role, caller_id, response)"
                " VALUES (%s, %s, %s, %s, %s)",
                *key, Jsonb(dict(response)),
            )  # fmt: skip

    def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of the tables."""
        return {table: self.execute(f"SELECT * FROM public.{table} ORDER BY id") for table in TABLES}

    def remove(self) -> None:
        """Delete the tables."""
        for table in TABLES:
            self.execute(f"DROP TABLE IF EXISTS public.{table}")
        self._connection.close()


def typical_tasks(swarm: str = "example") -> Iterator[dict[str, Any]]:
    """One task of each kind: complete, running, and two that wait at a breakpoint."""
    question = message("trip", "request", "user:ann", "supervisor", "New Message", "weather in Tokyo?")
    asked = message("trip", "request", "supervisor", "weather", "Forecast", "Tokyo, please", 1)
    told = message("trip", "response", "weather", "supervisor", "Re: Forecast", "sunny", 3)
    done = answered("trip", "It will be sunny in Tokyo.")
    yield {
        "task_id": "trip",
        "histories": {
            "supervisor": [
                user_turn("user:ann", "New Message", "weather in Tokyo?"),
                tool_call("c1", "send_request", target="weather", subject="Forecast", message="Tokyo, please"),
                tool_result("c1", "SUCCESS: Message sent successfully to weather"),
                user_turn("weather", "Re: Forecast", "sunny"),
                tool_call("c2", "task_complete", finish_message="It will be sunny in Tokyo."),
                tool_result("c2", "SUCCESS: Task completed"),
            ],
            "weather": [
                user_turn("supervisor", "Forecast", "Tokyo, please"),
                tool_call("w1", "get_weather_forecast", location="Tokyo"),
                tool_result("w1", "SUCCESS: sunny"),
            ],
        },
        "events": [
            sent(question, 0),
            event("trip", "tool_call", "agent supervisor called send_request", 1,
                  {"tool_name": "send_request", "tool_args": {"target": "weather"}, "tool_call_id": "c1"}),
            sent(asked, 1),
            event("trip", "action_call", "agent weather executing action tool: get_weather_forecast with args: {}", 2),
            event("trip", "action_complete", "action complete (caller = weather):\nsunny", 2),
            sent(told, 3),
            event("trip", "task_complete_call", "agent supervisor called task_complete, full response to follow", 9),
            sent(done, 9),
            event("trip", "task_complete", "It will be sunny in Tokyo.", 9),
        ],
        "response": done,
    }  # fmt: skip
    yield {
        "task_id": "crashed",
        "is_running": True,
        "completed": False,
        "contributors": [f"swarm:{swarm}@beta"],
        "remote_swarms": ["beta"],
        "histories": {
            "supervisor": [
                user_turn("user:ann", "New Message", "ask the other swarm"),
                tool_call("c1", "send_request", target="clerk@beta", subject="Q", message="how much?"),
                tool_result("c1", "SUCCESS: Message sent successfully to clerk@beta"),
            ]
        },
        "events": [
            sent(
                message("crashed", "request", "user:ann", "supervisor", "New Message", "ask the other swarm"),
                0,
            ),
            sent(message("crashed", "request", "supervisor", "clerk@beta", "Q", "how much?", 1), 1),
            event(
                "crashed", "interswarm_message_sent", "sent interswarm message forward to swarm beta:\n…", 1
            ),
        ],
    }
    calls = json.dumps([{"arguments": '{"question": "May I?"}', "name": "ask_human", "id": "ask-1"}])
    yield {
        "task_id": "asks",
        "histories": {
            "supervisor": [
                user_turn("user:ann", "New Message", "ask a human: may I?"),
                tool_call("ask-1", "ask_human", question="May I?"),
            ]
        },
        "events": [
            sent(
                message("asks", "request", "user:ann", "supervisor", "New Message", "ask a human: may I?"), 0
            ),
            event("asks", "tool_call", "agent supervisor called ask_human", 1),
            event(
                "asks",
                "breakpoint_tool_call",
                "agent supervisor used breakpoint tools ask_human with args: …",
                1,
            ),
            event("asks", "task_complete", calls, 9),
        ],
        "response": answered("asks", calls, "::breakpoint_tool_call::"),
    }
    item = {
        "arguments": '{"question": "And I?"}', "call_id": "ask-2", "name": "ask_human", "type": "function_call",
        "id": "fc_1", "status": "completed",
    }  # fmt: skip
    yield {
        "task_id": "asks-in-items",
        "caller": "admin:root",
        "tool_format": "responses",
        "histories": {"supervisor": [user_turn("admin:root", "New Message", "ask a human: and I?"), item]},
        "response": answered("asks-in-items", json.dumps([item]), "::breakpoint_tool_call::"),
    }
