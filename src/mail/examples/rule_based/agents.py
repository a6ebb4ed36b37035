"""The rule-based agents: a supervisor that delegates the user's requests, and the workers that answer them.

The supervisor sends each question to every worker that can answer it, waits, and combines the answers. A worker
extracts the arguments of its action from a request, calls it, and reports the result. Instead of a language model, a
few phrases decide what a text is about.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import shorten
from typing import Any

from mail.core.protocol.tool_schemas import AgentToolCall, ToolFormat
from mail.core.task.swarm import History, ToolChoice
from mail.errors import Subject
from mail.examples.rule_based.calls import ToolUse, say
from mail.examples.rule_based.reading import Call, Entry, Result, back_to, newest_first
from mail.factories.rules import ReceivedMessage


class RuleBasedAgent(ABC):
    """Base class of the rule-based agents, to be named as `factory` in swarms.json.

    The constructor takes the wiring; calling the object takes a history and returns tool calls. A subclass only has to
    define `decide`.
    """

    def __init__(
        self, name: str, comm_targets: Sequence[str], tool_format: ToolFormat = "responses", **_wiring: Any
    ) -> None:
        """Take the useful parameters of the wiring; ignore `tools`, `enable_entrypoint`, `user_token` and the rest."""
        self.name = name
        self.comm_targets = list(comm_targets)
        self.tool_format = tool_format

    async def __call__(
        self, messages: History, tool_choice: ToolChoice = "required"
    ) -> tuple[str | None, list[AgentToolCall]]:
        """Run one turn, on the newest message of the history."""
        entries = newest_first(messages)
        message = next(entries)
        if isinstance(message, Result):  # of a breakpoint, which resumes the agent without a message
            entries = chain([message], entries)
            message = ReceivedMessage("system", "", Subject.ACTION_COMPLETE, message.content)
        assert isinstance(message, ReceivedMessage)
        # The history only grows, so its length makes ids that are unique, and the same if the turn is repeated.
        turn_id = f"{self.name}_{len(messages)}"
        return say(self.tool_format, self.decide(message, entries), turn_id=turn_id)

    @abstractmethod
    def decide(self, message: ReceivedMessage, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Return the tools to use for `message`; `earlier` has the preceding entries, newest first."""


def reply_subject(subject: str) -> str:
    """Return the subject of the answer to a message."""
    return f"Re: {subject}"


# ----------------------------------------------------------------------------------------------- phrases

MAX_READ = 1000
"""Maximum number of characters of a text that are read."""

_WEATHER = re.compile(r"\b(?:weather|forecast)\b", re.IGNORECASE)
_FORECAST = re.compile(
    r"\b(?:weather|forecast)\b[^.;?!]{0,40}?\b(?:in|at|for(?!\s+(?:today|tomorrow)\b))\s+(?P<place>[^\W\d_].{0,60}?)"
    r"(?=\s+(?:and|or|then|plus|please|today|tomorrow|in\s+\d+\s+days?)\b|\s*[,;:.?!\n(]|\s+\W*\d|\s*$)",
    re.IGNORECASE,
)
_IN_DAYS = re.compile(r"\bin\s+(\d{1,3})\s+days?\b", re.IGNORECASE)
_TOMORROW = re.compile(r"\btomorrow\b", re.IGNORECASE)
_IMPERIAL = re.compile(r"\b(?:fahrenheit|imperial)\b", re.IGNORECASE)

_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
_EXPRESSION = re.compile(rf"[-+(\s]*{_NUMBER}[)\s]*(?:(?:\*\*|//|[-+*/%])[-+(\s]*{_NUMBER}[)\s]*)+")
_DECIMALS = re.compile(r"\b(\d{1,2})\s+decimal", re.IGNORECASE)


def mentions_weather(text: str) -> bool:
    """Return whether the text is about the weather."""
    return _WEATHER.search(text[:MAX_READ]) is not None


def find_forecasts(text: str) -> list[dict[str, Any]]:
    """Return the forecasts that the text requests, as arguments of `get_weather_forecast`."""
    text = text[:MAX_READ]
    in_days = _IN_DAYS.search(text)
    days_ahead = int(in_days.group(1)) if in_days else 1 if _TOMORROW.search(text) else 0
    metric = _IMPERIAL.search(text) is None
    return [
        {"location": found.group("place"), "days_ahead": days_ahead, "metric": metric}
        for found in _FORECAST.finditer(text)
    ]


