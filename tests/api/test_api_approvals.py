"""`needs_approval` of `@action` and `MAILAction`, in a swarm inside a program."""

from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from mail import Agent, Answer, Approval, Swarm
from mail.api import MAILAction, action
from mail.core.task.task import TaskStatus
from mail.errors import BadApproval, BadRequest, ConfigurationError, QuestionOpen
from mail.swarms_json.build import build_action
from mail.swarms_json.specs import ActionSpec
from mail.testing import with_scripts
from mail.testing.agents import View, build_swarm, call, complete, scripted
from mail.testing.rig import Rig


class Refund(BaseModel):
    amount: int


def is_large(arguments: dict[str, Any]) -> bool:
    return arguments["amount"] > 100


@action(needs_approval=is_large, approval_timeout=60)
def refund(given: Refund) -> str:
    """Refund an order."""
    return f"refunded {given.amount}"


@action
def spend(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.mark.parametrize("approve", [True, ["spend"]])
async def test_the_operator_asks_for_approval(approve: Any) -> None:
    agent = Agent("clerk", "You pay.", model="openai/gpt-5-mini", actions=[spend], approve=approve)
    swarm = with_scripts(Swarm(agent), {"clerk": [[call("spend", amount=5)], "done"]})
    async with swarm:
        question = await swarm.aask("Pay 5.")
        assert [each.name for each in question.pending] == ["spend"]
        assert (await swarm.aapprove(question)).text == "done"
        events = await swarm.running.runtime.read_events(question.task_id)
    assert "paid 5" in str([event.data for event in events])


@pytest.mark.parametrize(
    ("approve", "problem"),
    [
        ("spend", r"approve is a list of names, such as \['spend'\]"),
        (["spen"], r"approve names 'spen', .* Did you mean 'spend'"),
        (["task_complete"], "is not one of its actions"),
    ],
)
def test_names_to_approve_are_checked(approve: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        _ = Swarm(
            Agent("clerk", "You pay.", model="openai/gpt-5-mini", actions=[spend], approve=approve)
        ).running


SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}}


@pytest.mark.parametrize(
    "made",
    [
        refund,
        MAILAction.from_core(refund.to_core()),
        MAILAction(
            "refund", "Refund.", SCHEMA, lambda given: f"refunded {given['amount']}", needs_approval=is_large
        ),
    ],
)
@pytest.mark.parametrize(("amount", "pauses"), [(100, False), (101, True)])
async def test_a_function_of_the_arguments_decides(made: MAILAction, amount: int, pauses: bool) -> None:
    def clerk(view: View) -> Any:
        return [complete(view.results[-1])] if view.results else [call("refund", amount=amount)]

    async with Rig(build_swarm({"clerk": clerk}, actions={"refund": made.to_core()})) as rig:
        outcome = await rig.ask()
        assert (outcome.task.status is TaskStatus.PAUSED) is pauses
        if pauses:
            outcome = await rig.ask(
                "",
                task_id=outcome.key.task_id,
                resume_from="breakpoint_tool_call",
                approvals=[{"decision": "approve"}],
            )
    assert outcome.answer == f"SUCCESS: refunded {amount}"


async def test_calls_that_nobody_could_read_are_not_shown() -> None:
    ran: list[str] = []

    @action(needs_approval=True)
    def publish(text: str) -> str:
        """Publish a text."""
        ran.append(text)
        return "published"

    def policy(view: View) -> list[Any]:
        if view.results:
            return [complete(" and ".join(view.results))]
        return [call("publish", text=size * "x") for size in (200_000, 200_000, 300_000, 20_000)]

    agent = Agent("chief", function=scripted(policy, tool_format="completions"), actions=[publish])
    async with Swarm(agent) as swarm:
        question = await swarm.aask("Publish it.")
        assert [len(each.arguments["text"]) for each in question.pending] == [200_000, 20_000]
        answer = (await swarm.aapprove(question)).text
    assert [len(text) for text in ran] == [200_000, 20_000]
    assert answer.count("SUCCESS: published") == 2
    assert answer.count("may have 262144 bytes together, not") == 2


def even(amount: int) -> int:
    if amount % 2:
        raise ValueError("it must be even")
    return amount


seen: list[dict[str, Any]] = []


