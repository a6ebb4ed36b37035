"""Approvals: the task pauses with a call, a person decides, and then the engine runs it."""

import asyncio
import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.manual import Step
from mail.core.engine.manual import ManualMode
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal
from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.approvals import Approval
from mail.core.task.client_tools import ClientTool, ClientTools
from mail.core.task.events import EventKind
from mail.core.task.size import MAX_HELD, decision_size
from mail.core.task.swarm import ActionCore
from mail.core.task.task import Task, TaskStatus
from mail.core.task.turn_state import Decision
from mail.errors import (
    AlreadyDecided,
    ArgumentsDiffer,
    BadApproval,
    BadBreakpointResult,
    BadRequest,
    ConfigurationError,
    DecisionTooLate,
)
from mail.testing.agents import Call, View, build_swarm, call, complete
from mail.testing.contracts import due_tasks
from mail.testing.rig import Outcome, Rig

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["to"],
    "additionalProperties": False,
}


async def _never(_arguments: dict[str, Any]) -> bool:
    return False


@dataclass
class Bank:
    """Counts what its actions have done."""

    paid: list[dict[str, Any]] = field(default_factory=list)
    looked: int = 0

    async def pay(self, arguments: dict[str, Any]) -> str:
        self.paid.append(arguments)
        return f"paid {arguments['to']}"

    async def look(self, _arguments: dict[str, Any]) -> str:
        self.looked += 1
        return "looked"


def paying(
    *script: Call, tool_format: ToolFormat = "completions", path: Path | None = None, **options: Any
) -> tuple[Rig, Bank]:
    """A supervisor that plays the script first, and then finishes with the tool results it has."""
    bank = Bank()

    def supervisor(view: View) -> Any:
        if not view.results:
            return list(script)
        return [complete(" | ".join(view.results))]

    options.setdefault("needs_approval", True)
    actions = {
        "pay": ActionCore("pay", bank.pay, parameters=SCHEMA, **options),
        "look": ActionCore("look", bank.look),
    }
    swarm = build_swarm(
        {"supervisor": supervisor},
        actions=actions,
        breakpoint_tools=frozenset({"ask"}),
        tool_format=tool_format,
    )
    return Rig(swarm, **({} if path is None else {"path": path})), bank


async def decide(rig: Rig, paused: Outcome | Task, *approvals: Any, body: str = "", **more: Any) -> Outcome:
    return await rig.ask(
        body,
        task_id=paused.key.task_id,
        resume_from="breakpoint_tool_call",
        approvals=approvals,
        **more,
    )


def ids(paused: Outcome) -> list[str]:
    return [call["id"] for call in json.loads(paused.answer)]


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
async def test_an_approved_call_is_run_by_the_engine(tool_format: ToolFormat) -> None:
    rig, bank = paying(call("pay", to="bob"), tool_format=tool_format)
    async with rig:
        paused = await rig.ask()
        assert paused.task.status is TaskStatus.PAUSED
        assert bank.paid == []
        (shown,) = json.loads(paused.answer)
        assert (shown["name"], shown["needs_approval"]) == ("pay", True)
        done = await decide(rig, paused, {"decision": "approve"})
        assert bank.paid == [{"to": "bob"}]
        assert done.answer == "SUCCESS: paid bob"
        assert done.task.status is TaskStatus.COMPLETED
        # the turn that ran it does not count: the one turn is that of the agent with the result
        assert (done.task.generation.steps, done.task.generation.turns) == (0, 1)
        assert done.kinds.index(EventKind.BREAKPOINT_ACTION_COMPLETE) < done.kinds.index(
            EventKind.ACTION_COMPLETE
        )
        assert done.task.approved_calls == ()


async def test_the_agent_reads_the_result_behind_its_call_and_nothing_else() -> None:
    rig, _ = paying(call("pay", to="bob"))
    async with rig:
        paused = await rig.ask()
        await decide(rig, paused, {"decision": "approve"})
        history = await rig.history("supervisor", paused.key)
    assert [entry["role"] for entry in history] == ["user", "assistant", "tool", "assistant", "tool"]


async def test_a_rejected_call_does_not_run_and_the_model_reads_why() -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        done = await decide(rig, await rig.ask(), {"decision": "reject", "reason": "too much"})
    assert bank.paid == []
    assert done.answer == "ERROR: a person has rejected this call, and it was not run: too much"
    assert EventKind.ACTION_CALL not in done.kinds


