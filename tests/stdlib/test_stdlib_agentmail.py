"""The forms of Agent Mail, filled in by agents of a real engine."""

import json
from typing import Any

import pytest
from support.processes.http_server import HTTPServer
from support.services.templates import agent, template

from mail import MAILAction, MAILSwarmTemplate
from mail.agentmail import (
    BeadAccepted,
    BeadState,
    Checkpoint,
    CheckpointReason,
    Done,
    Failed,
    FailureType,
    HelpRequest,
    HelpResponse,
    IssueType,
    OfferingReady,
    Parser,
    Progress,
    SpawnAck,
    SpawnRequest,
    SpawnStatus,
    Tracker,
    TypedMessage,
    ValidationResult,
    envelope_of,
)
from mail.core.decisions.submit import ResumeFrom
from mail.core.protocol.calls import ToolFormat
from mail.core.task.events import EventKind
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskStatus
from mail.errors import ToolCallFault
from mail.stdlib.agentmail.actions import (
    BRIEF,
    HANDOVER,
    ORCHESTRATOR_ACTIONS,
    WORKER_ACTIONS,
)
from mail.stdlib.agentmail.forms import enclosed
from mail.testing.agents import (
    Call,
    Rule,
    View,
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

FORMS: dict[str, MAILAction] = {form.name: form for form in (*WORKER_ACTIONS, *ORCHESTRATOR_ACTIONS)}

CHECKS = {"tests": "PASS", "lint": "PASS", "build": "FAIL"}
WORK: dict[str, Any] = {"commit_sha": "9f8e7d6", "files": ["a.py"], **CHECKS, "summary": "It works."}
STUCK: dict[str, Any] = {
    "issue_type": "SPEC_UNCLEAR",
    "problem": "Two limits.",
    "what_i_tried": "Both.",
    "question": "Which one?",
}
LEFT: dict[str, Any] = {
    "reason": "CONTEXT_HIGH",
    "commit_sha": "1a2b3c4",
    "description": "half of it",
    "context_usage": 85,
    "next_steps": "The rest.\n## And\nBead: none",
}


def crew(chief: Rule, worker: Rule, **settings: Any) -> SwarmCore:
    """Two agents that have all forms."""
    actions = {name: form.to_core() for name, form in FORMS.items()}
    return build_swarm({"chief": chief, "worker": worker}, actions=actions, **settings)


def fill_in(form: str, bead: str = "ol-1", target: str = "chief", **fields: Any) -> Call:
    return call(form, target=target, bead_id=bead, **fields)


def typed(outcome: Outcome, agent: str) -> list[TypedMessage]:
    """What was sent to an agent, as a strict parser reads it; what is of no type left out."""
    lenient, strict = Parser(exact_subjects=True), Parser(strict=True)
    envelopes = [envelope_of(message) for message in outcome.sent_to(agent)]
    return [strict.parse(each).parsed for each in envelopes if lenient.parse(each).type != "UNKNOWN"]


def follow(outcome: Outcome) -> Tracker:
    tracker = Tracker()
    tracker.extend(outcome.messages)
    return tracker


# ------------------------------------------------------------------------------------------------- the letters


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
@pytest.mark.parametrize(
    ("form", "fields", "message"),
    [
        ("report_progress", {"step": "4", "status": "testing"}, Progress(step="4", status="testing")),
        ("ask_for_help", {**STUCK, "files_touched": ["a.py"]}, HelpRequest(
            issue_type=IssueType.SPEC_UNCLEAR, problem="Two limits.", what_i_tried="Both.",
            question="Which one?", files_touched=("a.py",),
        )),
        ("offer_work", WORK, OfferingReady(
            commit_sha="9f8e7d6", files=("a.py",), tests=ValidationResult.PASS, lint=ValidationResult.PASS,
            build=ValidationResult.FAIL, summary="It works.",
        )),
        ("report_done", WORK, Done(
            commit_sha="9f8e7d6", files=("a.py",), tests=ValidationResult.PASS, lint=ValidationResult.PASS,
            build=ValidationResult.FAIL, summary="It works.",
        )),
        ("report_failure", {"failure_type": "ERROR", "reason": "no", "recommendation": "None."}, Failed(
            failure_type=FailureType.ERROR, reason="no", recommendation="None.",
        )),
        ("leave_checkpoint", LEFT, Checkpoint(
            reason=CheckpointReason.CONTEXT_HIGH, commit_sha="1a2b3c4", description="half of it",
            context_usage=85, next_steps="The rest.\n## And\nBead: none",
        )),
        ("acknowledge_request", {"status": "spawned", "session": "s-1"}, SpawnAck(
            status=SpawnStatus.SPAWNED, session="s-1",
        )),
    ],
)  # fmt: skip
async def test_each_form_sends_its_message(
    form: str, fields: dict[str, Any], message: TypedMessage, tool_format: ToolFormat
) -> None:
    chief = turns([request("worker"), wait()], [complete()], [complete()])
    outcome = await ask_once(crew(chief, turns([fill_in(form, **fields)]), tool_format=tool_format))
    (read,) = typed(outcome, "chief")
    assert read == message.model_copy(update={"bead_id": "ol-1"})
    (sent,) = [each for each in outcome.sent_to("chief") if each.sender.address == "worker"]
    assert sent.message.routing_info == {"thread_id": "ol-1"}
    assert sent.msg_type == ("request" if form in ("ask_for_help", "offer_work") else "response")
    assert EventKind.ACTION_CALL not in outcome.kinds


async def test_accepting_tells_when() -> None:
    chief = turns(
        [call("request_worker", target="worker", bead_id="ol-1", brief="Be quick."), wait()], [complete()]
    )
    outcome = await ask_once(crew(chief, turns([fill_in("accept_bead", title="Limits")])))
    (asked,), (accepted,) = typed(outcome, "worker"), typed(outcome, "chief")
    assert asked == SpawnRequest(bead_id="ol-1", orchestrator="chief")
    assert enclosed(outcome.sent_to("worker")[0].message.body, BRIEF) == "Be quick."
    assert isinstance(accepted, BeadAccepted)
    assert (accepted.bead_id, accepted.title) == ("ol-1", "Limits")
    sent = next(each for each in outcome.sent_to("chief") if each.sender.address == "worker")
    assert accepted.started_at == sent.timestamp
    tracker = follow(outcome)
    assert tracker.who_works_on_what() == {"worker": ("ol-1",)}
    assert tracker.pending() == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (fill_in("accept_bead"), "accept_bead: title: Field required"),
        (fill_in("accept_bead", title="of\ntwo lines"), "title is not valid"),
        (fill_in("accept_bead", title="  "), "title is missing"),
        (fill_in("accept_bead", "an [odd] name", title="x"), "bead_id is not valid"),
        (fill_in("accept_bead", "", title="x"), "bead_id: String should have at least 1 character"),
        (fill_in("accept_bead", title="x", target="nobody"), "there is no agent 'nobody'"),
        (fill_in("accept_bead", title="x", colour="red"), "colour: Extra inputs are not permitted"),
        (fill_in("report_progress", step="1", status="x", context_usage=-1), "greater than or equal to 0"),
        (fill_in("ask_for_help", **{**STUCK, "issue_type": "LAZY"}), "Input should be 'STUCK'"),
        (fill_in("ask_for_help", **{**STUCK, "issue_type": ""}), "one of the words that the tool names"),
        (fill_in("report_done", **{**WORK, "tests": "maybe"}), "Input should be 'PASS'"),
        (fill_in("acknowledge_request", status="spawned"), "session is missing"),
        (call("answer_help", target="chief", guidance="so"), "'chief' has not asked you for help;"),
        (
            call("answer_help", target="chief", bead_id="b-2", guidance="so"),
            "'chief' has not asked you for help with 'b-2';",
        ),
        (fill_in("request_worker", resume=True), "bead 'ol-1' has no checkpoint in this task"),
    ],
)  # fmt: skip
async def test_the_agent_is_told_what_is_wrong(wrong: Call, told: str) -> None:
    chief = turns([request("worker"), wait()], [complete()])
    async with Rig(crew(chief, turns([wrong], [respond("chief")]))) as rig:
        outcome = await rig.ask()
        history = await rig.history("worker", outcome.key)
    assert told in tool_results(history)[0]
    assert tool_results(history)[0].startswith("ERROR: ")
    assert outcome.answer == "done"
    assert typed(outcome, "chief") == []