def find_expressions(text: str) -> list[dict[str, Any]]:
    """Return the calculations that the text requests, as arguments of `calculate_expression`."""
    text = text[:MAX_READ]
    decimals = _DECIMALS.search(text)
    precision = {"precision": int(decimals.group(1))} if decimals else {}
    return [
        {"expression": _without_stray_parentheses(found.group().strip()), **precision}
        for found in _EXPRESSION.finditer(text)
    ]


def _without_stray_parentheses(expression: str) -> str:
    """Remove parentheses that belong to the surrounding text: `3*4)` of `(see 3*4)` becomes `3*4`."""
    surplus = expression.count(")") - expression.count("(")
    while surplus > 0 and expression.endswith(")"):
        expression, surplus = expression[:-1].rstrip(), surplus - 1
    while surplus < 0 and expression.startswith("("):
        expression, surplus = expression[1:].lstrip(), surplus + 1
    return expression


def after_phrase(text: str, phrase: str) -> str | None:
    """Return the text after `phrase` and a colon, such as `stop` of `urgent: stop`; None without the phrase."""
    found = re.compile(rf"\b{phrase}:\s*(?=\S)", re.IGNORECASE).search(text, 0, MAX_READ)
    return text[found.end() :].strip() if found else None


def brief(text: str, width: int = 80) -> str:
    """Return the beginning of a text, in one line."""
    return shorten(text[:MAX_READ], width, placeholder=" …")


# -------------------------------------------------------------------------------------------- supervisor

SKILLS: dict[str, Callable[[str], object]] = {"weather": mentions_weather, "math": find_expressions}
"""By worker, whether it can answer a text; workers of other swarms are included."""