async def test_an_edited_call_runs_with_the_new_arguments_and_the_model_learns_of_them() -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        done = await decide(
            rig, await rig.ask(), {"decision": "edit", "arguments": {"to": "eve", "amount": 1}}
        )
    assert bank.paid == [{"to": "eve", "amount": 1}]
    assert done.answer == (
        'SUCCESS: a person has changed the arguments to {"to": "eve", "amount": 1}. Result: paid eve'
    )


@pytest.mark.parametrize(
    ("approval", "problem"),
    [
        ({"decision": "edit", "arguments": {"amount": 1}}, "to: "),
        ({"decision": "edit", "arguments": {"to": "eve", "whom": 1}}, "whom: "),
        ({"decision": "edit"}, "give its new arguments"),
        ({"decision": "reject", "arguments": {"to": "eve"}}, "leave out its arguments"),
        ({"decision": "approve", "call_id": "x"}, "'x' names no call"),
    ],
)
async def test_a_bad_decision_changes_nothing(approval: dict[str, Any], problem: str) -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        paused = await rig.ask()
        with pytest.raises(BadApproval, match=problem):
            await decide(rig, paused, approval)
        assert await rig.store.load(paused.key) == paused.task
    assert bank.paid == []


async def test_a_decision_on_other_arguments_than_the_person_has_seen_is_refused() -> None:
    rig, bank = paying(call("pay", to="\u202ebob"))
    async with rig:
        paused = await rig.ask()
        [waiting] = paused.task.generation.waiting_calls
        assert waiting.arguments_text == '{"to": "\\u202ebob"}'
        other = sha256(b'{"to": "bob"}').hexdigest()
        with pytest.raises(ArgumentsDiffer, match=r"has other arguments than .*u202ebob"):
            await decide(rig, paused, {"decision": "approve", "arguments_sha256": other})
        assert bank.paid == []
        seen = sha256(waiting.arguments_text.encode()).hexdigest()
        await decide(rig, paused, {"decision": "approve", "arguments_sha256": seen})
        assert bank.paid == [{"to": "\u202ebob"}]


async def test_a_result_in_place_of_a_decision_is_refused() -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        paused = await rig.ask()
        with pytest.raises(BadBreakpointResult, match="wait for a decision"):
            await decide(rig, paused, breakpoint_tool_call_result="yes")
        with pytest.raises(BadApproval, match="give approvals"):
            await decide(rig, paused)
        assert await rig.store.load(paused.key) == paused.task
    assert bank.paid == []


async def test_a_task_that_has_moved_on_takes_no_decision() -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        paused = await rig.ask()
        await decide(rig, paused, {"decision": "approve"})
        with pytest.raises(DecisionTooLate, match=r"the decision comes too late: task .* (is|has) "):
            await decide(rig, paused, {"decision": "approve"})
    assert len(bank.paid) == 1


async def test_other_calls_of_the_turn_have_run() -> None:
    rig, bank = paying(call("look"), call("pay", to="bob"), call("look"))
    async with rig:
        paused = await rig.ask()
        assert (bank.looked, bank.paid) == (2, [])
        done = await decide(rig, paused, {"decision": "approve"})
    assert bank.looked == 2
    assert done.answer == "SUCCESS: looked | SUCCESS: looked | SUCCESS: paid bob"


async def test_calls_are_decided_one_by_one_and_run_together() -> None:
    rig, bank = paying(call("pay", to="a"), call("pay", to="b"), call("pay", to="c"))
    async with rig:
        paused = await rig.ask()
        first, second, third = ids(paused)
        again = await decide(rig, paused, {"decision": "reject", "call_id": second, "reason": "no"})
        assert again.task.status is TaskStatus.PAUSED
        assert ids(again) == [first, third]
        assert bank.paid == []
        with pytest.raises(
            AlreadyDecided, match=rf"'{second}': pay was rejected by user:\w+@\w+: no; this stands"
        ):
            await decide(rig, paused, {"decision": "approve", "call_id": second})
        done = await decide(rig, paused, {"decision": "approve", "all": True})
    assert done.answer == (
        "SUCCESS: paid a | ERROR: a person has rejected this call, and it was not run: no | SUCCESS: paid c"
    )


@pytest.mark.parametrize("is_decided_first", [True, False])
async def test_breakpoint_tools_beside_calls_that_need_approval(is_decided_first: bool) -> None:
    rig, bank = paying(call("ask", what="x"), call("pay", to="b"))
    async with rig:
        paused = await rig.ask()
        first: list[Any] = [[], {"breakpoint_tool_call_result": "blue"}]
        second: list[Any] = [[{"decision": "approve"}], {}]
        if is_decided_first:
            first, second = second, first
        half = await decide(rig, paused, *first[0], **first[1])
        assert half.task.status is TaskStatus.PAUSED
        assert bank.paid == []
        with pytest.raises(BadRequest):
            await decide(rig, paused, *first[0], **first[1])
        done = await decide(rig, paused, *second[0], **second[1])
    assert done.answer == "blue | SUCCESS: paid b"
    assert bank.paid == [{"to": "b"}]