def notes(arguments: dict[str, Any]) -> bool:
    seen.append(arguments)
    return True


@action(needs_approval=notes)
def pay(amount: Annotated[int, AfterValidator(even)], to: str = "Ann") -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@action
def look() -> str:
    """Look."""
    return "seen"


def paying(*amounts: int) -> Swarm:
    """A swarm whose agent makes all these payments at once, and then tells their results."""

    def policy(view: View) -> list[Any]:
        if view.results:
            return [complete(" and ".join(view.results))]
        return [*(call("pay", amount=amount) for amount in amounts), call("look")]

    return Swarm(Agent("clerk", function=scripted(policy, tool_format="responses"), actions=[pay, look]))


class TestTypedFunctions:
    async def test_edited_arguments_are_checked_by_the_type_hints(self) -> None:
        seen.clear()
        async with paying(2) as swarm:
            answer = await swarm.aask("Pay")
            assert seen == [{"amount": 2}]
            for wrong, problem in (
                ({"amount": 3}, "it must be even"),
                ({"amount": "x"}, "valid integer"),
                ({}, "amount"),
            ):
                with pytest.raises(BadApproval, match=problem):
                    await swarm.aapprove(answer, arguments=wrong)
            answer = await swarm.aapprove(answer, arguments={"amount": 4, "to": "Bob"})
        assert "Result: paid 4 to Bob" in answer.text

    async def test_wrong_arguments_are_shown_to_nobody(self) -> None:
        async with paying(3) as swarm:
            answer = await swarm.aask("Pay")
        assert not answer.is_paused
        assert "it must be even" in answer.text

    def test_an_action_that_becomes_another_keeps_its_approval(self) -> None:
        named = ActionSpec(name="pay", function="python::here:pay")
        core = build_action(named, lambda _: pay)
        assert callable(core.needs_approval)
        assert core.find_problem({"amount": 3}) != ""
        assert callable(MAILAction("pay", "Pay.", pay.parameters, pay).needs_approval)
        free = ActionSpec(name="pay", function="python::here:pay", needs_approval=False)
        assert build_action(free, lambda _: pay).needs_approval is False