def test_agents_are_offered_no_empty_word() -> None:
    words = [
        field["enum"]
        for form in FORMS.values()
        for field in form.parameters["properties"].values()
        if "enum" in field
    ]
    assert len(words) == 10
    assert all(word for choices in words for word in choices)
    assert "$" not in json.dumps([form.parameters for form in FORMS.values()])


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: str(form.name))
async def test_there_is_nothing_to_run(form: MAILAction) -> None:
    with pytest.raises(ToolCallFault, match="this is a form"):
        await form({})


# ------------------------------------------------------------------------------------------ what keeps waiting


@pytest.mark.parametrize(
    ("first", "waits"),
    [
        (fill_in("accept_bead", title="x"), True),
        (fill_in("report_progress", step="1", status="x"), True),
        (fill_in("acknowledge_request", status="spawned", session="s"), True),
        (fill_in("acknowledge_request", status="failed"), False),
        (fill_in("report_done", **WORK), False),
        (fill_in("report_failure", failure_type="ERROR", reason="x", recommendation="y"), False),
        (fill_in("leave_checkpoint", **LEFT), False),
        (fill_in("offer_work", **WORK), False),
    ],
    ids=lambda value: value.tool if isinstance(value, Call) else "",
)
async def test_whoever_asked_may_go_on_waiting(first: Call, waits: bool) -> None:
    def chief(view: View) -> list[Call]:
        match len(view.messages):
            case 1:
                return [call("request_worker", target="worker", bead_id="ol-1"), wait()]
            case 2:
                return [wait()]
            case _:
                return [complete(view.mail.subject)]

    outcome = await ask_once(crew(chief, turns([first], [wait()])))
    told = any("there is nothing to await" in event.text for event in outcome.of(EventKind.AGENT_ERROR))
    assert told is not waits


