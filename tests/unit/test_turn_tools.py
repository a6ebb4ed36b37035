"""The MAIL tools in the hands of an agent: what each does, and what a wrong call is answered."""

from dataclasses import replace
from typing import Any

import pytest

from mail.core.decisions.help import write_guide
from mail.core.protocol.mail_tools import MAIL_TOOLS, Help
from mail.core.protocol.message import Tier
from mail.core.task.events import EventKind
from mail.core.task.task import TaskKey
from mail.testing.agents import (
    Call,
    View,
    acknowledge,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    ignore,
    interrupt,
    request,
    respond,
    scripted,
    turns,
    wait,
)
from mail.testing.changes import ANN, Change, Mail, Maker, change_of
from mail.testing.rig import Outcome, Rig, ask_once

BEGUN = Maker().begin(TaskKey(ANN, "t"))
WRONG = (("alpha", "::tool_call_error::"),)
NOTHING = (
    "ERROR: there is nothing to await: you have no unanswered request and no mail is on its way; "
    "write to an agent or call task_complete"
)


async def after(*script: Call, **agents: Any) -> tuple[Outcome, list[str], list[Any]]:
    """Let a supervisor play a script and then finish; returns the outcome, its tool results and what it read."""
    seen: list[View] = []

    def supervisor(view: View) -> Any:
        seen.append(view)
        return list(script) if len(view.messages) == 1 else [complete()]

    async with Rig(build_swarm({"supervisor": supervisor, **agents})) as rig:
        outcome = await rig.ask()
        results = View(await rig.history("supervisor", outcome.key), "").results
    return outcome, results[: len(script)], seen[-1].messages[1:]


async def answering(view: View) -> list[Call]:
    return [acknowledge()] if view.mail.subject == "News" else [respond(view.mail.sender, "pong")]


async def test_send_request_and_send_response() -> None:
    outcome, results, letters = await after(request("worker", "ping", "A question"), wait(), worker=answering)
    asked, answered = outcome.messages[1:3]
    assert results[0].startswith("SUCCESS: ")
    assert asked.msg_type == "request"
    assert (asked.message.subject, asked.message.body) == ("A question", "ping")
    assert asked.message.sender.model_dump() == {"address_type": "agent", "address": "supervisor"}
    assert asked.message.recipient.model_dump() == {"address_type": "agent", "address": "worker"}
    assert answered.msg_type == "response"
    assert answered.message.request_id == asked.message.request_id
    assert [letter.body for letter in letters] == ["pong"]


async def test_send_interrupt() -> None:
    outcome, results, _ = await after(interrupt("worker", "now"), wait(), worker=answering)
    sent = outcome.messages[1]
    assert sent.msg_type == "interrupt"
    assert [address.address for address in sent.message.recipients] == ["worker"]
    assert sent.message.interrupt_id
    assert results[0].startswith("SUCCESS: ")


async def test_send_broadcast_reaches_every_other_agent_once() -> None:
    heard: list[tuple[str, int]] = []

    def listener(name: str) -> Any:
        def policy(view: View) -> Any:
            heard.append((name, len(view.messages)))
            assert view.mail.recipients == (("agent", "all"),)
            return [acknowledge()]

        return policy

    outcome, results, _ = await after(
        broadcast("hear me", "Hear"),
        wait(),
        one=listener("one"),
        two=listener("two"),
        three=listener("three"),
    )
    assert sorted(heard) == [("one", 1), ("three", 1), ("two", 1)]
    sent = outcome.messages[1]
    assert sent.msg_type == "broadcast"
    assert sent.message.recipients[0].model_dump() == {"address_type": "agent", "address": "all"}
    assert len([message for message in outcome.messages if message.message.subject == "Hear"]) == 1
    assert results[0].startswith("SUCCESS: ")


def test_send_broadcast_by_the_only_agent_is_an_error() -> None:
    alone = build_swarm({"alpha": turns()})
    (result,), mail, *_ = change_of(BEGUN, broadcast(), swarm=alone)
    assert result.startswith("ERROR: ")
    assert mail == (("alpha", "::agent_error::"),)


@pytest.mark.parametrize("tool", ["acknowledge_broadcast", "ignore_broadcast"])
@pytest.mark.parametrize(("tier", "kind"), [(Tier.PERSON, "request"), (Tier.INTERRUPT, "interrupt")])
def test_broadcast_tools_are_only_for_broadcasts(tool: str, tier: Tier, kind: str) -> None:
    begun = Maker().begin(TaskKey(ANN, "t"), Mail("alpha", tier))
    error = f"ERROR: {tool} is only for broadcasts; this message is of type {kind}"
    assert change_of(begun, call(tool)) == Change((error,), WRONG)


