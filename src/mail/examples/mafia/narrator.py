"""A rule-based narrator: it announces what its instructions say, and records the players' choices."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.swarm import History, ToolChoice
from mail.examples.mafia import phrases
from mail.examples.mafia.hearings import Heard, Hearing, read_hearings
from mail.examples.rule_based.calls import ToolUse, say
from mail.examples.rule_based.reading import Call, Result, newest_first

Reader = Callable[[re.Match[str], Heard], dict[str, Any]]

READS: Mapping[str, tuple[re.Pattern[str], Reader]] = {
    "doctor_protect": (phrases.PROTECTS, lambda found, _: {"target_name": found["name"]}),
    "detective_investigate": (phrases.INVESTIGATES, lambda found, _: {"target_name": found["name"]}),
    "mafia_vote_kill": (
        phrases.KILLS,
        lambda found, heard: {"mafia_name": heard.sender, "target_name": found["name"]},
    ),
    "record_nomination": (
        phrases.NOMINATES,
        lambda found, heard: {"player_name": heard.sender, "target_name": found["name"]},
    ),
    "record_verdict": (
        phrases.VOTES,
        lambda found, heard: {"player_name": heard.sender, "guilty": found["verdict"].lower() == "guilty"},
    ),
}
"""For each of the narrator's tools, the sentence that triggers it and its arguments."""

NOTHING_FOUND = "You have learned nothing tonight."

TOOL = re.compile(rf"\b(?P<tool>{'|'.join([*READS, 'task_complete'])})\b")


class RuleBasedNarrator:
    """A narrator, whose tools change the game and who speaks the game's own words."""

    def __init__(self, name: str, tool_format: ToolFormat = "responses", **_wiring: Any) -> None:
        self.name = name
        self.tool_format = tool_format

    async def __call__(
        self, messages: History, tool_choice: ToolChoice = "auto"
    ) -> tuple[str | None, list[AgentToolCall]]:
        """Run one turn: first the tools; then, with their results, the words, if there are any."""
        *_, hearing = read_hearings(messages)
        uses = self.uses(hearing)
        if not uses:
            if words := self.words(hearing, messages):
                return words, []
            uses = [("await_message", {"reason": "it is recorded"})]
        return say(self.tool_format, uses, turn_id=f"{self.name}_{len(messages)}")

    def uses(self, hearing: Hearing) -> list[ToolUse]:
        """Return the tools to use now; none in the turn that follows their results."""
        named = TOOL.search(hearing.instructions)
        if named is None or any(heard.message.is_from_system for heard in hearing.heard):
            return []
        if named["tool"] == "task_complete":
            return [("task_complete", {"finish_message": _announcement(hearing)})]
        pattern, read = READS[named["tool"]]
        found = [(pattern.search(heard.text), heard) for heard in hearing.heard]
        return [(named["tool"], read(match, heard)) for match, heard in found if match is not None]

    def words(self, hearing: Hearing, messages: History) -> str:
        """Return its announcement; empty if the instructions contain none."""
        return _finding(messages) if phrases.REPORT in hearing.instructions else _announcement(hearing)


def _announcement(hearing: Hearing) -> str:
    return hearing.instructions.partition(phrases.TELL_THEM)[2]


def _finding(messages: History) -> str:
    """Return the result of the most recent investigation, from its tool."""
    results: dict[str, str] = {}
    for entry in newest_first(messages):
        match entry:
            case Result(call_id, content):
                results[call_id] = content
            case Call(call_id, "detective_investigate"):
                found = phrases.FINDING.search(results.get(call_id, ""))
                return phrases.finding(found["name"], not found["not"]) if found else NOTHING_FOUND
    return NOTHING_FOUND
