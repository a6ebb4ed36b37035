"""A turn of an agent that is over: what the agent read, what its model replied, and what it may have called.

Everything comes from the record: the turn's commit, the state of the task before it, the agent's history, and the
version of the swarm on which the turn ran. Nothing else is stored for it. If that version is not known, the system
prompt and the tools are those of the swarm as it is now.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import copy_context
from itertools import groupby
from typing import Any, Literal

from mail.core.decisions.spans import FAILURES, begins_turn
from mail.core.engine.pacing import Paced
from mail.core.engine.turn import before_results
from mail.core.engine.versions import Versions
from mail.core.engine.watch import read_message
from mail.core.protocol.calls import is_tool_result
from mail.core.protocol.message import tier_of
from mail.core.protocol.values import value
from mail.core.task.change import InboxEntry
from mail.core.task.context import UNKNOWN, Portion, bare, is_carried, refer, view
from mail.core.task.costs import Usage
from mail.core.task.events import Event, EventKind
from mail.core.task.ports import Store
from mail.core.task.size import event_size, json_size
from mail.core.task.swarm import ActionCore, AgentCore, History, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import TurnTiming
from mail.core.turns.context import TURN, TurnContext
from mail.core.turns.tools import offered_tools
from mail.errors import BadRequest

FIRST_PAGE = 8
"""Portions of a history that are read first."""

SMALL_PAGE = 250_000
"""The size of a page of a history below which the next one has twice as many portions."""


@value
class AgentSetup:
    """How an agent was set up in a turn.

    Attributes:
        agent: its settings.
        tools: the declarations of the tools that it might call in the turn.
        version: the version of the swarm on which the turn ran; None if that is not known: then the rest is of the
            swarm that runs now.
        is_present: whether the rest is of the swarm that runs now.
    """

    agent: AgentCore
    tools: Sequence[Mapping[str, Any]]
    version: SwarmCore | None
    is_present: bool


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
        setup: None if that swarm has no such agent.
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
    pacer: Paced,
    *,
    versions: Versions | None = None,
    limit: int | None = None,
    max_bytes: int | None = None,
) -> PastTurn:
    """Return the turn of an event of a task, with the last `limit` entries of its history, of at most `max_bytes`.

    These bound what is read, too: the commit of the turn and the one before it, the turn's mail, and the end of the
    history that the agent has read. It is read in pieces, for which `pacer` makes room. `swarm` is the one that runs
    now; `versions` has earlier ones.

    Raises BadRequest for an event that the task doesn't have, or that is not part of a turn of an agent, and
    SnapshotExpired if the turn is no longer stored.
    """
    commit = await store.read_commit(key, seq)
    size = sum(map(event_size, commit.events))
    await pacer.pause(size)
    first, last = commit.events[0].seq, commit.events[-1].seq
    event = _event_of_turn(commit.events)
    if first == 1 or event is None:  # the task began with it, or others have caused it
        raise BadRequest(f"event {seq} of task {key.task_id!r} is not part of a turn of an agent")
    agent = event.extra.agent
    task = (await store.read_commit(key, first - 1)).task
    portions = task.histories.get(agent, 0)
    mail = []
    for mailbox, sent in commit.read:
        if mailbox == agent:
            mail.append(await _read_mail(store, key, agent, sent))
            size += mail[-1].size
            await pacer.pause(size)
    mail.sort(key=lambda entry: (entry.tier, entry.seq))
    upto = commit.task.histories.get(agent, 0)
    new = await store.read_portions(key, agent, after=portions, upto=upto, at=last) if upto > portions else []
    size += sum(portion.size for portion in new)
    await pacer.pause(size)
    cut = commit.task.contexts.get(agent, UNKNOWN).cut
    added = [entry for portion in new for entry in portion.entries if not is_carried(entry)]
    prompts, output = _split(added)
    if not added:
        prompts = [entry.prompt for entry in mail]
    if cut.references > portions:
        prompts = [refer(entry, portions + 1, n, cut.long) for n, entry in enumerate(prompts)]
    unread, read = await _read_end(store, key, agent, portions, first, cut.begin - 1, limit, max_bytes)
    await pacer.pause(size + sum(portion.size for portion in read))
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
        setup=await _setup(
            swarm, versions, next(reversed(commit.task.generation.versions), None), agent, task
        ),
    )


async def _read_mail(store: Store, key: TaskKey, mailbox: str, seq: int) -> InboxEntry:
    """Return a message that was in a mailbox, given the seq of the event that delivered it. Raises SnapshotExpired."""
    message = await read_message(store, key, seq)
    return InboxEntry(mailbox, tier_of(message), seq, message)


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


async def _setup(
    swarm: SwarmCore, versions: Versions | None, digest: str | None, name: str, task: Task
) -> AgentSetup | None:
    """Return the setup of an agent in a turn on the version of the swarm with this digest."""
    version = swarm if digest == swarm.digest else None
    if version is None and digest is not None and versions is not None:
        version = await versions.read(digest)
    found = version or swarm
    if not found.has(name):
        return None
    agent = found.agent(name)
    tools = copy_context().run(_tools, agent, found.actions, name, task)
    return AgentSetup(agent, tools, version, is_present=found is swarm)


def _tools(
    agent: AgentCore, actions: Mapping[str, ActionCore], name: str, task: Task
) -> Sequence[Mapping[str, Any]]:
    TURN.set(TurnContext(agent=name, tools=task.turn_tools(name)))
    return offered_tools(agent.declared_tools(actions), agent.tool_format)