@pytest.mark.parametrize("answer", [acknowledge("mine"), ignore("not mine"), acknowledge(), ignore()])
async def test_taking_note_of_a_broadcast_causes_no_mail(answer: Call) -> None:
    outcome, _, letters = await after(broadcast(), wait(), worker=lambda view: [answer])
    assert outcome.sent_to("worker") == []
    assert [letter.subject for letter in letters] == ["::runtime_error::"]  # the stall nudge, and no answer


def test_await_message_for_nothing_is_an_error() -> None:
    assert change_of(BEGUN, wait()) == Change((NOTHING,), WRONG)


def test_await_message_before_the_request_is_an_error_as_calls_are_processed_in_order() -> None:
    change = change_of(BEGUN, wait(), request("beta"))
    assert change == Change((NOTHING, "SUCCESS: request sent to beta"), (*WRONG, ("beta", "Request")))


@pytest.mark.parametrize("beside", [broadcast(), interrupt("beta"), call("help"), call("nonsense")])
def test_await_message_is_fine_while_mail_is_on_its_way(beside: Call) -> None:
    assert change_of(BEGUN, beside, wait()).results[1] == "SUCCESS: waiting for mail"


async def test_await_message_beside_an_action_is_fine_as_its_result_is_on_its_way() -> None:
    async def act(args: dict[str, Any]) -> str:
        return "acted"

    seen: list[View] = []

    def supervisor(view: View) -> Any:
        seen.append(view)
        return [call("act"), wait("the result")] if len(view.messages) == 1 else [complete(view.mail.subject)]

    outcome = await ask_once(build_swarm({"supervisor": supervisor}, actions={"act": act}))
    assert seen[1].results[1].startswith("SUCCESS: ")
    assert outcome.answer == "::action_complete::"
    assert outcome.of(EventKind.AGENT_ERROR) == []


async def test_help_comes_as_a_message() -> None:
    outcome, results, [letter] = await after(call("help"), worker=answering)
    assert results[0].startswith("SUCCESS: ")
    assert len(outcome.of(EventKind.HELP_CALLED)) == 1
    assert (letter.sender_type, letter.sender, letter.subject) == ("system", "example", "::help::")
    assert outcome.messages[1].msg_type == "broadcast"
    assert letter.recipients == (("agent", "supervisor"),)
    assert "send_request" in letter.body


class TestHelp:
    def guide(self, asked: Help, *targets: str, **changes: Any) -> str:
        swarm = build_swarm({"supervisor": answering, "worker": answering, "other": answering})
        agent = replace(swarm.agents["supervisor"], comm_targets=targets)
        return write_guide(asked, "supervisor", agent, replace(swarm, **changes))

    def test_identity(self) -> None:
        asked = Help(get_summary=False, get_identity=True)
        before = self.guide(asked, "worker", "other", "desk@b")
        assert "You are agent 'supervisor' of swarm 'example'" in before
        assert "You can write to: worker, other, desk@b.\nYour actions" in before
        assert "send_request" not in before
        agents = build_swarm({"supervisor": answering, "worker": answering, "other": answering}).agents
        described = {**agents, "worker": replace(agents["worker"], description="digs holes")}
        assert self.guide(asked, "worker", "other", "desk@b", agents=described) == before.replace(
            "desk@b.\n", "desk@b.\n- worker: digs holes\n"
        )

    @pytest.mark.parametrize("tool", sorted(MAIL_TOOLS))
    def test_each_tool(self, tool: str) -> None:
        guide = self.guide(Help(get_summary=False, get_tool_help=[tool, "nonsense"]))
        assert f"{tool}: " in guide
        assert "nonsense: unknown" in guide
        assert all(
            f"{name} (optional): " in guide or f"{name}: " in guide for name in MAIL_TOOLS[tool].arguments()
        )

    def test_everything_and_nothing(self) -> None:
        asked = Help(get_identity=True, get_tool_help=["help"], get_full_protocol=True)
        assert self.guide(asked, protocol="THE WHOLE PROTOCOL").endswith("THE WHOLE PROTOCOL")
        assert self.guide(Help(get_summary=False)) == "Ask for at least one section of the help."


