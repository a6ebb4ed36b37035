"""A turn of an agent that is over: what the agent read, what its model replied, and what it may have called.

Everything comes from the record: the states of the task before and after the turn's commit, and the agent's history.
Nothing is stored for it. Only the system prompt and the tools are those of the swarm as it is now.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import copy_context
from itertools import groupby
from typing import Any, Literal, Protocol, runtime_checkable

from mail.core.decisions.manual import compressed
from mail.core.engine.turn import before_results
from mail.core.protocol.calls import is_tool_result
from mail.core.protocol.values import value
from mail.core.task.change import InboxEntry
from mail.core.task.client_tools import TURN_TOOLS
from mail.core.task.events import Event, EventKind
from mail.core.task.ports import Store
from mail.core.task.size import json_size
from mail.core.task.swarm import AgentCore, History, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.errors import BadRequest

NOT_A_TURN = frozenset(
    {
        EventKind.HISTORY_INHERITED,
        EventKind.BREAKPOINT_ACTION_COMPLETE,
    }
)
"""Events about an agent that others have caused."""


FAILURES = frozenset(
    {EventKind.AGENT_ERROR, EventKind.ACTION_ERROR, EventKind.DEAD_LETTER, EventKind.TASK_ERROR}
)
"""Events of a turn in which something failed."""


@runtime_checkable
class OffersTools(Protocol):
    """An agent function that knows which tools its model gets in a turn."""

    def offered_tools(self) -> list[dict[str, Any]]:
        """Return the declarations of the tools of the turn that is running."""
        ...


@value
class AgentSetup:
    """How an agent is set up in the swarm that runs now.

    Attributes:
        model: the name of its model; None for an agent function without one.
        system: its system prompt; None for an agent function without one.
        tools: the declarations of the tools that it may call in the turn.
        has_more_tools: whether it also gets tools of MCP servers, which only a turn looks up.
    """

    model: str | None
    system: str | None
    tools: Sequence[Mapping[str, Any]]
    has_more_tools: bool


@value
class PastTurn:
    """A turn that is over.

    Attributes:
        first, last: the seqs of the first and the last event of its commit.
        committed: when it was committed, in ISO 8601.
        timing, usage: as in its first event; None if the record has none.
        mail: the messages that it read.
        history: the entries that the agent's function was called with: its history, and the messages of the turn.
        omitted: how many older entries of the history are left out.
        output: what the turn appended to the history: the reply, and the results of its calls. None if it left nothing
            there, as a turn that only waits.
        setup: None if the swarm no longer has the agent.
    """

    agent: str
    first: int
    last: int
    committed: str
    timing: Mapping[str, Any] | None
    usage: Mapping[str, Any] | None
    mail: Sequence[InboxEntry]
    history: History
    omitted: int
    output: History | None
    setup: AgentSetup | None


@value
class TurnSummary:
    """What a turn was, without anything that was read or written in it.

    Attributes:
        first, last, committed, timing, usage: as in `PastTurn`.
        state: `ok`, `failed` for a turn with an error, or `discarded` for a turn of a cancelled task.
        actions: how many actions it ran.
        failed_actions: how many of them failed.
    """

    agent: str
    first: int
    last: int
    committed: str
    state: Literal["ok", "failed", "discarded"]
    timing: Mapping[str, Any] | None
    usage: Mapping[str, Any] | None
    actions: int
    failed_actions: int


def summarize_turns(events: Iterable[Event]) -> list[TurnSummary]:
    """Return the turns among the events of whole commits, in their order."""
    commits = (list(some) for _, some in groupby(events, key=lambda event: event.timestamp))
    return [_summary(event, commit) for commit in commits if (event := _event_of_turn(commit)) is not None]


def _summary(event: Event, commit: Sequence[Event]) -> TurnSummary:
    kinds = Counter(each.kind for each in commit)
    failed = not FAILURES.isdisjoint(kinds)
    return TurnSummary(
        agent=event.extra["agent"],
        first=commit[0].seq,
        last=commit[-1].seq,
        committed=event.timestamp,
        state="discarded" if kinds[EventKind.TURN_DISCARDED] else "failed" if failed else "ok",
        timing=event.extra.get("timing"),
        usage=event.extra.get("usage"),
        actions=kinds[EventKind.ACTION_CALL],
        failed_actions=kinds[EventKind.ACTION_ERROR],
    )


async def read_turn(
    store: Store,
    swarm: SwarmCore,
    key: TaskKey,
    seq: int,
    *,
    limit: int | None = None,
    max_bytes: int | None = None,
) -> PastTurn:
    """Return the turn to which an event of a task belongs, with the last `limit` entries of the history, of `max_bytes`.

    These bound the result. While it is made, one state of the task and then the agent's history up to the turn are in
    memory, one at a time, as stores have no shorter way to read them.

    Raises BadRequest for an event that the task doesn't have, or that is not part of a turn of an agent, and
    SnapshotExpired if the state of the task at that time is no longer stored.
    """
    after = await store.read_snapshot(key, seq)
    last, histories = after.task.seq, after.task.histories
    left = {(entry.mailbox, entry.seq) for entry in after.mail}
    latest = [event for event in after.events if event.timestamp == after.events[-1].timestamp]
    del after
    first = await _begin(store, key, latest)
    event = _event_of_turn([event for event in latest if event.seq >= first])
    if first == 1 or event is None:  # the task began with it, or others have caused it
        raise BadRequest(f"event {seq} of task {key.task_id!r} is not part of a turn of an agent")
    before = await store.read_snapshot(key, first - 1)
    agent: str = event.extra["agent"]
    mail = [entry for entry in before.mail if entry.mailbox == agent and (agent, entry.seq) not in left]
    task = before.task
    del before
    known, added = await _read_history(
        store, key, agent, task.histories.get(agent, 0), histories.get(agent, 0)
    )
    prompts, output = _split(added)
    if not added:
        prompts = [entry.prompt for entry in mail]
    messages = _messages(task, agent, known, prompts, mail)
    shown = _newest(messages, limit, max_bytes)
    return PastTurn(
        agent,
        first,
        last,
        event.timestamp,
        timing=event.extra.get("timing"),
        usage=event.extra.get("usage"),
        mail=mail,
        history=shown,
        omitted=len(messages) - len(shown),
        output=output if added else None,
        setup=_setup(swarm, agent, task),
    )


async def _begin(store: Store, key: TaskKey, latest: Sequence[Event]) -> int:
    """Return the first event of a commit, given all events with its timestamp.

    Two commits may have the same timestamp, so look where each of them ends. Versions would not tell: a store may raise
    them without an event.
    """
    first = latest[0].seq
    while (end := (await store.read_events(key, after=first - 1, max_bytes=1))[-1].seq) < latest[-1].seq:
        first = end + 1
    return first


async def _read_history(
    store: Store, key: TaskKey, agent: str, before: int, after: int
) -> tuple[History, History]:
    """Return the agent's history up to the portion `before`, and what follows up to `after`."""
    if after == before:
        return (await store.read_history(key, agent, upto=before) if before else []), []
    n = len(await store.read_history(key, agent, upto=before)) if before else 0
    history = await store.read_history(key, agent, upto=after)
    added = history[n:]
    del history[n:]
    return history, added