@pytest.mark.parametrize(
    ("decision", "result"), [("approve", "SUCCESS: paid b"), ("reject", "ERROR: a person has")]
)
async def test_the_owner_answers_while_reviewers_have_not_decided(decision: Any, result: str) -> None:
    rig, _bank = paying(call("ask", what="x"), call("pay", to="b"), reviewers=Approval(by=("user:rev",)))
    reviewer = Principal(role="user", id="rev", swarm=rig.swarm.name)
    async with rig:
        paused = await rig.ask()
        with pytest.raises(BadBreakpointResult, match="must have a text"):
            await decide(rig, paused, breakpoint_tool_call_result=" ")
        with pytest.raises(BadApproval, match="user:rev must decide"):
            await decide(rig, paused, breakpoint_tool_call_result="blue", body="and this")
        half = await decide(rig, paused, breakpoint_tool_call_result="blue")
        assert [item["name"] for item in json.loads(half.answer)] == ["pay"]
        [(_, [asked])] = [each async for each in rig.runtime.reviews.waiting(reviewer, limit=2)]
        approval = asked.paused_at.approval_id(asked.call)
        await rig.runtime.reviews.decide(reviewer, approval, GivenApproval(decision=decision))
        decided = await rig.task(paused.key)
        done = await rig.outcome(Submitted(paused.key, decided.generation.number, 0, 0))
    assert done.answer.startswith(f"blue | {result}")


async def test_the_task_keeps_what_its_owner_asked_for_until_reviewers_have_decided() -> None:
    tools = ClientTools(tools=(ClientTool(name="choose"),), required=("choose",))
    rig, _bank = paying(call("choose"), call("pay", to="b"), reviewers=Approval(by=("user:rev",)))
    reviewer = Principal(role="user", id="rev", swarm=rig.swarm.name)
    async with rig:
        paused = await rig.ask(client_tools=tools, output_schema={"type": "string"}, steps=9)
        half = await decide(rig, paused, breakpoint_tool_call_result="blue")
        assert (half.task.generation.output_schema, half.task.limits.steps) == ({"type": "string"}, 9)
        with pytest.raises(BadApproval, match="user:rev must decide"):
            await decide(rig, paused, steps=7)
        [(_, [asked])] = [each async for each in rig.runtime.reviews.waiting(reviewer, limit=2)]
        approval = asked.paused_at.approval_id(asked.call)
        await rig.runtime.reviews.decide(reviewer, approval, GivenApproval(decision="approve"))
        decided = await rig.task(paused.key)
    assert decided.generation.output_schema == {"type": "string"}
    assert decided.generation.client_tools == ClientTools(tools=tools.tools)


async def test_an_owner_sets_options_with_an_early_answer() -> None:
    rig, _bank = paying(call("ask", what="x"), call("pay", to="b"), reviewers=Approval(by=("user:rev",)))
    async with rig:
        paused = await rig.ask()
        schema, tools = {"type": "integer"}, ClientTools(tools=(ClientTool(name="choose"),))
        half = await decide(
            rig, paused, breakpoint_tool_call_result="blue", steps=7, output_schema=schema, client_tools=tools
        )
    kept = half.task.generation
    assert (kept.output_schema, kept.client_tools, half.task.limits.steps) == (schema, tools, 7)


async def test_answers_that_wait_together_have_a_limit() -> None:
    script = call("ask", what="x"), call("ask", what="y"), call("pay", to="b")
    rig, bank = paying(*script, reviewers=Approval(by=("user",)))
    async with rig:
        paused = await rig.ask()
        first, second, _pay = ids(paused)
        room = MAX_HELD - 2 * decision_size(Decision(is_approved=False))
        long = [{"call_id": first, "content": (room - 1) * "x"}, {"call_id": second, "content": "yy"}]
        with pytest.raises(BadApproval, match=f"may have {MAX_HELD} bytes together"):
            await decide(rig, paused, breakpoint_tool_call_result=long)
        long[1]["content"] = "y"
        await decide(rig, paused, breakpoint_tool_call_result=long)
        done = await decide(rig, paused, {"decision": "approve"})
    assert done.answer.endswith("x | y | SUCCESS: paid b")
    assert bank.paid == [{"to": "b"}]