class TestSwarms:
    def test_calls_are_decided_one_by_one(self) -> None:
        swarm = paying(2, 4)
        answer = swarm.ask("Pay")
        first, second = answer.pending
        assert (first.needs_approval, first.arguments) == (True, {"amount": 2})
        assert str(answer).splitlines()[0] == "clerk wants to run pay(amount: 2)"
        with pytest.raises(BadRequest):
            swarm.reply(answer, "paid")
        with pytest.raises(
            QuestionOpen,
            match=r"calls wait for you: pay .*; use swarm.approve or swarm.reject, or drop_question=True$",
        ):
            swarm.ask("Well?", task_id=answer.task_id)
        rest = swarm.approve(answer, call_id=first.call_id)
        assert rest.pending == (second,)
        done = swarm.reject(rest.task_id, reason="too much")
        assert "SUCCESS: paid 2 to Ann" in done.text
        assert "a person has rejected this call, and it was not run: too much" in done.text
        assert not done.is_paused

    def test_a_reviewer_answers_a_question(self) -> None:
        @action(needs_approval=Approval(by=("user",)))
        def ask_legal(question: str) -> str:
            """Ask the lawyers."""
            raise AssertionError(question)

        def policy(view: View) -> list[Any]:
            asking = [call("ask_legal", question="May I?"), call("spend", amount=5)]
            return [complete(" and ".join(view.results))] if view.results else asking

        actions = [ask_legal, spend]
        agent = Agent("clerk", function=scripted(policy), actions=actions, approve=["spend"])
        swarm = Swarm(agent, breakpoint_tools=["ask_legal"])
        asked = swarm.ask("Pay")
        with pytest.raises(QuestionOpen, match=r"use swarm.answer or swarm.approve or swarm.reject, or"):
            swarm.ask("Well?", task_id=asked.task_id)
        rest = swarm.answer(asked, "You may.")
        with pytest.raises(BadApproval, match="no call in this answer asks reviewers"):
            swarm.answer(rest, "You may.")
        assert swarm.approve(rest).text == "You may. and SUCCESS: paid 5"

    def test_an_answer_decides_on_the_calls_that_it_shows(self) -> None:
        def policy(view: View) -> list[Any]:
            return (
                [call("pay", amount=2 * (len(view.results) + 1))]
                if len(view.results) < 2
                else [complete("done")]
            )

        swarm = Swarm(Agent("clerk", function=scripted(policy, tool_format="responses"), actions=[pay]))
        answer = swarm.ask("Pay")
        unseen = swarm.approve(answer)
        assert [waiting.arguments for waiting in unseen.pending] == [{"amount": 4}]
        for decide in (swarm.approve, swarm.reject):
            with pytest.raises(BadApproval, match="names no call that waits"):
                decide(answer)
        assert str(swarm.approve(unseen.task_id)) == "done"
        with pytest.raises(BadApproval, match="no call in this answer needs approval"):
            swarm.approve(replace(answer, pending=()))

    def test_a_task_id_decides_on_several_calls_only_if_told_to(self) -> None:
        swarm = paying(2, 4)
        answer = swarm.ask("Pay")
        for decide in (swarm.approve, swarm.reject):
            with pytest.raises(
                BadApproval,
                match=r"2 calls wait for approval: pay \(call_id '.+'\), pay .*; give the call_id of one, or set all$",
            ):
                decide(answer.task_id)
        with pytest.raises(BadApproval, match="not both"):
            swarm.approve(answer, call_id=answer.pending[0].call_id, all=True)
        done = swarm.approve(answer.task_id, all=True)
        assert done.text.endswith("SUCCESS: paid 2 to Ann and SUCCESS: paid 4 to Ann")
        answer = swarm.ask("Pay")
        assert swarm.reject(answer, all=True, reason="no").text.count("a person has rejected this call") == 2

    def test_a_question_drops_the_calls(self) -> None:
        swarm = paying(2)
        paused = swarm.ask("Pay")
        answer = swarm.ask("Never mind", task_id=paused.task_id, drop_question=True)
        assert not answer.is_paused
        assert "paid" not in answer.text

    async def test_a_streamed_question_drops_the_calls(self) -> None:
        async with paying(2) as swarm:
            paused = await swarm.aask("Pay")
            items = [
                item async for item in swarm.stream("Never mind", task_id=paused.task_id, drop_question=True)
            ]
        assert isinstance(items[-1], Answer)
        assert not items[-1].is_paused

    def test_arguments_are_for_one_call(self) -> None:
        swarm = paying(2, 4)
        answer = swarm.ask("Pay")
        with pytest.raises(TypeError):
            swarm.reject(answer, answer.pending[0].call_id)  # type: ignore[call-arg]
        with pytest.raises(BadApproval, match="several calls wait"):
            swarm.approve(answer, arguments={"amount": 6})
        done = swarm.reject(answer, reason="no")
        assert done.text.count("a person has rejected this call") == 2

    def test_the_answer_has_its_type_after_the_pause(self) -> None:
        template = Swarm(Agent("clerk", model="openai/gpt-5-mini", actions=[pay]), output_type=list[int])
        swarm = with_scripts(template, {"clerk": [[call("pay", amount=2)], "[2]"]})
        assert swarm.approve(swarm.ask("Pay")) == [2]
        swarm.close()
        swarm = with_scripts(
            template, {"clerk": [[call("pay", amount=2)], [call("pay", amount=4)], '{"a": 1}']}
        )
        answer = swarm.approve(swarm.ask("Pay", output_type=dict[str, int]))
        assert swarm.reject(answer, reason="no") == {"a": 1}

    @pytest.mark.parametrize("several", [False, True])
    async def test_with_the_documented_classes(self, several: bool) -> None:
        decision = {"decision": "edit", "arguments": {"amount": 6}}
        swarm = paying(2).running
        answer, _ = await swarm.post_message_and_run("Pay", task_id="t1")
        assert "needs_approval" in answer.message.body
        answer, _ = await swarm.post_message_and_run(
            "",
            task_id="t1",
            resume_from="breakpoint_tool_call",
            approvals=[decision] if several else decision,
        )
        assert "paid 6 to Ann" in answer.message.body
        with pytest.raises(BadRequest, match="decision"):
            await swarm.post_message("", task_id="t1", approvals={"decision": "maybe"})
