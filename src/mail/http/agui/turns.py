"""The turns of agents, as AG-UI shows them: one of an agent that is not the entrypoint is a subagent of the run.

A subagent begins with the live event of its turn, or else with the record of it, and ends with what comes after that
record. The record of a turn is that of the first subagent of its agent, as an agent has one turn at a time.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from ag_ui import core as ag

from mail.core.decisions import items
from mail.core.task.costs import Usage, add_models
from mail.core.task.live import LiveEvent, LiveKind

_UNRECORDED = frozenset({"handed_back", "parked", "lost", "failed", "taken_over"})
"""How turns end of which the record has nothing."""


class Turns:
    """Writes the subagents of a run, and counts what its turns have cost.

    Attributes:
        raised: the interrupts of the turn that is being recorded.
    """

    def __init__(self, parent: str, emit: Callable[[ag.BaseEvent], None]) -> None:
        """Begin without turns; `parent` is the entrypoint, which is no subagent."""
        self.raised: list[str] = []
        self._parent = parent
        self._emit = emit
        self._begun: dict[str, list[str]] = {}  # the subagents that work, by agent
        self._until: dict[str, datetime] = {}  # when the last turn of an agent ended that is recorded
        self._turn: items.Turn | None = None
        self._subagent: str | None = None  # whose turn is recorded
        self._wrote = ""
        self._turns: dict[str, items.Turn] = {}
        self._models: dict[str, set[str]] = {}

    def live(self, event: LiveEvent) -> None:
        """Note that a turn has begun or ended."""
        if event.kind is LiveKind.TURN_STARTED:
            self._end_turn()
            until = self._until.get(event.agent)
            is_recorded = until is not None and datetime.fromisoformat(event.timestamp) <= until
            if not is_recorded:
                self._begin(event.agent, event.turn)
        elif event.extra.get("outcome") in _UNRECORDED and event.turn in self._begun.get(event.agent, ()):
            self._begun[event.agent].remove(event.turn)
            self._emit(ag.SubagentErrorEvent(subagent_run_id=event.turn, message=event.text))

    def read(self, item: items.Turn | items.ModelCall | items.Mail) -> None:
        """Note a turn of the record, or what its commit adds to it."""
        match item:
            case items.ModelCall():
                self._models.setdefault(item.turn, set()).add(item.model)
            case items.Mail():
                self._wrote = item.text
            case items.Turn():
                self._read_turn(item)

    def subagent_of(self, agent: str) -> str | None:
        """Return the subagent that the calls of an agent belong to; None for the entrypoint."""
        return self._subagent if self._turn is not None and self._turn.agent == agent else None

    def end(self) -> None:
        """End all subagents, with the run."""
        self._end_turn()
        for begun in self._begun.values():
            for subagent in begun:
                self._emit(ag.SubagentFinishedEvent(subagent_run_id=subagent))

    def usage(self) -> list[ag.TokenUsage]:
        """Return what the turns have cost, by model; `other` stands for turns with several."""
        spent: dict[str, Usage] = {}
        for turn in self._turns.values():
            models = self._models.get(turn.id, set())
            if turn.usage is not None:
                spent = add_models(spent, {"".join(models) if len(models) == 1 else "": turn.usage})
        return [_tokens(model, usage) for model, usage in spent.items()]

    def _read_turn(self, turn: items.Turn) -> None:
        if turn.id not in self._turns:
            self._end_turn()
            ended = datetime.fromisoformat(turn.time) + timedelta(seconds=turn.seconds)
            self._until[turn.agent] = ended - timedelta(microseconds=ended.microsecond % 1000)
            if not self._begun.get(turn.agent):
                self._begin(turn.agent, turn.id)
            self._subagent = self._begun[turn.agent].pop(0) if turn.agent != self._parent else None
            self._turn = turn
        elif self._turn is not None and self._turn.id == turn.id:
            self._turn = turn
        self._turns[turn.id] = turn

    def _end_turn(self) -> None:
        """End the subagent whose turn was recorded."""
        turn, subagent, wrote, raised = self._turn, self._subagent, self._wrote, self.raised
        self._turn, self._subagent, self._wrote, self.raised = None, None, "", []
        if turn is None or subagent is None:
            return
        if turn.state != "ok":
            self._emit(ag.SubagentErrorEvent(subagent_run_id=subagent, message=turn.did))
            return
        outcome = ag.SubagentFinishedSuspendedOutcome(interrupt_ids=raised) if raised else None
        self._emit(ag.SubagentFinishedEvent(subagent_run_id=subagent, result=wrote or None, outcome=outcome))

    def _begin(self, agent: str, subagent: str) -> None:
        if agent != self._parent:
            self._begun.setdefault(agent, []).append(subagent)
            self._emit(ag.SubagentStartedEvent(subagent_run_id=subagent, name=agent))


def _tokens(model: str, usage: Usage) -> ag.TokenUsage:
    provider, _, name = model.rpartition("/")
    return ag.TokenUsage(
        provider=provider or None,
        model=name or None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
        reasoning_tokens=usage.reasoning_tokens or None,
        cached_input_tokens=usage.cached_tokens or None,
        cache_write_input_tokens=usage.cache_write_tokens or None,
    )