async def test_the_agent_reads_text_sent_with_the_decision_together_with_the_result() -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        paused = await rig.ask()
        done = await decide(rig, paused, {"decision": "approve"}, body="be quick")
        history = await rig.history("supervisor", paused.key)
    assert bank.paid == [{"to": "bob"}]
    assert (done.answer, done.task.generation.number) == ("SUCCESS: paid bob", 2)
    assert [entry["role"] for entry in history] == ["user", "assistant", "tool", "user", "assistant", "tool"]
    assert "be quick" in history[3]["content"]


async def large(arguments: dict[str, Any]) -> bool:
    return arguments.get("amount", 0) > 100


async def broken(_arguments: dict[str, Any]) -> bool:
    raise LookupError


@pytest.mark.parametrize(
    ("predicate", "amount", "pauses"), [(large, 100, False), (large, 101, True), (broken, 1, True)]
)
async def test_a_predicate_decides_which_calls_wait(predicate: Any, amount: int, pauses: bool) -> None:
    rig, bank = paying(call("pay", to="bob", amount=amount), needs_approval=predicate)
    async with rig:
        outcome = await rig.ask()
    assert (outcome.task.status is TaskStatus.PAUSED) is pauses
    assert bool(bank.paid) is not pauses


async def test_nobody_is_asked_about_arguments_that_the_action_does_not_take() -> None:
    rig, bank = paying(call("pay", whom="bob"))
    async with rig:
        outcome = await rig.ask()
    assert outcome.answer.startswith("ERROR: pay was not run, its arguments are wrong: ")
    assert bank.paid == []


async def test_an_ordinary_message_drops_the_call() -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        paused = await rig.ask()
        done = await rig.ask("never mind", task_id=paused.key.task_id, drop_question=True)
    assert bank.paid == []
    assert done.answer == (
        "ERROR: it was not run: the user sent a new message instead of a decision on this call"
    )


async def test_an_ordinary_message_drops_no_answer_that_has_come() -> None:
    rig, bank = paying(call("ask", what="x"), call("pay", to="b"), reviewers=Approval(by=("user:rev",)))
    async with rig:
        paused = await rig.ask()
        await decide(rig, paused, breakpoint_tool_call_result="blue")
        done = await rig.ask("hurry", task_id=paused.key.task_id, drop_question=True)
    assert bank.paid == []
    assert done.answer.startswith("blue | ERROR: it was not run: the user sent a new message")


async def test_after_the_timeout_the_call_counts_as_rejected() -> None:
    rig, bank = paying(call("pay", to="bob"), approval_timeout=60.0)
    async with rig:
        paused = await rig.ask()
        rig.clock.advance(59)  # type: ignore[attr-defined]
        await rig.runtime.sweep()
        assert await rig.store.load(paused.key) == paused.task
        rig.clock.advance(2)  # type: ignore[attr-defined]
        await rig.runtime.sweep()
        response = await rig.store.wait_for_response(paused.key, 2, seconds=20)
        assert response is not None
        assert response.message.body == "ERROR: it was not run: nobody approved it within 60 seconds"
        assert await due_tasks(rig.store, 1e12) == []
    assert bank.paid == []


async def test_the_timeout_of_one_call_lets_the_approved_one_run() -> None:
    rig, bank = paying(call("pay", to="a"), call("pay", to="b"), approval_timeout=60.0)
    async with rig:
        paused = await rig.ask()
        await decide(rig, paused, {"decision": "approve", "call_id": ids(paused)[1]})
        rig.clock.advance(61)  # type: ignore[attr-defined]
        await rig.runtime.sweep()
        response = await rig.store.wait_for_response(paused.key, 3, seconds=20)
    assert response is not None
    assert response.message.body == (
        "ERROR: it was not run: nobody approved it within 60 seconds | SUCCESS: paid b"
    )
    assert bank.paid == [{"to": "b"}]


async def test_a_fork_waits_for_a_decision_of_its_own_without_a_time_limit() -> None:
    rig, bank = paying(call("pay", to="bob"), approval_timeout=60.0)
    async with rig:
        paused = await rig.ask()
        forked = await rig.runtime.fork(rig.user, paused.key.task_id)
        rig.clock.advance(100)  # type: ignore[attr-defined]
        await rig.runtime.sweep()
        task = await rig.task(forked.task.key)
        assert task.status is TaskStatus.PAUSED
        done = await decide(rig, task, {"decision": "approve"})
    assert done.answer == "SUCCESS: paid bob"
    assert bank.paid == [{"to": "bob"}]


