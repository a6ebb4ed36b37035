"""Forms: tools that write letters, and those that appeal to the task's owner (mail.core.task.swarm)."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from mail.core.decisions.breakpoints import ANSWERED
from mail.core.decisions.submit import ResumeFrom
from mail.core.protocol.mail_tools import SendRequest, SendResponse
from mail.core.protocol.message import MAILRequest, MAILResponse
from mail.core.task.approvals import Approval
from mail.core.task.events import EventKind
from mail.core.task.swarm import ActionCore, Form, FormContext, FormResult, UserQuestion
from mail.core.task.task import TaskStatus
from mail.errors import BadBreakpointResult, BadRequest, ToolCallFault
from mail.testing.agents import (
    Call,
    View,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    tool_results,
    turns,
    wait,
)
from mail.testing.rig import Outcome, Rig, ask_once


async def never(_arguments: dict[str, Any]) -> str:
    raise AssertionError("a form runs nothing")


def a_form(form: Form, *, name: str = "report", reads_mail: bool = False) -> ActionCore:
    return ActionCore(name, never, form=form, reads_mail=reads_mail)


def report(arguments: dict[str, Any], _desk: FormContext) -> FormResult:
    if "what" not in arguments:
        raise ToolCallFault("report: what is missing")
    letter = SendRequest(target=arguments["to"], subject="REPORT", body=f"It is {arguments['what']}.")
    return FormResult(letter, {"thread_id": "t-1"})


def plead(arguments: dict[str, Any], _desk: FormContext) -> FormResult:
    letter = SendRequest(target="user", subject="PLEA", body=arguments["body"])
    return UserQuestion(letter, {"thread_id": "t-1"}, answer_subjects=("GRACE", "[t-1] GRACE"))


PLEA = a_form(plead, name="plead")


async def test_a_form_sends_what_the_program_words() -> None:
    chief = turns([call("report", to="clerk", what="done")], [complete()])
    swarm = build_swarm(
        {"chief": chief, "clerk": lambda _: [respond("chief")]}, actions={"report": a_form(report)}
    )
    async with Rig(swarm) as rig:
        outcome = await rig.ask()
        (letter,) = outcome.sent_to("clerk")
        assert isinstance(letter.message, MAILRequest)
        assert (letter.message.subject, letter.message.body) == ("REPORT", "It is done.")
        assert letter.message.routing_info == {"thread_id": "t-1"}
        assert tool_results(await rig.history("chief", outcome.key))[0] == "SUCCESS: request sent to clerk"
    assert EventKind.ACTION_CALL not in outcome.kinds
    assert outcome.answer == "done"


async def test_a_response_by_a_form_answers_the_request() -> None:
    def answer(arguments: dict[str, Any], _desk: FormContext) -> FormResult:
        return FormResult(SendResponse(target="chief", subject="S", body=arguments["body"]))

    swarm = build_swarm(
        {
            "chief": turns([request("clerk"), wait()], [complete()]),
            "clerk": lambda _: [call("answer", body="here")],
        },
        actions={"answer": a_form(answer, name="answer")},
    )
    outcome = await ask_once(swarm)
    asked, answered = outcome.sent_to("clerk")[0].message, outcome.sent_to("chief")[-1].message
    assert isinstance(asked, MAILRequest)
    assert isinstance(answered, MAILResponse)
    assert answered.request_id == asked.request_id


@pytest.mark.parametrize(
    ("thread", "answers"), [("t-1", "t-1"), ("t-2", "t-2"), ("t-3", "t-2"), (None, "t-2")]
)
async def test_a_response_with_routing_info_answers_the_request_that_had_the_same(
    thread: str | None, answers: str
) -> None:
    """Else it answers the request just read; here that of t-2."""

    def write(kind: type[SendRequest | SendResponse]) -> Form:
        def form(arguments: dict[str, Any], _desk: FormContext) -> FormResult:
            letter = kind(target=arguments["to"], subject="S", body="b")
            named = arguments["thread"]
            return FormResult(letter, {"thread_id": named} if named else None)

        return form

    swarm = build_swarm(
        {
            "chief": turns(
                [call("ask", to="clerk", thread="t-1"), call("ask", to="clerk", thread="t-2"), wait()],
                [complete()],
            ),
            "clerk": turns([wait()], [call("answer", to="chief", thread=thread)]),
        },
        actions={
            "ask": a_form(write(SendRequest), name="ask"),
            "answer": a_form(write(SendResponse), name="answer"),
        },
    )
    outcome = await ask_once(swarm)
    asked = {
        each.message.request_id: (each.message.routing_info or {})["thread_id"]
        for each in outcome.sent_to("clerk")
        if isinstance(each.message, MAILRequest)
    }
    answered = outcome.sent_to("chief")[-1].message
    assert isinstance(answered, MAILResponse)
    assert asked[answered.request_id] == answers


@pytest.mark.parametrize(
    ("tool", "settles", "waits"),
    [
        (SendResponse, None, False),
        (SendResponse, False, True),
        (SendRequest, None, True),
        (SendRequest, True, False),
    ],
)
async def test_a_form_says_whether_it_settles_the_request(
    tool: type[SendRequest | SendResponse], settles: bool | None, waits: bool
) -> None:
    def answer(_arguments: dict[str, Any], _desk: FormContext) -> FormResult:
        return FormResult(tool(target="chief", subject="S", body="b"), settles=settles)

    waiting: list[bool] = []

    async def look(_arguments: dict[str, Any]) -> str:
        task = await rig.task(submitted.key)
        waiting.append(any(each.sender == "chief" for each in task.requests))
        return "seen"

    swarm = build_swarm(
        {
            "chief": turns([request("clerk"), wait()], [call("look")], [complete()]),
            "clerk": turns([call("answer")], [wait()]),
        },
        actions={"answer": a_form(answer, name="answer"), "look": look},
    )
    async with Rig(swarm) as rig:
        submitted = await rig.submit()
        await rig.outcome(submitted)
    assert waiting == [waits]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"to": "clerk"}, "report: what is missing"),
        ({"to": "nobody", "what": "x"}, "there is no agent 'nobody'"),
    ],
)
async def test_a_form_that_is_filled_in_wrongly_is_told_to_the_agent(
    arguments: dict[str, str], told: str
) -> None:
    chief = turns([call("report", **arguments)], [complete()])
    swarm = build_swarm({"chief": chief, "clerk": turns()}, actions={"report": a_form(report)})
    outcome = await ask_once(swarm)
    assert told in outcome.sent_to("chief")[1].message.body
    assert not outcome.sent_to("clerk")


async def test_an_agent_without_the_form_cannot_fill_it_in() -> None:
    clerk = build_agent(turns([call("report", to="chief", what="x")], [respond("chief")]), targets=["chief"])
    swarm = build_swarm(
        {"chief": turns([request("clerk"), wait()], [complete()]), "clerk": clerk},
        actions={"report": a_form(report)},
    )
    outcome = await ask_once(swarm)
    assert any("there is no tool 'report'" in letter.message.body for letter in outcome.sent_to("clerk"))


async def test_a_form_that_reads_mail_gets_that_of_the_task() -> None:
    seen: list[list[str]] = []

    def look(_arguments: dict[str, Any], desk: FormContext) -> FormResult:
        seen.append([message.message.body for message in desk.mail])
        return FormResult(SendRequest(target="clerk", subject="S", body="b"))

    chief = turns([request("clerk", "first"), wait()], [call("look")], [complete()])
    swarm = build_swarm(
        {"chief": chief, "clerk": lambda _: [respond("chief", "so it is")]},
        actions={"look": a_form(look, name="look", reads_mail=True)},
    )
    await ask_once(swarm, "begin")
    assert seen == [["begin", "first", "so it is"]]


def plaintiff(view: View) -> Sequence[Call]:
    if view.mail.sender_type == "user" and view.mail.subject == "New Message":
        return [call("plead", body="May I?")]
    return [complete(f"{view.mail.subject}: {view.mail.body}")]


@pytest.fixture
async def pleaded() -> AsyncIterator[tuple[Rig, Outcome]]:
    async with Rig(build_swarm({"chief": plaintiff}, actions={"plead": PLEA})) as rig:
        yield rig, await rig.ask()


def in_answer(paused: Outcome, result: Any) -> dict[str, Any]:
    resumes = {"resume_from": ResumeFrom.BREAKPOINT_TOOL_CALL, "breakpoint_tool_call_result": result}
    return {"body": "", "task_id": paused.key.task_id, **resumes}


async def test_an_appeal_pauses_the_task_and_writes_to_its_owner() -> None:
    async with Rig(build_swarm({"chief": plaintiff}, actions={"plead": PLEA})) as rig:
        outcome = await rig.ask()
        letter = outcome.messages[-1].message
        assert outcome.kinds[-1] is EventKind.TASK_COMPLETE
        task = await rig.task(outcome.key)
        assert (task.status, task.generation.breakpoint and task.generation.breakpoint.calls[0].name) == (
            TaskStatus.PAUSED,
            "plead",
        )
    assert isinstance(letter, MAILRequest)
    assert (letter.recipient.address, letter.subject, letter.body) == ("ann", "PLEA", "May I?")
    assert letter.routing_info == {"thread_id": "t-1"}


@pytest.mark.parametrize("subject", ["GRACE", "[t-1] GRACE", " [T-1]  Grace\t"])
async def test_a_message_with_the_answering_subject_resumes_it(
    pleaded: tuple[Rig, Outcome], subject: str
) -> None:
    rig, paused = pleaded
    outcome = await rig.ask("You may.", subject=subject, task_id=paused.key.task_id)
    history = await rig.history("chief", outcome.key)
    asked = next(each.message for each in paused.messages if each.message.subject == "PLEA")
    answer = next(message.message for message in outcome.messages if message.message.subject == "GRACE")
    assert isinstance(asked, MAILRequest)
    assert isinstance(answer, MAILResponse)
    assert (answer.request_id, answer.routing_info) == (asked.request_id, {"thread_id": "t-1"})
    assert outcome.answer == "GRACE: You may."
    assert tool_results(history)[0] == ANSWERED


async def test_the_result_of_a_breakpoint_tool_resumes_it_too(pleaded: tuple[Rig, Outcome]) -> None:
    rig, paused = pleaded
    outcome = await rig.ask(**in_answer(paused, {"content": "Well."}))
    assert outcome.answer == "GRACE: Well."


async def test_a_late_result_does_not_answer_the_next_appeal(pleaded: tuple[Rig, Outcome]) -> None:
    rig, paused = pleaded
    with pytest.raises(BadBreakpointResult, match="results are for 'earlier'"):
        await rig.submit(**in_answer(paused, {"call_id": "earlier", "content": "Well."}))


@pytest.mark.parametrize("subject", ["Other", "[t-2] GRACE", "more GRACE", "GRACE!"])
async def test_another_message_abandons_the_appeal(pleaded: tuple[Rig, Outcome], subject: str) -> None:
    rig, paused = pleaded
    outcome = await rig.ask("forget it", subject=subject, task_id=paused.key.task_id, drop_question=True)
    history = await rig.history("chief", outcome.key)
    assert outcome.answer == f"{subject}: forget it"
    assert tool_results(history)[0].startswith("ERROR: the user sent a new message")


async def test_a_message_that_drops_another_question_does_not_drop_the_answer() -> None:
    def chief(view: View) -> Sequence[Call]:
        if view.mail.subject == "New Message":
            return [call("plead", body="May I?"), call("pay")]
        return [complete()] if view.mail.subject == "Other" else [wait()]

    pay = ActionCore("pay", never, needs_approval=True, reviewers=Approval(by=("user:rev",)))
    async with Rig(build_swarm({"chief": chief}, actions={"plead": PLEA, "pay": pay})) as rig:
        paused = await rig.ask()
        await rig.ask("You may.", subject="GRACE", task_id=paused.key.task_id)
        outcome = await rig.ask("forget it", subject="Other", task_id=paused.key.task_id, drop_question=True)
        history = await rig.history("chief", outcome.key)
    assert "You may." in [message.message.body for message in outcome.sent_to("chief")]
    results = tool_results(history)
    assert results[0] == ANSWERED
    assert results[1].startswith("ERROR: it was not run")


@pytest.mark.parametrize("words", ["", " \n"])
async def test_an_answer_without_words_is_refused(pleaded: tuple[Rig, Outcome], words: str) -> None:
    """However it comes; and the question waits as before."""
    rig, paused = pleaded
    before = await rig.store.load(paused.key)
    by_subject = {"body": words, "subject": "GRACE", "task_id": paused.key.task_id}
    for answer in (by_subject, in_answer(paused, {"content": words})):
        with pytest.raises(BadRequest, match="body must not be empty: it is the answer to a question"):
            await rig.submit(**answer)
    assert await rig.store.load(paused.key) == before


async def test_two_appeals_at_once_are_answered_by_their_calls() -> None:
    def twice(view: View) -> Sequence[Call]:
        if view.mail.subject == "New Message":
            return [call("plead", body="One?"), call("plead", body="Two?")]
        return [complete(view.mail.body)]

    async with Rig(build_swarm({"chief": twice}, actions={"plead": PLEA})) as rig:
        paused = await rig.ask()
        with pytest.raises(BadBreakpointResult, match="2 tool calls wait"):
            await rig.submit("Yes", subject="GRACE", task_id=paused.key.task_id)
        task = await rig.task(paused.key)
        assert task.generation.breakpoint is not None
        results = [
            {"call_id": each.call_id, "content": each.arguments["body"]}
            for each in task.generation.breakpoint.calls
        ]
        outcome = await rig.ask(**in_answer(paused, results))
    assert [m.message.body for m in outcome.sent_to("chief") if m.message.subject == "GRACE"] == [
        "One?",
        "Two?",
    ]