def _newest(history: History, limit: int | None, max_bytes: int | None) -> History:
    """Return the end of a history, within these bounds."""
    begin, size = len(history), 0
    end = 0 if limit is None else max(0, begin - limit)
    while begin > end:
        size += json_size(history[begin - 1])
        if max_bytes is not None and size > max_bytes:
            break
        begin -= 1
    return history[begin:]


def _event_of_turn(events: Sequence[Event]) -> Event | None:
    """Return the first event of a commit that an agent's turn has caused; None if the commit is not of a turn.

    A commit with the answer to a call, by a person or by the expiry of an approval, may repeat the calls that still wait.
    """
    others = NOT_A_TURN
    if any(event.kind is EventKind.BREAKPOINT_ACTION_COMPLETE for event in events):
        others |= {EventKind.BREAKPOINT_TOOL_CALL}
    return next((event for event in events if "agent" in event.extra and event.kind not in others), None)


def _split(added: History) -> tuple[History, History]:
    """Split what a turn appended to the history: the messages that it read, and the rest."""
    n = 0
    while n < len(added) and added[n].get("role") == "user" and not is_tool_result(added[n]):
        n += 1
    return added[:n], added[n:]


def _messages(
    task: Task, agent: str, known: History, prompts: History, mail: Sequence[InboxEntry]
) -> History:
    """Return what the agent's function was called with."""
    if task.manual:
        return compressed([*known, *prompts])
    portions = task.histories.get(agent, 0)
    resumed = {each.seq for each in task.resumptions if (each.agent, each.portions) == (agent, portions)}
    if resumed.isdisjoint(entry.seq for entry in mail):
        return [*known, *prompts]
    return before_results(known, prompts)


def _setup(swarm: SwarmCore, name: str, task: Task) -> AgentSetup | None:
    agent = swarm.agents.get(name)
    if agent is None:
        return None
    return AgentSetup(
        model=agent.model,
        system=agent.system_prompt,
        tools=copy_context().run(_tools, swarm, agent, name, task),
        has_more_tools=agent.tool_source is not None,
    )


def _tools(swarm: SwarmCore, agent: AgentCore, name: str, task: Task) -> Sequence[Mapping[str, Any]]:
    """Return the tools of a turn: those that the agent's function offers its model, else its actions."""
    TURN_TOOLS.set(task.turn_tools(name))
    if isinstance(agent.function, OffersTools):
        return agent.function.offered_tools()
    return [swarm.actions[action].to_tool_dict(agent.tool_format) for action in agent.actions]
