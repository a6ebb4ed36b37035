"""The workers: each runs its action on what it understands of a request, and reports the outcome."""

import json
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from mail.examples.rule_based.agent import RuleBasedAgent, reply_subject
from mail.examples.rule_based.calls import ToolUse
from mail.examples.rule_based.phrases import brief, find_expressions, find_forecasts
from mail.examples.rule_based.reading import Call, Entry, Letter, Result, back_to


class Worker(RuleBasedAgent):
    """Answers requests with the outcome of one kind of action."""

    action: str
    looks_for: str

    @abstractmethod
    def find(self, text: str) -> list[dict[str, Any]]:
        """The arguments of the actions that the text asks for."""

    @abstractmethod
    def report(self, arguments: dict[str, Any], outcome: str, problem: str) -> str:
        """A sentence on one action: on its outcome or, where there was one, the problem."""

    def decide(self, letter: Letter, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Take note of news, run actions for requests, and answer once the system tells that they are done."""
        if letter.is_from_system:
            return self._go_on(letter, earlier)
        if letter.is_for_everyone:
            noted: ToolUse = ("acknowledge_broadcast", {"note": brief(letter.body)})
            confirms = letter.sender in self.comm_targets
            return [noted, _reply(letter, f"{self.name} has taken note.")] if confirms else [noted]
        actions = [(self.action, arguments) for arguments in self.find(letter.body)]
        nothing = f"{self.name} has read '{brief(letter.body)}' and found no {self.looks_for} in it."
        return actions or [_reply(letter, nothing)]

    def _go_on(self, letter: Letter, earlier: Iterator[Entry]) -> list[ToolUse]:
        """The system has written: the actions are done, or something is wrong."""
        request, since = back_to(earlier, _is_request)
        if not isinstance(request, Letter) or any(_is_reply(entry) for entry in since):
            return [("await_message", {"reason": brief(letter.body)})]
        results = {entry.call_id: entry.content for entry in since if isinstance(entry, Result)}
        reports = [
            self._report(entry.arguments, results.get(entry.id, ""))
            for entry in since
            if isinstance(entry, Call) and entry.tool == self.action
        ]
        return [_reply(request, " ".join(reports) or letter.body)]

    def _report(self, arguments: dict[str, Any], result: str) -> str:
        """The engine's results begin with SUCCESS or ERROR; of wrong arguments, what is wrong about them is enough."""
        status, _, text = result.partition(": ")
        if status == "SUCCESS":
            return self.report(arguments, text, "")
        problem = text.partition(". Expected: ")[0].rpartition("its arguments are wrong: ")[2]
        return self.report(arguments, "", problem)


class WeatherAgent(Worker):
    """Knows the weather."""

    action = "get_weather_forecast"
    looks_for = "place"

    def find(self, text: str) -> list[dict[str, Any]]:
        """Places and days."""
        return find_forecasts(text)

    def report(self, arguments: dict[str, Any], outcome: str, problem: str) -> str:
        """The forecast in words."""
        if problem:
            return f"There is no forecast for {arguments['location']}: {problem}."
        forecast = json.loads(outcome)
        days = forecast["days_ahead"]
        when = {0: "today", 1: "tomorrow"}.get(days, f"in {days} days")
        return (
            f"The weather in {forecast['location']} {when}: {forecast['condition']}, "
            f"{forecast['temperature']} {forecast['unit']}."
        )


class MathAgent(Worker):
    """Calculates."""

    action = "calculate_expression"
    looks_for = "calculation"

    def find(self, text: str) -> list[dict[str, Any]]:
        """Arithmetic expressions."""
        return find_expressions(text)

    def report(self, arguments: dict[str, Any], outcome: str, problem: str) -> str:
        """The equation."""
        expression = arguments["expression"]
        return f"{expression} can't be calculated: {problem}." if problem else f"{expression} = {outcome}."


def _reply(letter: Letter, body: str) -> ToolUse:
    return (
        "send_response",
        {"target": letter.sender, "subject": reply_subject(letter.subject), "body": body},
    )


def _is_request(entry: Entry) -> bool:
    return isinstance(entry, Letter) and not entry.is_from_system


def _is_reply(entry: Entry) -> bool:
    return isinstance(entry, Call) and entry.tool == "send_response"
