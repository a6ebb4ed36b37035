"""Turns that are over: all turns of a task in short, and one with what its model read and replied."""

from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import Field
from pydantic_core import to_json

from mail.auth.keys import Caller
from mail.core.engine.past_turn import AgentSetup, PastTurn, read_turn, summarize_turns
from mail.core.engine.watch import read_page
from mail.core.protocol.values import fill
from mail.core.task.audit import Act
from mail.core.task.costs import Usage
from mail.http.access import AdminOrUser, GivenTask, OtherOwner, named_instance
from mail.http.answers import answer, array_pieces, each, object_pieces
from mail.http.audit import audited
from mail.http.bodies import JSON, Answered
from mail.http.break_glass import Reason, load_opened
from mail.http.openapi import PAGE_HEADERS, answers, make_router
from mail.http.routes.streams import MAX_SEQ
from mail.http.service import service_of
from mail.http.task_json import load_task, page_headers, reading
from mail.http.task_records import EVENT_PAGE_BYTES, QueuedMessage, queued_message
from mail.swarms_json.secrets import without_secrets

MAX_ENTRIES = 1000
"""Entries of a history in an answer, at most."""

DEFAULT_ENTRIES = 50

HISTORY_BYTES = 4_000_000
"""Size of these entries, at most."""

SHORTER = "ask for fewer entries of the history: GET /task/turn?task_id=…&seq=…&limit=…"


class ModelCallTiming(Answered):
    """A model call of the turn."""

    model: str
    after: float = Field(description="When it began, in seconds after the turn began.")
    seconds: float = Field(description="How long it took, with all attempts.")
    attempts: int = Field(default=1, description="Absent for 1.")


class TurnTimes(Answered):
    """When the turn began, and how long it took."""

    began: str
    seconds: float
    model_calls: list[ModelCallTiming] = Field(default=[], description="Absent if there were none.")


class AgentSetting(Answered):
    """How the agent was set up in the turn: by the version of the swarm on which it ran."""

    model: str | None = Field(description="The name of its model; null for an agent without one.")
    system: str | None = Field(
        description="Its system prompt, without what looks like a secret; null for an agent without one, and for "
        "callers that are not admins."
    )
    tools: list[dict[str, Any]] = Field(
        description="The declarations of the tools that it may call, in the style of its model's API. For an agent "
        "without a model: its actions."
    )
    has_more_tools: bool = Field(
        description="Whether it also gets tools of MCP servers, which only a turn looks up."
    )
    options: dict[str, Any] | None = Field(
        description="The other parameters of its factory, without what looks like a secret; null for callers that are "
        "not admins."
    )
    version: str | None = Field(
        description="The version of the swarm on which the turn ran, by its digest. Null if that is not known; prompt "
        "and tools are those of the swarm that runs now, then."
    )
    name: str | None = Field(description="The swarm's own name for that version.")
    code: str | None = Field(
        description="What the swarm said about the version of its code; null for nothing."
    )
    is_present: bool = Field(description="Whether prompt and tools are those of the swarm that runs now.")


class TurnSummary(Answered):
    """What a turn was, without anything that was read or written in it."""

    agent: str
    first: int = Field(description="The id (seq) of the first event of the turn.")
    last: int = Field(description="The id of the last one.")
    committed: str = Field(description="When the turn was stored.")
    state: Literal["ok", "failed", "discarded"] = Field(
        description="`failed` if the agent, an action or the task failed in it; `discarded` if the task was cancelled."
    )
    timing: TurnTimes | None = Field(description="Null for a quick turn without a model or an action.")
    usage: Usage | None = Field(description="What its models have cost; null if it has called none.")
    actions: int = Field(description="How many actions it ran.")
    failed_actions: int = Field(description="How many of them failed.")


class Turns(Answered):
    """A page of the turns of a task, in their order."""

    task_id: str
    caller: str = Field(description="The owner of the task.")
    turns: list[TurnSummary]


