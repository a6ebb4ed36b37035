#!/usr/bin/env python3
"""Start a server with the example swarm, and talk to it by `mail.client`: all that a client can do, step by step.

    python scripts/demo_client.py

Needs no keys and leaves nothing behind: the database lies in a temporary folder, the port is a free one of this
machine, and the server ends with the script.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import environment  # noqa: F401  # first: it checks that MAIL is installed
from sse_starlette import ServerSentEvent

from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.client import BadAnswer, EventStream, MAILClient
from mail.config import ServerConfig
from mail.server.process import serving
from mail.swarms_json.utils import PACKAGED_SOURCE

WIDTH = 100


def title(text: str) -> None:
    """Begin a step."""
    print(f"\n--- {text}")


def say(text: str, *, short: bool = True) -> None:
    """One line of a step; a short one ends where the terminal does."""
    print(f"  {text[:WIDTH]}…" if short and len(text) > WIDTH else f"  {text}")


def show(event: ServerSentEvent) -> None:
    """One line per event."""
    data = json.loads(str(event.data))
    text = data.get("response") or data.get("description", "")
    say(f"{event.id or '-':>3} {event.event:<26} {' '.join(text.split())}")


async def show_all(stream: EventStream) -> None:
    """Read a stream to its end."""
    async for event in stream:
        show(event)


@asynccontextmanager
async def running_server(database: Path) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """The example swarm behind HTTP; gives the URL, and a token for a user and for an admin."""
    defaults = ServerConfig.model_validate({})
    config = defaults.with_overrides(database=str(database), swarm_source=str(PACKAGED_SOURCE))
    system = local(config, environ={})
    tokens = {
        "user": await issue_token(system.documents, Caller("user", "ann")),
        "admin": await issue_token(system.documents, Caller("admin", "root")),
    }
    async with serving(system) as url:
        yield url, tokens


async def look_around(client: MAILClient) -> None:
    """Which server this is, and who we are to it."""
    title("ping(), get_health(), get_whoami()")
    root = await client.ping()
    say(f"{client.base_url} speaks MAIL {root['protocol_version']}, its swarm is {root['swarm']['name']}")
    say(f"it says that it is {(await client.get_health())['status']}")
    say(f"we are {await client.get_whoami()}")


async def ask(client: MAILClient) -> None:
    """A question, and one more in the same task."""
    title("post_message(): weather in Tokyo")
    answer = await client.post_message("weather in Tokyo", task_id="weather", show_events=True)
    say(answer["response"])
    say(f"on the way {len(answer['events'])} things happened")
    title("post_message(), in the same task: and the weather in Oslo?")
    answer = await client.post_message(
        "and the weather in Oslo?", task_id="weather", resume_from="user_response"
    )
    say(answer["response"])


async def watch(client: MAILClient) -> None:
    """A stream that is left, and taken up where it was left."""
    title("post_message_stream(): 12*(3+4), but only three events of it")
    async with await client.post_message_stream("12*(3+4)") as stream:
        for _ in range(3):
            show(await anext(stream))
    title(f"watch_task(after={stream.last_event_id}): the rest")
    await show_all(await client.watch_task(stream.task_id, after=stream.last_event_id))


async def be_asked(client: MAILClient) -> None:
    """A breakpoint: the swarm waits for what only its user knows."""
    title("post_message(): ask a human: may I?")
    answer = await client.post_message("ask a human: may I?", task_id="question")
    [call] = json.loads(answer["response"])
    say(f"the swarm calls {call['name']} {call['arguments']} and waits")
    title("post_message_stream(resume_from='breakpoint_tool_call'): you may")
    result = json.dumps({"call_id": call["call_id"], "content": "you may"})
    await show_all(
        await client.post_message_stream(
            "",
            task_id="question",
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=result,
        )
    )


async def look_back(client: MAILClient) -> None:
    """What there is to know of tasks."""
    title("get_tasks(), get_task()")
    for task_id, task in (await client.get_tasks()).items():
        say(f"{task_id:<36} {task['status']}, {len(task['events'])} events", short=False)
    latest = await client.get_task("question")
    say(f"the last event of 'question' is {latest['events'][-1]['event']}")


async def be_admin(client: MAILClient, url: str, token: str) -> None:
    """What users may not do, and admins may."""
    title("update_health(), dump_swarm(): for admins")
    try:
        await client.update_health("busy")
    except BadAnswer as refusal:
        say(f"as a user: {refusal}")
    async with MAILClient(url, api_key=token) as admin:
        say(f"as an admin: the swarm is {(await admin.update_health('busy'))['status']}")
        say(f"it has the agents {[agent['name'] for agent in (await admin.dump_swarm())['swarm']['agents']]}")


async def main() -> None:
    """Every step, one after the other."""
    with tempfile.TemporaryDirectory(prefix="mail-demo-client-") as folder:
        async with (
            running_server(Path(folder) / "demo.db") as (url, tokens),
            MAILClient(url, api_key=tokens["user"]) as client,
        ):
            for step in (look_around, ask, watch, be_asked, look_back):
                await step(client)
            await be_admin(client, url, tokens["admin"])
    print("\nThe server has ended.")


if __name__ == "__main__":
    asyncio.run(main())
