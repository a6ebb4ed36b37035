"""The supervisor: it hands a user's question to whoever can answer it, waits, and puts the answers together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mail.examples.rule_based.agent import RuleBasedAgent, reply_subject
from mail.examples.rule_based.calls import ToolUse
from mail.examples.rule_based.phrases import after_phrase, brief, find_expressions, mentions_weather
from mail.examples.rule_based.reading import Call, Entry, Letter, Result, back_to

SKILLS: dict[str, Callable[[str], object]] = {"weather": mentions_weather, "math": find_expressions}
"""Which worker can do something with a text, here or in another swarm."""

EXPLANATION = (
    "I can tell you the weather ('weather in Tokyo'), calculate ('12*(3+4)'), ask a human "
    "('ask a human: may I?'), tell all agents something ('announce: lunch is ready') and interrupt one "
    "('urgent: stop')."
)


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a worker has been asked."""

    worker: str
    subject: str

    def is_answered_by(self, letter: Letter) -> bool:
        """Whether the letter is the worker's answer."""
        return letter.sender == self.worker and letter.subject == reply_subject(self.subject)


class Supervisor(RuleBasedAgent):
    """Everything since it last completed the task is one round; a round ends with one answer to the user."""

    def decide(self, letter: Letter, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Hand out what a person asks; wait for the workers; complete when all have answered."""
        _, entries = back_to(earlier, _is_completion)
        this_round = [*entries, letter]
        is_question = letter.is_from_person or (
            letter.is_from_agent and letter.sender not in self.comm_targets
        )
        if is_question and (uses := self._hand_out(letter.body)):
            return uses
        known, missing = self._take_stock(this_round)
        if letter.is_from_system:
            # Either the human has answered, or something is wrong and waiting any longer may not help.
            human = _answers_of_human(this_round)
            known += human or [f"I could not finish: {_first_sentence(letter.body)}"]
        elif missing:
            return [("await_message", {"reason": f"{', '.join(missing)} will answer"})]
        return [("task_complete", {"finish_message": " ".join(known) or EXPLANATION})]

    def _hand_out(self, text: str) -> list[ToolUse]:
        """What to do about a question; nothing where it isn't understood."""
        subject = brief(text)
        able = [worker for worker in self.comm_targets if _can_do(worker, text)]
        wait = ("await_message", {"reason": "the others will answer"})
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
        """The answers that have come, in the order of the questions, and the workers that still owe one."""
        letters = [entry for entry in this_round if isinstance(entry, Letter) and entry.is_from_agent]
        known: list[str] = []
        missing: list[str] = []
        for question in self._questions(this_round):
            answer = next((letter for letter in letters if question.is_answered_by(letter)), None)
            if answer is None:
                missing.append(question.worker)
            else:
                letters.remove(answer)
                known.append(answer.body)
        return known, missing

    def _questions(self, this_round: list[Entry]) -> Iterator[Question]:
        """What was asked, as far as it was sent: a tool's result tells."""
        sent = {
            entry.call_id
            for entry in this_round
            if isinstance(entry, Result) and entry.content.startswith("SUCCESS")
        }
        for entry in this_round:
            match entry:
                case Call(call_id, "send_request" | "send_interrupt", arguments) if call_id in sent:
                    yield Question(arguments["target"], arguments["subject"])
                case Call(call_id, "send_broadcast", arguments) if call_id in sent:
                    for worker in self.comm_targets:
                        if "@" not in worker:  # a broadcast stays in this swarm
                            yield Question(worker, arguments["subject"])


def _can_do(worker: str, text: str) -> bool:
    skill = SKILLS.get(worker.partition("@")[0])
    return skill is not None and bool(skill(text))


def _is_completion(entry: Entry) -> bool:
    return isinstance(entry, Call) and entry.tool == "task_complete"


def _answers_of_human(this_round: list[Entry]) -> list[str]:
    asked = {entry.id for entry in this_round if isinstance(entry, Call) and entry.tool == "ask_human"}
    return [
        entry.content
        for entry in this_round
        if isinstance(entry, Result) and entry.call_id in asked and not entry.content.startswith("ERROR")
    ]


def _first_sentence(text: str) -> str:
    return brief(text.partition("\n")[0].partition(". ")[0].rstrip(".:"), 300) + "."
