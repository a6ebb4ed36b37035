"""A task's events as a conversation."""

import json
from typing import Any

import pytest

from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Asked, Item, fold
from mail.core.protocol.address import MAILAddress, create_agent_address
from mail.core.protocol.clock import SystemClock
from mail.core.protocol.compose import compose_message
from mail.core.task.events import Event, EventKind, read_extra
from mail.core.task.extras import Extra

KIND = EventKind
SYSTEM = MAILAddress(address_type="system", address="swarm")
ANN = MAILAddress(address_type="user", address="ann")


class Timeline:
    """Events of a task, each with a time of its own, but for those that are added `with_last`."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: EventKind, text: str = "", *, with_last: bool = False, **extra: Any) -> "Timeline":
        seq = len(self.events) + 1
        time = self.events[-1].timestamp if with_last else f"2026-01-01T00:00:{seq:02}Z"
        message = extra.pop("message", None)
        self.events.append(Event(seq, kind, time, text, read_extra(kind, extra), message))
        return self

    def mail(
        self, sender: Any, to: Any, body: str, kind: Any = "request", subject: str = "S", **more: Any
    ) -> "Timeline":
        message = compose_message(
            kind,
            task_id="t",
            sender=create_agent_address(sender) if isinstance(sender, str) else sender,
            recipients=[create_agent_address(to) if isinstance(to, str) else to],
            subject=subject,
            body=body,
            clock=SystemClock(),
        )
        return self.add(KIND.NEW_MESSAGE, message=message, **more)

    def ask(self, body: str = "go") -> "Timeline":
        return self.mail(ANN, "lead", body)

    def call(self, name: str, agent: str = "lead", call_id: str = "c", **arguments: Any) -> "Timeline":
        return self.add(
            KIND.TOOL_CALL, agent=agent, tool_name=name, tool_args=arguments, tool_call_id=call_id
        )

    def act(self, name: str, result: str, *, agent: str = "lead", failed: bool = False) -> "Timeline":
        kind = KIND.ACTION_ERROR if failed else KIND.ACTION_COMPLETE
        self.call(name, agent)
        self.add(KIND.ACTION_CALL, with_last=True, agent=agent)
        return self.add(kind, f"action (caller = {agent}):\n{result}", with_last=True, agent=agent)

    def pause(self, *calls: dict[str, Any], agent: str = "lead", with_last: bool = False) -> "Timeline":
        self.add(KIND.BREAKPOINT_TOOL_CALL, agent=agent, with_last=with_last)
        return self.add(KIND.TASK_COMPLETE, json.dumps(calls), with_last=True, question="?")

    def reply(self, text: str = "", agent: str = "lead", **about: Any) -> "Timeline":
        return self.add(KIND.BREAKPOINT_ACTION_COMPLETE, f"complete:\n{text}", agent=agent, **about)

    def answer(self, text: str) -> "Timeline":
        return self.add(KIND.TASK_COMPLETE, text)

    def items(self) -> list[Item]:
        """Read the events, each by a copy of the reader as after a restart."""
        reader, items = Conversation(), []
        for event in self.events:
            reader = reader.copy()
            items += reader.read(event)
        return fold(items)

    def conversation(self) -> list[Any]:
        """Read the events as `items` does; leave out spans."""
        return [item for item in self.items() if item.kind not in ("turn", "model_call", "wait")]

    def kinds(self) -> list[str]:
        """Return the kinds of the conversation, without spans."""
        return [item.kind for item in self.conversation()]

    def one(self, kind: str) -> Any:
        [item] = [item for item in self.items() if item.kind == kind]
        return item


def called(name: str, call_id: str, *, needs_approval: bool = False, **arguments: Any) -> dict[str, Any]:
    more = {"needs_approval": True} if needs_approval else {}
    return {"name": name, "id": call_id, "arguments": json.dumps(arguments), **more}


def test_a_question_work_and_the_answer() -> None:
    timeline = Timeline().ask("weather and sums").call("send_request").mail("lead", "weather", "weather?")
    timeline.act("forecast", "no such city", agent="weather", failed=True).mail(
        "weather", "lead", "dry", "response"
    )
    timeline.answer("It is dry.")
    message, work, mail, action, back, answer = timeline.conversation()
    assert (message.kind, message.who, message.text) == ("message", "ann", "weather and sums")
    assert (work.kind, work.turns, work.agents) == ("work", 2, ("lead", "weather"))
    assert (work.time, work.ended, work.version) == (message.time, answer.time, answer.seq)
    assert (mail.sender, mail.recipients, mail.text, mail.work) == ("lead", ("weather",), "weather?", work.id)
    assert (action.name, action.result, action.has_failed) == ("forecast", "no such city", True)
    assert (back.type, answer.text) == ("response", "It is dry.")


def test_items_grow() -> None:
    timeline, reader = Timeline().ask().call("send_request"), Conversation()
    message, work = reader.read(timeline.events[0])
    assert work.id in [item.id for item in reader.read(timeline.events[1])]
    waits = Event(3, KIND.AWAIT_MESSAGE, timeline.events[1].timestamp, "", Extra(agent="lead"))
    assert [item.kind for item in reader.read(waits)] == ["turn", "note"]
    assert (message.id, work.id) == ("1.0", "1.1")


@pytest.mark.parametrize("tool", ["text_output", "send_request", "a_tool_of_tomorrow"])
def test_a_call_without_a_result_is_no_action(tool: str) -> None:
    assert Timeline().ask().call(tool).answer("Hi").kinds() == ["message", "work", "answer"]


def test_every_action_has_its_own_result() -> None:
    timeline = Timeline().ask().act("look", "rain").act("look", "sun")
    assert [item.result for item in timeline.items() if item.kind == "action"] == ["rain", "sun"]


def test_a_pause_is_a_question() -> None:
    timeline = (
        Timeline()
        .ask()
        .call("ask", call_id="c1", question="May I?")
        .pause(called("ask", "c1", question="May I?"))
    )
    question = timeline.one("question")
    assert (question.agent, question.words, question.reply) == ("lead", "lead asks: May I?", None)
    assert question.asked == Asked("May I?", argument="question")
    timeline.reply("yes\nindeed").answer("You said yes.")
    assert timeline.kinds() == ["message", "work", "question", "work", "answer"]
    assert timeline.one("question").reply.text == "yes\nindeed"


def test_a_question_by_mail_is_said_in_its_words_and_its_answer_once() -> None:
    timeline = Timeline().ask().mail("lead", ANN, "How much?").pause(called("ask_budget", "c1"))
    timeline.reply("ten").mail(ANN, "lead", "ten", "response", with_last=True).answer("Ten it is.")
    question = timeline.one("question")
    assert (question.asked, question.reply.text) == (Asked("How much?", "S"), "ten")
    assert [kind for kind in timeline.kinds() if kind != "work"] == ["message", "question", "answer"]


def test_each_approval_is_decided_by_its_id_and_gets_its_result() -> None:
    a, b = called("pay", "a", needs_approval=True, n=1), called("pay", "b", needs_approval=True, n=2)
    timeline = Timeline().ask().call("pay", call_id="b").pause(a, b, with_last=True)
    timeline.reply(tool_call_id="b", decision="reject", by="user:ann@x", reason="no")
    timeline.pause(a, with_last=True)
    first, second = [item for item in timeline.items() if item.kind == "question"]
    assert (first.reply, second.reply.decision, second.reply.by, second.reply.reason) == (
        None,
        "reject",
        "ann",
        "no",
    )
    assert [item.turns for item in timeline.items() if item.kind == "work"] == [1, 0], "a decision is no turn"
    timeline.reply(tool_call_id="a", decision="approve", by="user:ann@x", reason="").add(
        KIND.ACTION_CALL, agent="lead"
    )
    timeline.add(KIND.ACTION_COMPLETE, "action complete:\npaid", with_last=True, agent="lead")
    first, second = [item for item in timeline.items() if item.kind == "question"]
    assert (first.reply.decision, first.result, second.result) == ("approve", "paid", None)


def test_a_message_instead_of_an_answer_drops_the_question() -> None:
    timeline = Timeline().ask().pause(called("ask", "c")).ask("never mind").pause(called("ask", "c"))
    assert timeline.kinds() == ["message", "work", "question", "message", "work", "question"]
    assert [item.is_open for item in timeline.items() if item.kind == "question"] == [False, True]
    timeline.add(KIND.TASK_CANCELLED, "cancelled by ann")
    assert not any(item.is_open for item in timeline.items() if item.kind == "question")


def test_a_failure_is_said_once() -> None:
    timeline = Timeline().ask().add(KIND.AGENT_ERROR, "an error", agent="lead")
    timeline.add(KIND.AGENT_ERROR, "agent 'lead' failed", agent="lead")
    timeline.add(KIND.TASK_ERROR, "agent 'lead' has failed", with_last=True)
    faults = [(item.text, item.ended_task) for item in timeline.items() if item.kind == "fault"]
    assert faults == [("an error", False), ("agent 'lead' failed", True)]
    assert timeline.kinds() == ["message", "work", "fault", "fault", "failed"]


def test_a_cancellation_is_said_once_and_keeps_the_work_before() -> None:
    timeline = Timeline().ask().call("send_request").add(KIND.TASK_CANCELLED, "cancelled by ann")
    timeline.add(KIND.TASK_ERROR, "cancelled by ann", with_last=True, status="cancelled")
    timeline.add(KIND.TURN_DISCARDED, "discarded", agent="worker")
    assert timeline.kinds() == ["message", "work", "cancelled", "note"]
    assert timeline.one("work").agents == ("lead", "worker")


def test_messages_to_people_and_forks() -> None:
    timeline = Timeline().add(KIND.TASK_FORKED, "fork", forked_from="t0", at=3)
    timeline.add(KIND.HISTORY_INHERITED, "remembers", with_last=True, agent="lead")
    timeline.ask().mail("lead", ANN, "by the way", "response")
    assert timeline.kinds() == ["forked", "note", "message", "work", "told"]


def test_a_redriven_message_is_not_said_again() -> None:
    timeline = Timeline().ask().mail(ANN, "lead", "go", redrives=2)
    assert timeline.kinds() == ["message", "work"]


def test_what_no_other_item_shows_is_a_note() -> None:
    timeline = Timeline().ask().add(KIND.AWAIT_MESSAGE, "waits: the rain", agent="lead", reason="the rain")
    timeline.mail(SYSTEM, "lead", "no such tool", "broadcast", subject="::tool_call_error::")
    timeline.mail(SYSTEM, "lead", "look: rain", "broadcast", subject="::action_complete::")
    timeline.add(KIND.TEXT_ANSWER, "it is a remark", agent="lead", taken_as=None, content="Hm.")
    timeline.add(KIND.TEXT_ANSWER, "it is an answer", agent="lead", taken_as="send_response")
    cut = {"begin": 3, "references": 4, "summary": "It rained."}
    timeline.add(KIND.CONTEXT_CUT, "the context was cut", agent="lead", **cut)
    judged = {"guards": ["g"], "on": "answer"}
    timeline.add(KIND.GUARD_DECISION, "guard g allowed it", agent="lead", outcome="allow", **judged)
    timeline.add(KIND.GUARD_DECISION, "guard g refused it", agent="lead", outcome="refuse", **judged)
    timeline.add(KIND.WEBHOOK_ERROR, "webhook w is removed", hook="w")
    notes = [item for item in timeline.items() if item.kind == "note"]
    assert [(note.agent, note.name, note.text, note.recipients) for note in notes] == [
        ("lead", "await_message", "the rain", ()),
        ("", "tool call error", "no such tool", ("lead",)),
        ("lead", "text_answer", "Hm.", ()),
        ("lead", "context_cut", "the context was cut\n\nIt rained.", ()),
        ("lead", "guard_decision", "guard g refused it", ()),
        ("", "webhook_error", "webhook w is removed", ()),
    ]


def test_mail_and_actions_have_what_the_model_thought() -> None:
    timeline = Timeline().ask()
    call = {"agent": "lead", "tool_args": {}, "tool_call_id": "c"}
    thoughts = {"reasoning": "She knows.", "preamble": "I ask."}
    timeline.add(KIND.TOOL_CALL, tool_name="send_request", **call, **thoughts)
    timeline.add(KIND.TOOL_CALL, with_last=True, tool_name="await_message", **call)
    timeline.mail("lead", "weather", "rain?", with_last=True)
    timeline.mail("lead", "weather", "snow?", with_last=True)
    mail = [item for item in timeline.items() if item.kind == "mail"]
    assert [(each.reasoning, each.said) for each in mail] == [("She knows.", "I ask."), ("", "")]
