"""Who takes part: a host who asks everyone, and guests who answer. They follow rules."""

from collections.abc import Iterator, Sequence
from typing import Any

from mail.core.protocol.tool_schemas import ToolFormat
from mail.examples.rule_based.agent import RuleBasedAgent
from mail.examples.rule_based.calls import ToolUse
from mail.examples.rule_based.reading import Entry, Letter

HOST = "Hanna"
DISHES = {"Gus": "bread and butter", "Gina": "a bowl of cherries"}
"""What each guest brings to a dinner."""

CHANNEL = "dinner"
QUESTION = "Who brings what?"


class Host(RuleBasedAgent):
    """Asks everyone in the group on the channel `dinner`, and thanks those who answer there.

    `prefix` begins the names of its actions (see `mail.exchange.exchange_actions`).
    """

    def __init__(
        self,
        name: str,
        comm_targets: Sequence[str],
        tool_format: ToolFormat = "responses",
        prefix: str = "",
        **others: Any,
    ) -> None:
        super().__init__(name, comm_targets, tool_format, **others)
        self.prefix = prefix

    def decide(self, letter: Letter, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Write to the group when asked to; the mail's subject is the channel that it came on."""
        if letter.is_from_system:  # the mail to the group is on its way
            return [_answer("I have asked everyone.")]
        if letter.body == QUESTION:  # somebody else asks
            return [_answer("")]
        if letter.subject == CHANNEL:
            return [_answer(f"Thank you, {letter.sender}!")]
        ask = {"to": "all", "content": QUESTION, "channel": CHANNEL}
        return [(f"{self.prefix}send_group_mail", ask)]


class Guest(RuleBasedAgent):
    """Says what it brings when it is asked, and nothing else."""

    def decide(self, letter: Letter, earlier: Iterator[Entry]) -> list[ToolUse]:
        """An empty answer is not sent."""
        return [_answer(f"I bring {DISHES[self.name]}." if letter.body == QUESTION else "")]


def _answer(text: str) -> ToolUse:
    return "task_complete", {"finish_message": text}