class TestTaskComplete:
    async def test_the_answer_goes_to_everyone_and_the_user(self) -> None:
        outcome, results, _ = await after(complete("the answer"), worker=answering)
        assert results == ["SUCCESS: task completed"]
        finishing = outcome.messages[-1]
        assert finishing == outcome.response
        assert finishing.msg_type == "broadcast_complete"
        assert finishing.message.subject == "::task_complete::"
        assert finishing.message.body == "the answer"
        assert finishing.sender.model_dump() == {"address_type": "agent", "address": "supervisor"}
        assert finishing.message.recipients[0].address == "all"
        assert outcome.events[-1].data("x")["response"] == "the answer"

    def test_only_a_supervisor_can(self) -> None:
        begun = Maker().begin(TaskKey(ANN, "t"), Mail("beta"))
        change = change_of(begun, complete("mine"))
        assert change.results[0].startswith("ERROR: ")
        assert (change.answer, change.mail) == (None, (("beta", "::tool_call_error::"),))

    async def test_any_supervisor_can(self) -> None:
        deputy = build_agent(
            lambda view: [complete("by the deputy")], targets=["supervisor"], supervises=True, name="deputy"
        )
        outcome, _, _ = await after(request("deputy"), wait(), deputy=deputy)
        assert outcome.answer == "by the deputy"

    async def test_twice_in_one_turn_is_harmless(self) -> None:
        outcome, results, _ = await after(complete("first"), complete("second"))
        assert outcome.answer == "first"
        assert outcome.kinds.count(EventKind.TASK_COMPLETE) == 1
        assert outcome.kinds.count(EventKind.TASK_COMPLETE_CALL_DUPLICATE) == 1
        assert results[1].startswith("SUCCESS: ")
        assert outcome.events[-1].kind is EventKind.TASK_COMPLETE

    async def test_what_was_sent_before_it_is_stashed_and_what_comes_after_is_dropped(self) -> None:
        swarm = build_swarm(
            {
                "supervisor": turns([request("worker", "before"), complete(), request("worker", "after")]),
                "worker": answering,
            }
        )
        async with Rig(swarm) as rig:
            outcome = await rig.ask()
            inbox = await rig.inbox(outcome.key)
        assert [entry.message.message.body for entry in inbox] == ["before"]
        assert outcome.events[-1].kind is EventKind.TASK_COMPLETE

    def test_an_empty_answer_is_an_answer(self) -> None:
        assert change_of(BEGUN, complete("")).answer == ""


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("send_interswarm_broadcast", {"subject": "s", "body": "b", "target_swarms": ["other"]}),
        ("send_interswarm_broadcast", {"subject": "s", "body": "b"}),
        ("discover_swarms", {"discovery_urls": ["http://localhost:1"]}),
        ("send_request", {"target": "agent@other", "subject": "s", "body": "b"}),
        ("send_response", {"target": "agent@other", "subject": "s", "body": "b"}),
        ("send_interrupt", {"target": "agent@other", "subject": "s", "body": "b"}),
    ],
)
async def test_other_swarms_that_cannot_be_reached_are_told_to_the_agent(tool: str, args: Any) -> None:
    reaching = build_agent(
        lambda view: [call(tool, **args)] if len(view.messages) == 1 else [complete(view.mail.subject)],
        targets=["agent@other"],
        supervises=True,
        enable_interswarm=True,
        name="supervisor",
    )
    outcome = await ask_once(build_swarm({"supervisor": reaching}))
    assert outcome.kinds.count(EventKind.INTERSWARM_MESSAGE_ERROR) == 1
    assert outcome.answer.startswith("::")


WRONG_CALLS = [
    ("send_request", {}),
    ("send_request", {"target": "worker"}),
    ("send_request", {"target": "worker", "subject": "s", "body": None}),
    ("send_request", {"target": "", "subject": "s", "body": "b"}),
    ("send_request", {"target": ["worker"], "subject": "s", "body": "b"}),
    ("send_response", {"target": "worker", "subject": 5, "body": "b"}),
    ("send_interrupt", {"subject": "s", "body": "b"}),
    ("send_broadcast", {"subject": "s"}),
    ("send_interswarm_broadcast", {"body": "b"}),
    ("discover_swarms", {"discovery_urls": []}),
    ("discover_swarms", {}),
    ("await_message", {"reason": {"a": 1}}),
    ("help", {"get_summary": "maybe"}),
    ("help", {"get_tool_help": "send_request"}),
    ("acknowledge_broadcast", {"note": 1}),
    ("ignore_broadcast", {"reason": []}),
    ("task_complete", {}),
    ("task_complete", {"finish_message": 42}),
]