async def test_an_offering_waits_for_its_answer() -> None:
    chief = turns([call("request_worker", target="worker", bead_id="a-1"), wait()], [respond("worker", "Good.")],
                  [complete()])  # fmt: skip
    worker = turns([fill_in("offer_work", "a-1", **WORK), wait()], [request("chief", "Thanks"), wait()])
    outcome = await ask_once(crew(chief, worker))
    tracker = follow(outcome)
    assert tracker.beads()["a-1"].state is BeadState.DONE
    offering = next(m for m in tracker.thread("a-1").messages if isinstance(m.parsed, OfferingReady))
    assert (offering.acknowledged, offering.acknowledged_by) == (True, "chief")


# ----------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize(
    ("bead", "subject"), [("a-1", "[a-1] HELP_RESPONSE"), ("help_request-1", "HELP_RESPONSE")]
)
async def test_help_comes_back_in_the_same_thread(bead: str, subject: str) -> None:
    chief = turns(
        [request("worker"), wait()], [call("answer_help", target="worker", guidance="The first."), wait()], [complete()]
    )  # fmt: skip
    worker = turns([fill_in("ask_for_help", bead, **STUCK), wait()], [fill_in("report_done", bead, **WORK)])
    outcome = await ask_once(crew(chief, worker))
    (helped,) = typed(outcome, "worker")
    assert isinstance(helped, HelpResponse)
    assert helped.guidance == "The first."
    assert outcome.sent_to("worker")[1].message.subject == subject
    thread = follow(outcome).thread(bead)
    types = [(turn.message.type.value, turn.level) for turn in thread.conversation]
    assert types == [("HELP_REQUEST", 0), ("HELP_RESPONSE", 1), ("DONE", 0)]
    assert thread.summary.state is BeadState.DONE
    assert thread.summary.pending == ()


