"""A turn of an agent that is over: what the agent read, what its model replied, and what it may have called.

Everything comes from the record: the states of the task before and after the turn's commit, and the agent's history.
Nothing is stored for it. Only the system prompt and the tools are those of the swarm as it is now.
"""

from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import Any, Protocol, runtime_checkable

from mail.core.decisions.manual import compressed
from mail.core.engine.turn import before_results
from mail.core.protocol.calls import is_tool_result
from mail.core.protocol.values import value
from mail.core.task.change import InboxEntry, Snapshot
from mail.core.task.client_tools import TURN_TOOLS
from mail.core.task.events import Event, EventKind
from mail.core.task.ports import Store
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
    output: History | None
    setup: AgentSetup | None


async def read_turn(store: Store, swarm: SwarmCore, key: TaskKey, seq: int) -> PastTurn:
    """Return the turn to which an event of a task belongs.

    Raises BadRequest for an event that the task doesn't have, or that is not part of a turn of an agent, and
    SnapshotExpired if the state of the task at that time is no longer stored.
    """
    after = await store.read_snapshot(key, seq)
    before = await _before(store, key, seq, after)
    first = before.task.seq + 1
    events = [event for event in after.events if event.seq >= first]
    event = next((event for event in events if _is_of_a_turn(event)), None)
    if event is None:
        raise _no_turn(key, seq)
    agent: str = event.extra["agent"]
    portions, n = (was.task.histories.get(agent, 0) for was in (before, after))
    known = await store.read_history(key, agent, upto=portions) if portions else []
    added = (await store.read_history(key, agent, upto=n))[len(known) :] if n > portions else []
    left = {(entry.mailbox, entry.seq) for entry in after.mail}
    mail = [entry for entry in before.mail if entry.mailbox == agent and (agent, entry.seq) not in left]
    prompts, output = _split(added)
    if not added:
        prompts = [entry.prompt for entry in mail]
    return PastTurn(
        agent,
        first,
        after.task.seq,
        event.timestamp,
        timing=event.extra.get("timing"),
        usage=event.extra.get("usage"),
        mail=mail,
        history=_messages(before.task, agent, known, prompts, mail),
        output=output if added else None,
        setup=_setup(swarm, agent, before.task),
    )


async def _before(store: Store, key: TaskKey, seq: int, after: Snapshot) -> Snapshot:
    """Return the task before the commit that `after` is the result of; `seq` is one of its events.

    The events of a commit have the same timestamp, but so may those of two commits; their versions tell them apart.
    """
    committed = after.events[-1].timestamp
    first = next(event.seq for event in after.events if event.timestamp == committed)
    while True:
        if first > 1:
            before = await store.read_snapshot(key, first - 1)
            if before.task.version == after.task.version - 1:
                return before
        end = (await store.read_snapshot(key, first)).task.seq
        if end == after.task.seq:  # the task began with it
            raise _no_turn(key, seq)
        first = end + 1


def _is_of_a_turn(event: Event) -> bool:
    return "agent" in event.extra and event.kind not in NOT_A_TURN


def _no_turn(key: TaskKey, seq: int) -> BadRequest:
    return BadRequest(f"event {seq} of task {key.task_id!r} is not part of a turn of an agent")


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