async def test_a_fork_does_not_run_what_was_approved_for_the_first_task() -> None:
    rig, bank = paying(call("pay", to="bob"))
    rig._concurrency = 0
    async with rig:
        begun = await rig.submit()
        await rig.step()
        await rig.submit(
            "",
            task_id=begun.key.task_id,
            resume_from="breakpoint_tool_call",
            approvals=[{"decision": "approve"}],
        )
        forked = await rig.runtime.fork(rig.user, begun.key.task_id, run=True)
        while await rig.step():
            pass
        response = await rig.store.read_response(forked.task.key, 1)
        assert response is not None
        assert "this task is a fork" in response.message.body
    assert bank.paid == [{"to": "bob"}]


async def test_a_cancelled_task_runs_nothing_until_it_is_resumed() -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        paused = await rig.ask()
        await rig.runtime.cancel(rig.user, paused.key.task_id)
        with pytest.raises(DecisionTooLate, match=r"the decision comes too late: task .* (is|has) "):
            await decide(rig, paused, {"decision": "approve"})
        await rig.ask("go on", task_id=paused.key.task_id)
    assert bank.paid == []


async def test_the_mail_before_the_decision_does_not_come_between_the_call_and_its_result() -> None:
    """A mistake in the same turn leaves a message of the system, which is read before the decision."""
    rig, bank = paying(call("pay", to="bob"), call("nonsense"))
    async with rig:
        paused = await rig.ask()
        assert await rig.inbox(paused.key)
        await decide(rig, paused, {"decision": "approve"})
        history = await rig.history("supervisor", paused.key)
    assert [entry["role"] for entry in history][:5] == ["user", "assistant", "tool", "tool", "user"]
    assert bank.paid == [{"to": "bob"}]


async def test_an_action_that_takes_too_long_leaves_an_unknown_outcome() -> None:
    rig, _ = paying(call("pay", to="bob"))

    async def hangs(_arguments: dict[str, Any]) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    object.__setattr__(rig.swarm.actions["pay"], "function", hangs)
    rig._turn_seconds = 0.05
    async with rig:
        done = await decide(rig, await rig.ask(), {"decision": "approve"})
    assert done.answer.startswith("ERROR: the outcome is unknown: its turn took longer than 0.05 seconds")


async def test_manual_mode() -> None:
    rig, bank = paying(call("pay", to="bob"))
    async with rig:
        begun = await rig.submit(manual=True)
        said = await ManualMode(rig.runtime, rig.runtime.turns).take_step(begun.key, Step("supervisor"))
        assert said.message.subject == "::breakpoint_tool_call::"
        await rig.submit(
            "",
            task_id=begun.key.task_id,
            resume_from="breakpoint_tool_call",
            approvals=[{"decision": "approve"}],
            manual=True,
        )
        assert bank.paid == []  # agents take turns on request only
        said = await ManualMode(rig.runtime, rig.runtime.turns).take_step(begun.key, Step("supervisor"))
        assert said.message.body == "SUCCESS: paid bob"
        history = await rig.history("supervisor", begun.key)
    assert [entry["role"] for entry in history][:4] == ["user", "assistant", "tool", "user"]
    assert bank.paid == [{"to": "bob"}]


@pytest.mark.parametrize("rule", [{"needs_approval": _never}, {"otherwise": "approve"}])
def test_reviewers_of_a_question_can_have_neither_when_nor_otherwise(rule: dict[str, Any]) -> None:
    by = Approval(by=("admin",), otherwise=rule.pop("otherwise", "reject"))
    asked = ActionCore("ask", Bank().look, reviewers=by, approval_timeout=60.0, **rule)
    with pytest.raises(ConfigurationError, match="the reviewers of breakpoint tool 'ask' answer it"):
        build_swarm({"supervisor": lambda _: []}, actions={"ask": asked}, breakpoint_tools=frozenset({"ask"}))


@pytest.mark.parametrize(
    "rule", [{"needs_approval": _never}, {"needs_approval": True}, {"approval_timeout": 60.0}]
)
def test_a_breakpoint_tool_has_no_approval_without_reviewers(rule: dict[str, Any]) -> None:
    asked = ActionCore("ask", Bank().look, **rule)
    with pytest.raises(ConfigurationError, match=r"'ask' is answered, not run: name an Approval\(by=…\)"):
        build_swarm({"supervisor": lambda _: []}, actions={"ask": asked}, breakpoint_tools=frozenset({"ask"}))