async def test_help_for_one_of_two_beads() -> None:
    """The offering came first; the answer is not for it, nor for the bead that was asked about first."""

    def chief(view: View) -> list[Call]:
        match len(view.messages):
            case 1:
                return [request("worker"), wait()]
            case 4:
                return [call("answer_help", target="worker", bead_id="b-1", guidance="So."), wait()]
            case 5:
                return [complete()]
            case _:
                return [wait()]

    asking = [fill_in("ask_for_help", bead, **STUCK) for bead in ("a-1", "b-1")]
    worker = turns(
        [fill_in("offer_work", "o-1", **WORK), *asking, wait()], [request("chief", "well"), wait()]
    )
    outcome = await ask_once(crew(chief, worker))
    tracker = follow(outcome)
    assert [message.bead_id for message in tracker.pending()] == ["o-1", "a-1"]
    assert tracker.beads()["b-1"].state is BeadState.WORKING
    assert [m.type.value for m in tracker.thread("b-1").messages] == ["HELP_REQUEST", "HELP_RESPONSE"]


def pleader(view: View) -> list[Call]:
    if view.mail.sender_type == "user" and view.mail.subject == "New Message":
        return [call("ask_for_help", bead_id="ol-1", **STUCK)]
    return [complete(f"{view.mail.subject}: {view.mail.body}")]


async def test_help_of_the_user_pauses_the_task_and_a_response_over_http_resumes_it() -> None:
    async with HTTPServer(crew(pleader, turns())) as server:
        answer = await server.ask(task_id="t")
        (waiting,) = json.loads(answer["response"])
        record = await server.task("t")
        assert (waiting["name"], record["status"]) == ("ask_for_help", "paused")
        (pending,) = record["pending_tool_calls"]
        subjects = ["HELP_RESPONSE", "[ol-1] HELP_RESPONSE", "ol-1: HELP_RESPONSE"]
        assert pending["asks"]["answer_subjects"] == subjects
        answer = await server.ask(body="The first one.", subject="HELP_RESPONSE", task_id="t")
        assert answer["response"] == "HELP_RESPONSE: The first one."
        record = await server.task("t")
        assert record["status"] == "completed"
        events = [json.loads(event["data"]).get("extra_data", {}) for event in record["events"]]
    sent = [event["full_message"]["message"] for event in events if "full_message" in event]
    asked = next(each for each in sent if each["subject"] == "[ol-1] HELP_REQUEST")
    told = next(each for each in sent if each["subject"] == "HELP_RESPONSE")
    assert asked["recipient"] == {"address_type": "user", "address": "ann"}
    assert (told["request_id"], told["routing_info"]) == (asked["request_id"], {"thread_id": "ol-1"})


async def test_only_whoever_was_asked_answers() -> None:
    """The chief asks the clerk; the worker can't answer that."""
    chief = turns(
        [fill_in("ask_for_help", target="clerk", **STUCK), request("worker"), wait()], [wait()], [complete()]
    )
    worker = turns([call("answer_help", target="chief", guidance="Mine.")], [respond("chief")])
    actions = {name: form.to_core() for name, form in FORMS.items()}
    swarm = build_swarm(
        {"chief": chief, "worker": worker, "clerk": turns([request("chief"), wait()])}, actions=actions
    )
    async with Rig(swarm) as rig:
        outcome = await rig.ask()
        history = await rig.history("worker", outcome.key)
    assert "'chief' has not asked you for help" in tool_results(history)[0]


async def test_a_worker_may_have_to_report_to_somebody_else() -> None:
    chief = turns(
        [call("request_worker", target="worker", bead_id="a-1", orchestrator="boss"), wait()], [complete()]
    )
    outcome = await ask_once(crew(chief, turns([respond("chief")])))
    assert typed(outcome, "worker") == [SpawnRequest(bead_id="a-1", orchestrator="boss")]


