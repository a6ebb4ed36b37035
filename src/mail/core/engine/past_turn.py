"""A turn of an agent that is over: what the agent read, what its model replied, and what it may have called.

Everything comes from the record: the turn's commit, the state of the task before it, and the agent's history.
Nothing is stored for it. Only the system prompt and the tools are those of the swarm as it is now.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import copy_context
from itertools import groupby
from typing import Any, Literal, Protocol, runtime_checkable

from mail.core.decisions.spans import FAILURES, begins_turn
from mail.core.engine.turn import before_results
from mail.core.protocol.calls import is_tool_result
from mail.core.protocol.message import tier_of
from mail.core.protocol.values import value
from mail.core.task.change import InboxEntry
from mail.core.task.context import UNKNOWN, Portion, bare, is_carried, refer, view
from mail.core.task.costs import Usage
from mail.core.task.events import Event, EventKind
from mail.core.task.ports import Store
from mail.core.task.size import json_size
from mail.core.task.swarm import AgentCore, History, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import TurnTiming
from mail.core.turns.context import TURN, TurnContext
from mail.errors import BadRequest, SnapshotExpired

FIRST_PAGE = 8
"""Portions of a history that are read first."""

SMALL_PAGE = 250_000
"""The size of a page of a history below which the next one has twice as many portions."""


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
        system_prompt: its system prompt; None for an agent function without one.
        tools: the declarations of the tools that it may call in the turn.
        has_more_tools: whether it also gets tools of MCP servers, which only a turn looks up.
    """

    model: str | None
    system_prompt: str | None
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
        omitted: how many older entries of the history are left out; each older turn that was not read counts as one.
        output: what the turn appended to the history: the reply, and the results of its calls. None if it left nothing
            there, as a turn that only waits.
        setup: None if the swarm no longer has the agent.
    """

    agent: str
    first: int
    last: int
    committed: str
    timing: TurnTiming | None
    usage: Usage | None
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
    timing: TurnTiming | None
    usage: Usage | None
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
        agent=event.extra.agent,
        first=commit[0].seq,
        last=commit[-1].seq,
        committed=event.timestamp,
        state="discarded" if kinds[EventKind.TURN_DISCARDED] else "failed" if failed else "ok",
        timing=event.extra.timing,
        usage=event.extra.usage,
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
    """Return the turn of an event of a task, with the last `limit` entries of its history, of at most `max_bytes`.

    These bound what is read, too: the commit of the turn and the one before it, the turn's mail, and the end of the
    history that the agent has read.

    Raises BadRequest for an event that the task doesn't have, or that is not part of a turn of an agent, and
    SnapshotExpired if the turn is no longer stored.
    """
    commit = await store.read_commit(key, seq)
    first, last = commit.events[0].seq, commit.events[-1].seq
    event = _event_of_turn(commit.events)
    if first == 1 or event is None:  # the task began with it, or others have caused it
        raise BadRequest(f"event {seq} of task {key.task_id!r} is not part of a turn of an agent")
    agent = event.extra.agent
    task = (await store.read_commit(key, first - 1)).task
    portions = task.histories.get(agent, 0)
    mail = [await _read_mail(store, key, agent, sent) for mailbox, sent in commit.read if mailbox == agent]
    mail.sort(key=lambda entry: (entry.tier, entry.seq))
    upto = commit.task.histories.get(agent, 0)
    new = await store.read_portions(key, agent, after=portions, upto=upto, at=last) if upto > portions else []
    cut = commit.task.contexts.get(agent, UNKNOWN).cut
    added = [entry for portion in new for entry in portion.entries if not is_carried(entry)]
    prompts, output = _split(added)
    if not added:
        prompts = [entry.prompt for entry in mail]
    if cut.references > portions:
        prompts = [refer(entry, portions + 1, n, cut.long) for n, entry in enumerate(prompts)]
    unread, read = await _read_end(store, key, agent, portions, first, cut.begin - 1, limit, max_bytes)
    carried = bare([entry for portion in new if portion.n == cut.carries for entry in portion.entries])
    known = carried + view(read, cut)
    messages = _messages(task, agent, known, prompts, mail)
    shown = _newest(messages, limit, max_bytes)
    return PastTurn(
        agent,
        first,
        last,
        event.timestamp,
        timing=event.extra.timing,
        usage=event.extra.usage,
        mail=mail,
        history=shown,
        omitted=unread + len(messages) - len(shown),
        output=output if added else None,
        setup=_setup(swarm, agent, task),
    )


async def _read_mail(store: Store, key: TaskKey, mailbox: str, seq: int) -> InboxEntry:
    """Return a message that was in a mailbox, given the seq of the event that delivered it. Raises SnapshotExpired."""
    [event] = await store.read_events(key, after=seq - 1, limit=1)
    if event.seq != seq or event.message is None:
        raise SnapshotExpired(f"message {seq} of task {key.task_id!r} is no longer stored")
    return InboxEntry(mailbox, tier_of(event.message), seq, event.message)


async def _read_end(
    store: Store,
    key: TaskKey,
    agent: str,
    upto: int,
    at: int,
    after: int,
    limit: int | None,
    max_bytes: int | None,
) -> tuple[int, list[Portion]]:
    """Return the end of the agent's portions after `after`, up to `upto`, and how many before it were not read.

    It has more entries than `limit` or `max_bytes` allow, unless it is the whole history. It is read in pages, which
    get longer while they are small.
    """
    found: list[Portion] = []
    count, size, portions = 0, 0, FIRST_PAGE
    if limit is None and max_bytes is None:
        portions = upto
    while upto > after and (limit is None or count <= limit) and (max_bytes is None or size <= max_bytes):
        begin = max(after, upto - portions)
        page = await store.read_portions(key, agent, after=begin, upto=upto, at=at)
        page_size = sum(portion.size for portion in page)
        found, upto = [*page, *found], begin
        count, size = count + sum(len(portion.entries) for portion in page), size + page_size
        if page_size < SMALL_PAGE:
            portions *= 2
    return max(0, upto - after), found


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
    """Return the first event of a commit that an agent's turn has caused; None if the commit is not of a turn."""
    is_reply = any(event.kind is EventKind.BREAKPOINT_ACTION_COMPLETE for event in events)
    return next((event for event in events if begins_turn(event, is_reply=is_reply)), None)


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
    portions = task.histories.get(agent, 0)
    resumed = {each.seq for each in task.resumptions if (each.agent, each.portions) == (agent, portions)}
    if task.manual or resumed.isdisjoint(entry.seq for entry in mail):
        return [*known, *prompts]
    return before_results(known, prompts)


def _setup(swarm: SwarmCore, name: str, task: Task) -> AgentSetup | None:
    if not swarm.has(name):
        return None
    agent = swarm.agent(name)
    return AgentSetup(
        model=agent.model,
        system_prompt=agent.system_prompt,
        tools=copy_context().run(_tools, swarm, agent, name, task),
        has_more_tools=agent.tool_source is not None,
    )


def _tools(swarm: SwarmCore, agent: AgentCore, name: str, task: Task) -> Sequence[Mapping[str, Any]]:
    """Return the tools of a turn: those that the agent's function offers its model, else its actions."""
    TURN.set(TurnContext(agent=name, tools=task.turn_tools(name)))
    if isinstance(agent.function, OffersTools):
        return agent.function.offered_tools()
    return [swarm.actions[action].to_tool_dict(agent.tool_format) for action in agent.actions]
