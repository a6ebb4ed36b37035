"""The crew: an orchestrator and two workers who coordinate by Agent Mail."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mail.agentmail import BeadState, MessageType, Tracker
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.config import ServerConfig
from mail.core.decisions.submit import ResumeFrom
from mail.core.protocol.message import MAILRequest
from mail.core.task.events import EventKind
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskStatus
from mail.errors import ToolCallFault
from mail.examples.crew.orchestrator import UNANSWERED
from mail.examples.crew.worker import Outcome as StepOutcome
from mail.examples.crew.worker import Step, commit_of, take_step
from mail.server.process import serving
from mail.stdlib.agentmail.actions import HANDOVER
from mail.stdlib.agentmail.forms import enclosed
from mail.swarms_json import build_swarm, load_swarm
from mail.swarms_json.load import PACKAGED_SOURCE
from mail.testing.agents import tool_results
from mail.testing.rig import Outcome, Rig, ask_once

pytestmark = pytest.mark.fast

BEADS = """\
a-1: an easy one
a-2: a limit for logins
a-3: a large one
a-4: an impossible one"""


@pytest.fixture(params=["responses", "completions"])
def crew(request: pytest.FixtureRequest) -> SwarmCore:
    entry = load_swarm("crew", PACKAGED_SOURCE)
    agents = [agent.model_copy(update={"tool_format": request.param}) for agent in entry.agents]
    return build_swarm(entry.model_copy(update={"agents": agents}))


async def follow(rig: Rig, outcome: Outcome) -> Tracker:
    """What the whole task says."""
    tracker = Tracker()
    events = await rig.store.read_events(outcome.key)
    tracker.extend(event.message for event in events if event.message is not None)
    return tracker


def types(tracker: Tracker, bead: str) -> list[str]:
    return [message.type.value for message in tracker.thread(bead).messages]


STEP = ["PROGRESS"]


async def test_beads_of_every_kind(crew: SwarmCore) -> None:
    async with Rig(crew) as rig:
        outcome = await rig.ask(BEADS)
        tracker = await follow(rig, outcome)
    assert outcome.of(EventKind.AGENT_ERROR) == []
    assert outcome.answer.splitlines() == [
        f"a-1: worker-1 has done it in {commit_of('a-1', 3)}. an easy one, in 3 steps.",
        f"a-2: worker-2 has done it in {commit_of('a-2', 3)}. a limit for logins, in 3 steps.",
        f"a-3: worker-2 has done it in {commit_of('a-3', 6)}. a large one, in 6 steps.",
        "a-4: worker-2 has failed, as its requirements exclude each other.",
    ]
    begun, accepted = ["SPAWN_REQUEST", "BEAD_ACCEPTED"], ["OFFERING_READY", "UNKNOWN"]
    assert types(tracker, "a-1") == [*begun, *STEP * 2, *accepted]
    assert types(tracker, "a-2") == [*begun, *STEP, "HELP_REQUEST", "HELP_RESPONSE", *STEP, *accepted]
    assert types(tracker, "a-3") == [*begun, *STEP * 3, "CHECKPOINT", *begun, *STEP, *accepted]
    assert types(tracker, "a-4") == [*begun, *STEP, "FAILED"]
    assert tracker.pending() == []
    states = {bead: status.state for bead, status in tracker.beads().items()}
    assert states == dict.fromkeys(("a-1", "a-2", "a-3"), BeadState.DONE) | {"a-4": BeadState.FAILED}
    for thread in tracker.threads().values():
        assert all(m.acknowledged for m in thread.messages if m.type is MessageType.OFFERING_READY)


async def test_only_lines_with_an_id_assign_work_and_only_typed_mail_is_in_the_thread_of_a_bead(
    crew: SwarmCore,
) -> None:
    async with Rig(crew) as rig:
        outcome = await rig.ask("Status: urgent\nBead: not one\nl-2: an easy one")
        tracker = await follow(rig, outcome)
    assert outcome.answer == f"l-2: worker-1 has done it in {commit_of('l-2', 3)}. an easy one, in 3 steps."
    assert set(tracker.threads()) == {outcome.task.task_id, "l-2"}
    assert len(tracker.thread("l-2").messages) == 6
    others = {message.sender for message in tracker.thread(outcome.task.task_id).messages}
    assert others == {"ann", "orchestrator", "crew"}


async def test_the_successor_gets_the_checkpoint(crew: SwarmCore) -> None:
    outcome = await ask_once(crew, "b-1: a large one")
    (first,) = [m.message for m in outcome.sent_to("worker-1") if isinstance(m.message, MAILRequest)]
    (second,) = [m.message for m in outcome.sent_to("worker-2") if isinstance(m.message, MAILRequest)]
    assert "Resume: true" not in first.body
    assert "Resume: true" in second.body
    left = enclosed(second.body, HANDOVER)
    assert f"Commit: {commit_of('b-1', 4)}" in left
    assert "Take step 5." in left
    steps = [json.loads(e.text.partition("\n")[2]) for e in outcome.of(EventKind.ACTION_COMPLETE)]
    assert [(step["done"]) for step in steps] == [1, 2, 3, 4, 5, 6]


async def test_what_the_orchestrator_does_not_know_it_asks_the_user(crew: SwarmCore) -> None:
    async with Rig(crew) as rig:
        paused = await rig.ask("c-1: a list of prices\nc-2: an easy one")
        assert paused.task.status is TaskStatus.PAUSED
        (asked,) = [m.message for m in paused.messages if m.message.recipients[0].address == "ann"]
        assert asked.subject == "[c-1] HELP_REQUEST"
        assert "## Question\nWhich currency are the prices in?" in asked.body
        tracker = await follow(rig, paused)
        assert tracker.beads()["c-1"].state is BeadState.STUCK
        assert [message.sender for message in tracker.pending() if message.bead_id == "c-1"] == [
            "worker-1",
            "orchestrator",
        ]
        outcome = await rig.ask("Euros.", subject="HELP_RESPONSE", task_id=paused.key.task_id)
        tracker = await follow(rig, outcome)
        history = await rig.history("worker-1", outcome.key)
    assert [line.partition(":")[0] for line in outcome.answer.splitlines()] == ["c-1", "c-2"]
    assert "has failed" not in outcome.answer
    assert tracker.pending() == []
    told = [m.message.body for m in outcome.sent_to("worker-1") if "HELP_RESPONSE" in m.message.subject]
    assert told == ["Euros."]
    assert not any(result.startswith("ERROR") for result in tool_results(history))


async def test_two_questions_for_the_user_and_a_second_round(crew: SwarmCore) -> None:
    async with Rig(crew) as rig:
        first = await rig.ask("d-1: a price\nd-2: another price")
        answer = {"subject": "HELP_RESPONSE", "task_id": first.key.task_id}
        second = await rig.ask("Euros.", **answer)
        assert second.task.status is TaskStatus.PAUSED
        third = await rig.ask("Crowns.", **answer)
        assert third.task.status is TaskStatus.COMPLETED
        assert [line[:3] for line in third.answer.splitlines()] == ["d-1", "d-2"]
        again = await rig.ask("d-3: an easy one", task_id=first.key.task_id)
        tracker = await follow(rig, again)
    assert again.answer.startswith("d-3: worker-1 has done it")
    assert "\n" not in again.answer
    told = [
        message.parsed.guidance  # type: ignore[union-attr]
        for bead in ("d-1", "d-2")
        for message in tracker.thread(bead).messages
        if message.type is MessageType.HELP_RESPONSE and message.sender == "orchestrator"
    ]
    assert sorted(told) == ["Crowns.", "Euros."]


async def test_an_answer_to_no_question(crew: SwarmCore) -> None:
    async with Rig(crew) as rig:
        outcome = await rig.ask("e-1: an easy one", subject="HELP_RESPONSE")
        assert outcome.answer.startswith("Give me one bead per line")
        again = await rig.ask("e-2: an easy one", task_id=outcome.key.task_id)
        assert again.answer.startswith("e-2: worker-1 has done it")
        last = await rig.ask("So.", subject="[e-2] HELP_RESPONSE", task_id=outcome.key.task_id)
    assert last.answer.startswith("Give me one bead per line")
    assert last.of(EventKind.TASK_ERROR) == []


async def test_the_answer_as_the_result_of_the_call_with_words_besides(crew: SwarmCore) -> None:
    async with Rig(crew) as rig:
        paused = await rig.ask("t-1: a price list")
        outcome = await rig.ask(
            "t-2: easy",
            task_id=paused.key.task_id,
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            breakpoint_tool_call_result={"content": "Euros."},
        )
    told = [m.message.body for m in outcome.sent_to("worker-1") if "HELP_RESPONSE" in m.message.subject]
    assert told == ["Euros."]
    assert outcome.answer.startswith("t-1: worker-1 has done it")


async def test_more_work_in_place_of_an_answer(crew: SwarmCore) -> None:
    async with Rig(crew) as rig:
        paused = await rig.ask("u-1: a price list")
        outcome = await rig.ask("u-2: easy", task_id=paused.key.task_id, drop_question=True)
        tracker = await follow(rig, outcome)
    assert outcome.answer.splitlines() == [
        f"u-1: worker-1 has done it in {commit_of('u-1', 3)}. a price list, in 3 steps.",
        f"u-2: worker-2 has done it in {commit_of('u-2', 3)}. easy, in 3 steps.",
    ]
    assert outcome.of(EventKind.AGENT_ERROR) == []
    told = [m.message.body for m in outcome.sent_to("worker-1") if "HELP_RESPONSE" in m.message.subject]
    assert told == [UNANSWERED]
    assert tracker.pending() == []


async def test_words_that_are_no_work_leave_the_question_to_the_worker(crew: SwarmCore) -> None:
    async with Rig(crew) as rig:
        paused = await rig.ask("v-1: a price list")
        outcome = await rig.ask("forget it", task_id=paused.key.task_id, drop_question=True)
    assert outcome.answer.startswith("v-1: worker-1 has done it")


async def test_no_beads(crew: SwarmCore) -> None:
    outcome = await ask_once(crew, "hello")
    assert outcome.answer.startswith("Give me one bead per line")


async def test_a_step_comes_out_the_same_each_time() -> None:
    begun = Step(bead_id="a", title="x")
    first = StepOutcome.model_validate_json(await take_step(begun))
    assert first == StepOutcome.model_validate_json(await take_step(begun))
    assert (first.done, first.steps, first.commit) == (1, 3, commit_of("a", 1))
    for commit in ("none", commit_of("b", 1), commit_of("a", 3)):
        with pytest.raises(ToolCallFault, match="has no commit"):
            await take_step(Step(bead_id="a", title="x", after=commit))


async def test_a_server_that_has_loaded_it(tmp_path: Path) -> None:
    """Forms are imported as other actions are, also by a swarm that an admin loads."""
    system = local(
        ServerConfig().with_overrides(swarm_source=str(PACKAGED_SOURCE), database=str(tmp_path / "db"))
    )
    entry = load_swarm("crew", PACKAGED_SOURCE).model_copy(update={"name": system.runtime.swarm.name})
    headers = {
        role: {"Authorization": f"Bearer {await issue_token(system.documents, Caller(role, 'ann'))}"}
        for role in ("admin", "user")
    }
    async with serving(system) as url, httpx2.AsyncClient(base_url=url) as client:

        async def post(path: str, role: str, **body: Any) -> Any:
            response = await client.post(path, json=body, headers=headers[role])
            assert response.status_code == 200, response.text
            return response.json()

        await post("/swarms/load", "admin", json=entry.model_dump_json())
        paused = await post("/message", "user", body="e-1: a price", task_id="t")
        assert json.loads(paused["response"])[0]["name"] == "ask_for_help"
        done = await post("/message", "user", body="Euros.", subject="HELP_RESPONSE", task_id="t")
        assert done["response"].startswith("e-1: worker-1 has done it")