class TurnRecord(Answered):
    """A turn of an agent that is over."""

    task_id: str
    agent: str
    first: int = Field(description="The id (seq) of the first event of the turn.")
    last: int = Field(description="The id of the last one.")
    committed: str = Field(description="When the turn was stored.")
    timing: TurnTimes | None = Field(description="Null for a quick turn without a model or an action.")
    usage: Usage | None = Field(description="What its models have cost; null if it has called none.")
    mail: list[QueuedMessage] = Field(description="The messages that it read.")
    omitted: int = Field(
        description="How many older entries of the history are left out, at least: an older turn that was not read "
        "counts as one entry. 0 if none are."
    )
    output: list[dict[str, Any]] | None = Field(
        description="What the turn added to the history after that: the model's reply as it came, and the results of "
        "its calls. Null if it added nothing; the events tell what it did."
    )
    setup: AgentSetting | None = Field(
        description="Null if that is not known, and the swarm that runs now has no such agent."
    )
    history: list[dict[str, Any]] = Field(
        description="What the agent was called with, oldest first, in the format of its model's API: the last "
        "`limit` entries, up to 4 MB."
    )


router = make_router("tasks")


@router.get(
    "/task/turns",
    summary="List the turns of a task",
    **answers(Turns, 400, 404, text="The turns.", headers=PAGE_HEADERS),
)
async def get_turns(
    request: Request,
    caller: AdminOrUser,
    task_id: GivenTask,
    of: OtherOwner = None,
    cursor: Annotated[int, Query(ge=0, le=MAX_SEQ, description="The previous page's next cursor.")] = 0,
) -> JSON:
    """Return the turns that are over, a page at a time: agents, times, tokens, cost and states, no text.

    For admins, also those of other callers' tasks; the server's log then names them.
    """
    service = service_of(request)
    runtime = service.runtime
    owner = named_instance(caller, of, runtime.swarm.name)
    async with audited(request, caller, Act.READ_TURNS, task_id, owner=owner):
        task = await load_task(service, caller, task_id, of)
    events = await read_page(
        runtime.store,
        task.key,
        reading(service, request, task),
        after=cursor,
        upto=task.seq,
        max_bytes=EVENT_PAGE_BYTES,
    )
    last = events[-1].seq if events else task.seq
    query = {"task_id": task_id} | ({"caller": of} if of else {})
    headers = page_headers(request, "/task/turns", query, str(last) if last < task.seq else None)
    turns = [asdict(turn) for turn in summarize_turns(events)]
    return JSON({"task_id": task_id, "caller": task.instance, "turns": turns}, headers=headers)


@router.get(
    "/task/turn",
    summary="Inspect a turn of a task",
    **answers(TurnRecord, 400, 404, 409, 410, 413, text="The turn."),
)
async def get_turn(
    request: Request,
    caller: AdminOrUser,
    task_id: GivenTask,
    seq: Annotated[int, Query(ge=1, le=MAX_SEQ, description="The id (seq) of any event of the turn.")],
    limit: Annotated[
        int, Query(ge=0, le=MAX_ENTRIES, description="Entries of the history, at most.")
    ] = DEFAULT_ENTRIES,
    owner: OtherOwner = None,
    reason: Reason = None,
) -> Response:
    """Return what an agent read and replied in a turn: its history then, the raw reply, timing and cost.

    The system prompt, which only admins see, and the tools are those that it had in the turn. `caller` and `reason` are
    those of `/task`.
    """
    service = service_of(request)
    await service.refresh()
    task = await load_opened(request, caller, task_id, owner, reason)
    runtime = service.runtime
    turn = await read_turn(
        runtime.store,
        runtime.swarm,
        task.key,
        seq,
        reading(service, request, task),
        versions=runtime.versions,
        limit=limit,
        max_bytes=HISTORY_BYTES,
    )
    pieces = _pieces(caller, task_id, turn)
    return await answer(request, pieces, advice=SHORTER)


def _pieces(caller: Caller, task_id: str, turn: PastTurn) -> AsyncGenerator[bytes]:
    """Return the turn as `TurnRecord`, in pieces of JSON: histories may be large."""
    record = fill(
        TurnRecord,
        turn,
        task_id=task_id,
        mail=list(map(queued_message, turn.mail)),
        history=array_pieces(to_json(entry) async for entry in each(turn.history)),
        setup=None if turn.setup is None else _setup(caller, turn.setup),
    )
    return object_pieces(each(record.items()))


def _setup(caller: Caller, setup: AgentSetup) -> dict[str, Any]:
    agent, version, is_admin = setup.agent, setup.version, caller.role == "admin"
    return {
        "model": agent.model,
        "system": without_secrets(agent.system_prompt) if is_admin else None,
        "tools": setup.tools,
        "has_more_tools": bool(agent.mcp_servers),
        "options": agent.options if is_admin else None,
        "version": version and version.digest,
        "name": version and version.version,
        "code": (version and version.code) or None,
        "is_present": setup.is_present,
    }