@pytest.mark.parametrize(("tool", "args"), WRONG_CALLS)
async def test_wrong_calls_are_told_to_the_agent_and_wake_it(tool: str, args: dict[str, Any]) -> None:
    outcome, results, letters = await after(call(tool, **args), worker=answering)
    assert results[0].startswith("ERROR: ")
    (letter,) = letters
    assert letter.sender_type == "system"
    assert letter.subject == "::tool_call_error::"
    assert results[0] == f"ERROR: {letter.body}"
    (event,) = outcome.of(EventKind.AGENT_ERROR)
    assert letter.body in event.text
    assert outcome.answer == "done"
    told = outcome.messages[1]
    assert told.msg_type == "response"
    assert told.sender.model_dump() == {"address_type": "system", "address": "example"}


def test_wrong_arguments_are_named() -> None:
    error = "ERROR: send_request: subject: Field required; body: Field required"
    assert change_of(BEGUN, call("send_request", target="beta")) == Change((error,), WRONG)


def test_unknown_arguments_are_let_through() -> None:
    """Models invent some; what they meant by the others is clear."""
    invented = call("send_request", target="beta", subject="s", body="b", urgency="high")
    assert change_of(BEGUN, invented) == Change(("SUCCESS: request sent to beta",), (("beta", "s"),))


def test_an_excluded_tool_does_not_exist() -> None:
    silent = build_swarm({"alpha": build_agent(turns(), supervises=True, exclude_tools=frozenset({"help"}))})
    change = change_of(BEGUN, call("help"), swarm=silent)
    assert change == Change(("ERROR: there is no tool 'help'",), (("alpha", "::action_error::"),))


def test_an_action_of_others_does_not_exist_for_an_agent_without_it() -> None:
    async def act(args: dict[str, Any]) -> str:
        return "acted"

    bare = build_swarm({"alpha": build_agent(turns(), supervises=True)}, actions={"act": act})
    change = change_of(BEGUN, call("act"), swarm=bare)
    assert change == Change(("ERROR: there is no tool 'act'",), (("alpha", "::action_error::"),))


@pytest.mark.parametrize("tool", ["no_such_tool", "", "get_weather"])
async def test_an_unknown_tool_is_an_action_error(tool: str) -> None:
    outcome, results, letters = await after(call(tool, city="Tokyo"), worker=answering)
    (letter,) = letters
    assert (letter.sender_type, letter.subject) == ("system", "::action_error::")
    assert letter.body == f"there is no tool {tool!r}"
    assert results == [f"ERROR: {letter.body}"]
    (event,) = outcome.of(EventKind.ACTION_ERROR)
    assert event.text == f"action error (caller = supervisor):\n{letter.body}"
    assert event.agent == "supervisor"
    assert outcome.of(EventKind.AGENT_ERROR) == []
    assert outcome.answer == "done"


@pytest.mark.parametrize("noted", [acknowledge("noted"), ignore("noted"), acknowledge(), ignore()])
def test_what_the_system_sends_can_always_be_noted(noted: Call) -> None:
    """An agent that may not complete tasks has nothing else to do with it."""
    begun = Maker().begin(TaskKey(ANN, "t"), Mail("beta", Tier.SYSTEM))
    results, mail, *_ = change_of(begun, noted)
    assert all(result.startswith("SUCCESS: ") for result in results)
    assert "beta" not in dict(mail)


def test_no_tool_call_at_all_is_an_error() -> None:
    assert change_of(BEGUN) == Change((), WRONG)


async def test_text_of_an_agent_stays_in_its_history() -> None:
    def policy(view: View) -> Any:
        return [call("text_output", content="Hello!")] if len(view.messages) == 1 else [complete()]

    core = build_agent(policy, supervises=True)
    core = type(core)(scripted(policy, text="Hello!"), enable_entrypoint=True, can_complete_tasks=True)
    async with Rig(build_swarm({"supervisor": core})) as rig:
        outcome = await rig.ask()
        history = await rig.history("supervisor", outcome.key)
    assert history[1]["role"] == "assistant"
    assert history[1]["content"] == "Hello!"