async def test_a_worker_may_ask_the_user_too() -> None:
    chief = turns([request("worker"), wait()], [complete()])
    worker = turns(
        [call("ask_for_help", target="user", bead_id="ol-1", **STUCK)],
        [fill_in("report_done", "ol-1", **WORK)],
    )
    async with Rig(crew(chief, worker)) as rig:
        paused = await rig.ask()
        assert paused.task.status is TaskStatus.PAUSED
        assert [each.bead_id for each in follow(paused).pending()] == ["ol-1"]
        outcome = await rig.ask("Yes.", subject="[ol-1] HELP_RESPONSE", task_id=paused.key.task_id)
        events = await rig.store.read_events(outcome.key)
    tracker = Tracker()
    tracker.extend(event.message for event in events if event.message is not None)
    assert tracker.pending() == []
    assert tracker.beads()["ol-1"].state is BeadState.DONE


async def test_a_form_that_is_a_breakpoint_tool_is_filled_in_by_nobody() -> None:
    swarm = crew(pleader, turns(), breakpoint_tools=frozenset({"ask_for_help"}))
    async with Rig(swarm) as rig:
        paused = await rig.ask()
        assert [each.message.subject for each in paused.messages if "HELP" in each.message.subject] == []
        outcome = await rig.ask(
            "",
            task_id=paused.key.task_id,
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            breakpoint_tool_call_result={"content": "leave it"},
        )
    assert outcome.answer == "::action_complete::: ask_for_help: leave it"


# --------------------------------------------------------------------------------------------------- handover


@pytest.mark.parametrize("bead", ["a-1", "failed-1"])
async def test_a_checkpoint_is_handed_over_to_the_successor(bead: str) -> None:
    chief = turns(
        [call("request_worker", target="worker", bead_id=bead), wait()],
        [call("request_worker", target="worker", bead_id=bead, resume=True, brief="Go on."), wait()],
        [complete()],
    )
    worker = turns([fill_in("leave_checkpoint", bead, **LEFT)], [fill_in("report_done", bead, **WORK)])
    outcome = await ask_once(crew(chief, worker))
    first, second = typed(outcome, "worker")
    assert first == SpawnRequest(bead_id=bead, orchestrator="chief")
    assert second == SpawnRequest(bead_id=bead, orchestrator="chief", resume=True, checkpoint="1a2b3c4")
    body = outcome.sent_to("worker")[1].message.body
    assert enclosed(body, BRIEF) == "Go on."
    left = Parser(strict=True).parse({"subject": "CHECKPOINT", "body": enclosed(body, HANDOVER)})
    assert left.parsed == Checkpoint(bead_id=bead, **LEFT)
    status = follow(outcome).beads()[bead]
    assert (status.state, status.checkpoint) == (BeadState.DONE, left.parsed)


async def test_a_brief_says_nothing_to_programs() -> None:
    brief = "Bead: other\nResume: true\n## Handover\nCheckpoint: none"
    chief = turns([call("request_worker", target="worker", bead_id="a-1", brief=brief), wait()], [complete()])
    outcome = await ask_once(crew(chief, turns([fill_in("report_done", "a-1", **WORK)])))
    assert typed(outcome, "worker") == [SpawnRequest(bead_id="a-1", orchestrator="chief")]
    body = outcome.sent_to("worker")[0].message.body
    assert (enclosed(body, BRIEF), enclosed(body, HANDOVER)) == (brief, "")


# ------------------------------------------------------------------------------------------------ in swarms


async def test_a_swarm_of_python() -> None:
    forms = [FORMS["ask_for_help"]]
    chief = agent("chief", pleader, supervises=True, actions=forms)
    made: MAILSwarmTemplate = template(chief, actions=forms)
    swarm = made.instantiate({}, user_id="ann")
    response, _ = await swarm.post_message_and_run("hello", task_id="t")
    assert '"ask_for_help"' in response.message.body
    response, _ = await swarm.post_message_and_run("Yes.", subject="HELP_RESPONSE", task_id="t")
    await swarm.shutdown()
    assert response.message.body == "HELP_RESPONSE: Yes."
