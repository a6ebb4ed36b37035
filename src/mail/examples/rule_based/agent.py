"""What the rule-based agents share: the shape of a factory, and of an agent."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from mail.core.protocol.tool_schemas import AgentToolCall, ToolFormat
from mail.core.task.swarm import History, ToolChoice
from mail.examples.rule_based.calls import ToolUse, say
from mail.examples.rule_based.reading import Entry, Letter, newest_first


class RuleBasedAgent(ABC):
    """A factory, as swarms.json names it, is anything that returns an agent function.

    Here it is a class: building it takes the wiring, calling the object takes a history and returns tool
    calls. `decide` is all that a subclass has to add.
    """

    def __init__(
        self,
        name: str,
        comm_targets: Sequence[str],
        tool_format: ToolFormat = "responses",
        **_others: Any,
    ) -> None:
        """Take from the wiring (`tools`, `enable_entrypoint`, `user_token`, …) what rules have a use for."""
        self.name = name
        self.comm_targets = list(comm_targets)
        self.tool_format = tool_format

    async def __call__(
        self, messages: History, tool_choice: ToolChoice = "required"
    ) -> tuple[str | None, list[AgentToolCall]]:
        """One turn. The newest message of the history is the one to work on."""
        entries = newest_first(messages)
        letter = next(entries)
        assert isinstance(letter, Letter)
        # The history only grows, so its length makes ids that are new, and the same when the turn is repeated.
        turn_id = f"{self.name}_{len(messages)}"
        return say(self.tool_format, self.decide(letter, entries), turn_id=turn_id)

    @abstractmethod
    def decide(self, letter: Letter, earlier: Iterator[Entry]) -> list[ToolUse]:
        """The tools to use now that `letter` has come; `earlier` is what went before it, newest first."""


def reply_subject(subject: str) -> str:
    """The subject of the answer to a message."""
    return f"Re: {subject}"