EXPLANATION = (
    "I can tell you the weather ('weather in Tokyo'), calculate ('12*(3+4)'), ask a human "
    "('ask a human: may I?'), tell all agents something ('announce: lunch is ready') and interrupt one "
    "('urgent: stop')."
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a worker."""

    worker: str
    subject: str

    def is_answered_by(self, message: ReceivedMessage) -> bool:
        """Return whether the message is the worker's answer."""
        return message.sender == self.worker and message.subject == reply_subject(self.subject)


class Supervisor(RuleBasedAgent):
    """An agent that delegates. A round starts after a completion of the task and ends with one answer to the user."""

    def decide(self, message: ReceivedMessage, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Delegate a user's question, wait for the workers, and complete the task when all have answered."""
        _, entries = back_to(earlier, lambda each: isinstance(each, Call) and each.tool == "task_complete")
        this_round = [*entries, message]
        is_question = message.is_from_person or (
            message.is_from_agent and message.sender not in self.comm_targets
        )
        if is_question and (uses := self._delegate(message.body)):
            return uses
        known, missing = self._take_stock(this_round)
        if message.is_from_system:
            # Either the human has answered, or something is wrong and waiting longer may not help.
            human = _answers_of_human(this_round)
            known += human or [f"I could not finish: {_first_sentence(message.body)}"]
        elif missing:
            return [("await_message", {"reason": f"{', '.join(missing)} will answer"})]
        return [("task_complete", {"finish_message": " ".join(known) or EXPLANATION})]

    def _delegate(self, text: str) -> list[ToolUse]:
        """Return the tools that delegate a question; none if it isn't understood."""
        subject = brief(text)
        able = [worker for worker in self.comm_targets if _can_do(worker, text)]
        wait = ("await_message", {"reason": "the other agents will answer"})
        if question := after_phrase(text, "ask a human"):
            return [("ask_human", {"question": question})]
        if news := after_phrase(text, "announce"):
            return [("send_broadcast", {"subject": subject, "body": news}), wait]
        if (order := after_phrase(text, "urgent")) and self.comm_targets:
            target = (able or self.comm_targets)[0]
            return [("send_interrupt", {"target": target, "subject": subject, "body": order}), wait]
        requests: list[ToolUse] = [
            ("send_request", {"target": worker, "subject": subject, "body": text}) for worker in able
        ]
        return [*requests, wait] if requests else []

    def _take_stock(self, this_round: list[Entry]) -> tuple[list[str], list[str]]:
        """Return the answers so far, in the order of the requests, and the workers that have not answered."""
        messages = [
            entry for entry in this_round if isinstance(entry, ReceivedMessage) and entry.is_from_agent
        ]
        known: list[str] = []
        missing: list[str] = []
        for request in self._requests(this_round):
            answer = next((message for message in messages if request.is_answered_by(message)), None)
            if answer is None:
                missing.append(request.worker)
            else:
                messages.remove(answer)
                known.append(answer.body)
        return known, missing

    def _requests(self, this_round: list[Entry]) -> Iterator[Request]:
        """Iterate over the requests that were sent, according to the tools' results."""
        sent = {
            entry.call_id
            for entry in this_round
            if isinstance(entry, Result) and entry.content.startswith("SUCCESS")
        }
        for entry in this_round:
            match entry:
                case Call(call_id, "send_request" | "send_interrupt", arguments) if call_id in sent:
                    yield Request(arguments["target"], arguments["subject"])
                case Call(call_id, "send_broadcast", arguments) if call_id in sent:
                    for worker in self.comm_targets:
                        if "@" not in worker:  # broadcasts stay in this swarm
                            yield Request(worker, arguments["subject"])


def _can_do(worker: str, text: str) -> bool:
    skill = SKILLS.get(worker.partition("@")[0])
    return skill is not None and bool(skill(text))


def _answers_of_human(this_round: list[Entry]) -> list[str]:
    asked = {entry.id for entry in this_round if isinstance(entry, Call) and entry.tool == "ask_human"}
    return [
        entry.content
        for entry in this_round
        if isinstance(entry, Result) and entry.call_id in asked and not entry.content.startswith("ERROR")
    ]


def _first_sentence(text: str) -> str:
    return brief(text.partition("\n")[0].partition(". ")[0].rstrip(".:"), 300) + "."


# ----------------------------------------------------------------------------------------------- workers


class Worker(RuleBasedAgent):
    """Base class of agents that answer requests by the result of one action."""

    action: str
    looks_for: str

    @abstractmethod
    def find(self, text: str) -> list[dict[str, Any]]:
        """Return the arguments of the actions that the text requests."""

    @abstractmethod
    def report(self, arguments: dict[str, Any], outcome: str, problem: str) -> str:
        """Return a sentence on one action: its outcome or, if there was one, the problem."""

    def decide(self, message: ReceivedMessage, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Acknowledge broadcasts, run actions for requests, and answer when the system reports that they are done."""
        if message.is_from_system:
            return self._after_actions(message, earlier)
        if message.is_for_everyone:
            noted: ToolUse = ("acknowledge_broadcast", {"note": brief(message.body)})
            confirms = message.sender in self.comm_targets
            return [noted, _reply(message, f"{self.name} has taken note.")] if confirms else [noted]
        actions = [(self.action, arguments) for arguments in self.find(message.body)]
        nothing = f"{self.name} has read '{brief(message.body)}' and found no {self.looks_for} in it."
        return actions or [_reply(message, nothing)]

    def _after_actions(self, message: ReceivedMessage, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Answer the request after a message of the system: the actions are done, or something is wrong."""
        request, since = back_to(
            earlier, lambda each: isinstance(each, ReceivedMessage) and not each.is_from_system
        )
        if not isinstance(request, ReceivedMessage) or any(
            isinstance(each, Call) and each.tool == "send_response" for each in since
        ):
            return [("await_message", {"reason": brief(message.body)})]
        results = {entry.call_id: entry.content for entry in since if isinstance(entry, Result)}
        reports = [
            self._report(entry.arguments, results.get(entry.id, ""))
            for entry in since
            if isinstance(entry, Call) and entry.tool == self.action
        ]
        return [_reply(request, " ".join(reports) or message.body)]

    def _report(self, arguments: dict[str, Any], result: str) -> str:
        """Report a result, which starts with SUCCESS or ERROR; of wrong arguments only the problem."""
        status, _, text = result.partition(": ")
        if status == "SUCCESS":
            return self.report(arguments, text, "")
        problem = text.partition(". Expected: ")[0].rpartition("its arguments are wrong: ")[2]
        return self.report(arguments, "", problem)


class WeatherAgent(Worker):
    """An agent that reports the weather."""

    action = "get_weather_forecast"
    looks_for = "place"

    def find(self, text: str) -> list[dict[str, Any]]:
        """Return locations and days."""
        return find_forecasts(text)

    def report(self, arguments: dict[str, Any], outcome: str, problem: str) -> str:
        """Return the forecast in words."""
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
    """An agent that calculates."""

    action = "calculate_expression"
    looks_for = "calculation"

    def find(self, text: str) -> list[dict[str, Any]]:
        """Return arithmetic expressions."""
        return find_expressions(text)

    def report(self, arguments: dict[str, Any], outcome: str, problem: str) -> str:
        """Return the equation."""
        expression = arguments["expression"]
        return f"{expression} can't be calculated: {problem}." if problem else f"{expression} = {outcome}."


def _reply(message: ReceivedMessage, body: str) -> ToolUse:
    return (
        "send_response",
        {"target": message.sender, "subject": reply_subject(message.subject), "body": body},
    )
