"""Guards judge what an agent says before it happens, and what its actions return before it reads that."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mail.core.protocol.message import Tier
from mail.core.protocol.tool_schemas import AgentToolCall, ToolFormat
from mail.core.task.costs import Usage
from mail.core.task.events import EventKind
from mail.core.task.extras import CallExtra, GuardExtra
from mail.core.task.guards import (
    ALLOW,
    Act,
    AskPerson,
    Guard,
    Refuse,
    Replace,
    Ruling,
    Stage,
)
from mail.core.task.limits import FAULTS_IN_A_ROW
from mail.core.task.ports import WakeUp
from mail.core.task.swarm import AgentCore, History, SwarmCore, ToolChoice
from mail.core.task.task import TaskStatus
from mail.core.turns.context import TURN, model_call, report_usage
from mail.errors import ConfigurationError
from mail.testing.agents import (
    Call,
    View,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    wait,
)
from mail.testing.rig import Outcome as Ended
from mail.testing.rig import Rig, ask_once

MARKER = "k7Qz9vXw3LpT"
"""What must not leave a turn."""

FORMATS = pytest.mark.parametrize("tool_format", ["completions", "responses"])


def guard_of(rule: Any, *on: Stage, name: str = "strict", **settings: Any) -> Guard:
    async def judge(act: Act) -> Any:
        return rule(act)

    return Guard(name=name, function=judge, on=frozenset(on), **settings)


def no_marker(act: Act) -> Ruling:
    return Refuse("it has the marker") if MARKER in act.text else ALLOW


def without_marker(act: Act) -> Ruling:
    return Replace(act.text.replace(MARKER, "…")) if MARKER in act.text else ALLOW


def second_try(*first: Call, then: Call | None = None) -> Any:
    """A rule that begins with these calls, and then completes with what it has read."""

    def rule(view: View) -> list[Call]:
        if len(view.messages) == 1 and not view.results:
            return list(first)
        return [then or complete(" | ".join([*view.results, view.mail.body]))]

    return rule


def swarm_of(
    rule: Any, *guards: Guard, tool_format: ToolFormat = "completions", **settings: Any
) -> SwarmCore:
    return build_swarm({"chief": rule}, guards=guards, tool_format=tool_format, **settings)


def decisions(ended: Ended) -> list[GuardExtra]:
    found = [event.extra for event in ended.of(EventKind.GUARD_DECISION)]
    return [each for each in found if isinstance(each, GuardExtra)]


async def everything(rig: Rig, ended: Ended, *agents: str) -> str:
    """All that is kept of a task, and all that clients can see of it."""
    histories = [await rig.history(agent, ended.key) for agent in agents or ("chief",)]
    events = await rig.store.read_events(ended.key)
    shown = [event.data(ended.key.task_id) for event in events]
    return repr((histories, events, shown, ended.response, await rig.task(ended.key)))


# -------------------------------------------------------------------------------------------------- answers


@FORMATS
async def test_a_refused_answer_leaves_nothing_but_the_reason(
    tool_format: ToolFormat, tmp_path: Path
) -> None:
    first = Call("task_complete", {"finish_message": MARKER}, reasoning=[MARKER], preamble=MARKER)
    rule = second_try(first, then=complete("without"))
    rig = Rig(
        swarm_of(rule, guard_of(no_marker, "answer"), tool_format=tool_format), path=tmp_path / "db.sqlite"
    )
    async with rig:
        ended = await rig.ask()
        assert ended.answer == "without"
        assert MARKER not in await everything(rig, ended)
        history = repr(await rig.history("chief", ended.key))
    assert "ERROR: [refused: it has the marker]" in history
    assert '{"refused": "it has the marker"}' in history
    refusal, allowed = decisions(ended)
    assert (refusal.outcome, refusal.on, refusal.tool_name) == ("refuse", "answer", "task_complete")
    assert (allowed.outcome, list(allowed.guards)) == ("allow", ["strict"])
    assert MARKER.encode() not in b"".join(each.read_bytes() for each in tmp_path.iterdir())
    (told,) = [each for each in ended.sent_to("chief") if each.sender.address_type == "system"]
    assert (told.message.subject, told.message.body) == (
        "::tool_call_error::",
        "strict: [refused: it has the marker]",
    )
    assert EventKind.AGENT_ERROR not in ended.kinds


def writes(*texts: str) -> AgentCore:
    """An agent that writes texts without a call, one after the other."""

    async def function(history: History, _choice: ToolChoice) -> tuple[str | None, list[AgentToolCall]]:
        return texts[min(len(View(history, "auto").messages), len(texts)) - 1], []

    return AgentCore(function, enable_entrypoint=True, can_complete_tasks=True)


@pytest.mark.parametrize("on", ["answer", "message"])
async def test_text_without_a_call_may_be_either(on: Stage) -> None:
    swarm = swarm_of(writes(MARKER, "fine"), guard_of(no_marker, on))
    async with Rig(swarm) as rig:
        ended = await rig.ask()
        assert ended.answer == "fine"
        assert MARKER not in await everything(rig, ended)
        texts = [
            entry["content"] for entry in await rig.history("chief", ended.key) if entry["role"] != "user"
        ]
    assert texts == ["[refused: it has the marker]", "fine"]


@FORMATS
async def test_text_of_a_model_is_replaced_with_all_that_may_quote_it(tool_format: ToolFormat) -> None:
    said = Call("text_output", {"content": f"It is {MARKER}."}, reasoning=[MARKER])
    rule = second_try(said)
    swarm = swarm_of(rule, guard_of(without_marker, "answer"), tool_format=tool_format)
    async with Rig(swarm) as rig:
        ended = await rig.ask()
        assert ended.answer == "It is …."
        assert MARKER not in await everything(rig, ended)


async def test_a_typed_answer_is_judged_and_replaced_as_json() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    seen: list[Act] = []

    def judge(act: Act) -> Ruling:
        seen.append(act)
        return Replace('{"name": "…"}')

    rule = second_try(Call("task_complete", {"output": {"name": MARKER}}))
    async with Rig(swarm_of(rule, guard_of(judge, "answer"), output_schema=schema)) as rig:
        ended = await rig.ask()
        assert MARKER not in await everything(rig, ended)
    assert ended.answer == '{"name":"…"}'
    assert [(act.text, act.target, act.caller) for act in seen] == [
        (f'{{"name":"{MARKER}"}}', "user", "user:ann@example")
    ]


async def test_an_agent_tries_again_a_bounded_number_of_times() -> None:
    tries = 0

    def rule(_view: View) -> list[Call]:
        nonlocal tries
        tries += 1
        return [complete(MARKER)]

    async with Rig(swarm_of(rule, guard_of(no_marker, "answer"))) as rig:
        ended = await rig.ask()
        assert MARKER not in await everything(rig, ended)
    assert (tries, ended.task.status) == (FAULTS_IN_A_ROW, TaskStatus.FAILED)
    assert "5 faulty turns in a row; the last: strict: [refused: it has the marker]" in ended.answer


async def test_what_a_response_tells_the_user_is_an_answer() -> None:
    seen: list[tuple[str, str]] = []

    def judge(act: Act) -> Ruling:
        seen.append((act.on, act.target))
        return ALLOW

    rule = second_try(respond("user", "hello"), respond("clerk", "hello"), then=complete("done"))
    rules = {"chief": rule, "clerk": lambda _view: [wait()]}
    await ask_once(build_swarm(rules, guards=(guard_of(judge, "answer", "message"),)))
    assert seen[:2] == [("answer", "user"), ("message", "clerk")]


# ------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    "said",
    [
        request("clerk", MARKER, "Subject"),
        request("clerk", "Body", MARKER),
        broadcast(MARKER, "News"),
        call("await_message", reason=MARKER),
        call("remind_me", **{"note": MARKER, "in": "1h"}),
        call("help", nonsense=MARKER),
        call("send_request", body=MARKER),
    ],
)
async def test_every_text_of_a_tool_of_mail_is_judged(said: Call) -> None:
    rules = {"chief": second_try(said, then=complete("without")), "clerk": lambda _view: [wait()]}
    async with Rig(build_swarm(rules, guards=(guard_of(no_marker, "message"),))) as rig:
        ended = await rig.ask()
        assert ended.answer == "without"
        assert MARKER not in await everything(rig, ended, "chief", "clerk")


async def test_a_replaced_message_arrives_with_subject_and_body() -> None:
    def clerk(view: View) -> list[Call]:
        return [respond("chief", f"{view.mail.subject}/{view.mail.body}")]

    chief = second_try(request("clerk", f"Body {MARKER}", f"Subject {MARKER}"))
    swarm = build_swarm({"chief": chief, "clerk": clerk}, guards=(guard_of(without_marker, "message"),))
    async with Rig(swarm) as rig:
        ended = await rig.ask()
        assert "Subject …/Body …" in ended.answer
        assert MARKER not in await everything(rig, ended, "chief", "clerk")


async def test_the_rest_of_a_reply_happens_without_its_text() -> None:
    first = [Call("look", {}, preamble=f"I know {MARKER}", reasoning=[MARKER]), call("look", n=2)]
    looked: list[Any] = []

    async def look(arguments: dict[str, Any]) -> str:
        looked.append(arguments)
        return "seen"

    swarm = swarm_of(second_try(*first), guard_of(no_marker, "message"), actions={"look": look})
    async with Rig(swarm) as rig:
        ended = await rig.ask()
        assert MARKER not in await everything(rig, ended)
        history = await rig.history("chief", ended.key)
    assert looked == [{}, {"n": 2}]
    assert history[1]["content"] == "[refused: it has the marker]"


# ---------------------------------------------------------------------------------------------------- calls


class Bank:
    """Counts what its actions have done."""

    def __init__(self, result: str = "paid") -> None:
        self.paid: list[Any] = []
        self.result = result

    async def pay(self, arguments: dict[str, Any]) -> str:
        self.paid.append(arguments)
        return self.result


@FORMATS
async def test_a_refused_call_has_no_receipt_and_its_agent_reads_why(tool_format: ToolFormat) -> None:
    bank = Bank()
    rule = second_try(call("pay", to=MARKER), call("pay", to="bob"))
    swarm = swarm_of(rule, guard_of(no_marker, "call"), actions={"pay": bank.pay}, tool_format=tool_format)
    async with Rig(swarm) as rig:
        ended = await rig.ask()
        assert MARKER not in await everything(rig, ended)
    assert bank.paid == [{"to": "bob"}]
    assert ended.answer.startswith("ERROR: [refused: it has the marker] | SUCCESS: paid")
    assert [event.kind for event in ended.events].count(EventKind.ACTION_CALL) == 1


async def test_an_agent_whose_only_call_is_refused_is_woken_with_the_reason() -> None:
    bank = Bank()
    swarm = swarm_of(
        second_try(call("pay", to=MARKER)), guard_of(no_marker, "call"), actions={"pay": bank.pay}
    )
    ended = await ask_once(swarm)
    assert bank.paid == []
    assert ended.answer == "ERROR: [refused: it has the marker] | strict: [refused: it has the marker]"


async def test_the_arguments_of_a_call_are_replaced() -> None:
    bank = Bank()

    def judge(act: Act) -> Ruling:
        return Replace({**act.arguments, "amount": min(act.arguments["amount"], 10)})

    swarm = swarm_of(second_try(call("pay", amount=99)), guard_of(judge, "call"), actions={"pay": bank.pay})
    ended = await ask_once(swarm)
    assert bank.paid == [{"amount": 10}]
    (called,) = [e.extra for e in ended.of(EventKind.TOOL_CALL) if isinstance(e.extra, CallExtra)][:1]
    assert called.tool_args == {"amount": 10}


async def approving(rig: Rig, paused: Ended, **decision: Any) -> Ended:
    return await rig.ask(
        "", task_id=paused.key.task_id, resume_from="breakpoint_tool_call", approvals=[decision]
    )


async def test_a_guard_asks_a_person_by_the_approval_of_the_call() -> None:
    bank = Bank()
    guard = guard_of(lambda act: AskPerson("Is it right?"), "call")
    async with Rig(swarm_of(second_try(call("pay", to="bob")), guard, actions={"pay": bank.pay})) as rig:
        paused = await rig.ask()
        assert (paused.task.status, bank.paid) == (TaskStatus.PAUSED, [])
        (asked,) = decisions(paused)
        assert (asked.outcome, asked.reason) == ("ask", "Is it right?")
        done = await approving(rig, paused, decision="approve")
    assert bank.paid == [{"to": "bob"}]
    assert done.answer.startswith("SUCCESS: paid")


@pytest.mark.parametrize(
    ("edited", "result", "paid"),
    [
        ({"to": "eve"}, "SUCCESS: ", [{"to": "eve"}]),
        ({"to": MARKER}, "ERROR: [refused: it has the marker]", []),
    ],
)
async def test_arguments_that_a_person_has_changed_are_judged_too(
    edited: dict[str, Any], result: str, paid: list[Any]
) -> None:
    bank = Bank()
    guards = (guard_of(lambda act: AskPerson(), "call", name="asks"), guard_of(no_marker, "call"))
    async with Rig(swarm_of(second_try(call("pay", to="bob")), *guards, actions={"pay": bank.pay})) as rig:
        paused = await rig.ask()
        done = await approving(rig, paused, decision="edit", arguments=edited)
    assert bank.paid == paid
    assert done.answer.partition(" | ")[0].startswith(result)


async def test_the_task_of_another_swarm_has_nobody_to_ask() -> None:
    bank = Bank()
    guard = guard_of(lambda act: AskPerson(), "call", "answer")
    async with Rig(
        swarm_of(second_try(call("pay"), then=complete("x")), guard, actions={"pay": bank.pay})
    ) as rig:
        paused = await rig.ask()
        done = await approving(rig, paused, decision="approve")
    assert done.task.status is TaskStatus.FAILED  # a person can't decide on an answer
    assert "asks a person, who can decide on calls of actions only" in done.answer


# -------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("rule", "read"),
    [(no_marker, "SUCCESS: [refused: it has the marker]"), (without_marker, "SUCCESS: it is …")],
)
async def test_results_are_judged_before_the_agent_reads_them(rule: Any, read: str) -> None:
    bank = Bank(f"it is {MARKER}")
    swarm = swarm_of(second_try(call("pay")), guard_of(rule, "result"), actions={"pay": bank.pay})
    async with Rig(swarm) as rig:
        ended = await rig.ask()
        assert MARKER not in await everything(rig, ended)
    assert len(bank.paid) == 1
    assert ended.answer.partition(" | ")[0] == read


async def test_errors_of_actions_are_judged_too() -> None:
    async def fail(_arguments: dict[str, Any]) -> str:
        raise ValueError(f"no {MARKER}")

    swarm = swarm_of(second_try(call("pay")), guard_of(no_marker, "result"), actions={"pay": fail})
    async with Rig(swarm) as rig:
        ended = await rig.ask()
        assert MARKER not in await everything(rig, ended)
    assert ended.answer.startswith("ERROR: [refused: it has the marker]")


async def test_an_approved_call_has_its_result_judged() -> None:
    bank = Bank(MARKER)
    guards = (guard_of(lambda act: AskPerson(), "call", name="asks"), guard_of(no_marker, "result"))
    async with Rig(swarm_of(second_try(call("pay")), *guards, actions={"pay": bank.pay})) as rig:
        paused = await rig.ask()
        done = await approving(rig, paused, decision="approve")
        assert MARKER not in await everything(rig, done)
    assert done.answer.startswith("SUCCESS: [refused: it has the marker]")


# ------------------------------------------------------------------------------------ guards that fail, and others


def fails(_act: Act) -> Ruling:
    raise ValueError(f"can't read {MARKER}")


async def hangs(_act: Act) -> Ruling:
    await asyncio.Event().wait()
    return ALLOW


@pytest.mark.parametrize(
    ("guard", "why"),
    [
        (guard_of(fails, "answer"), "guard strict failed"),
        (
            Guard(name="strict", function=hangs, on=frozenset({"answer"}), timeout=0.001),
            "guard strict took too long",
        ),
        (guard_of(lambda act: None, "answer"), "must return a verdict, but returned NoneType"),
        (guard_of(lambda act: True, "answer"), "must return a verdict, but returned bool"),
    ],
)
async def test_a_guard_that_fails_refuses(guard: Guard, why: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Rig(swarm_of(lambda _view: [complete(MARKER)], guard)) as rig:
        ended = await rig.ask()
        assert MARKER not in await everything(rig, ended)
    assert ended.task.status is TaskStatus.FAILED
    assert why in ended.answer
    assert MARKER not in caplog.text
    assert decisions(ended)[0].failed


@pytest.mark.parametrize("guard", [guard_of(fails, "answer", fails_open=True)])
async def test_a_guard_that_fails_open_allows(guard: Guard) -> None:
    ended = await ask_once(swarm_of(lambda _view: [complete("fine")], guard))
    assert ended.answer == "fine"
    (decision,) = decisions(ended)
    assert (decision.outcome, decision.failed, decision.reason) == ("allow", True, "guard strict failed")


async def test_guards_judge_in_their_order_those_of_the_swarm_first() -> None:
    seen: list[tuple[str, str]] = []

    def note(name: str, ruling: Any) -> Guard:
        def judge(act: Act) -> Any:
            seen.append((name, act.text))
            return ruling

        return guard_of(judge, "answer", name=name)

    chief = build_agent(
        lambda _view: [complete("one")],
        supervises=True,
        guards=(note("c", Replace("three")), note("d", Refuse("no")), note("e", ALLOW)),
    )
    ended = await ask_once(
        build_swarm({"chief": chief}, guards=(note("a", ALLOW), note("b", Replace("two"))))
    )
    assert seen[:4] == [("a", "one"), ("b", "one"), ("c", "two"), ("d", "three")]
    assert [list(each.guards) for each in decisions(ended)[:3]] == [["b"], ["c"], ["d"]]


@pytest.mark.parametrize(
    ("guards", "problem"),
    [
        ([guard_of(no_marker, "call"), guard_of(no_marker, "answer")], "with different names"),
        ([guard_of(no_marker, "call", name=str(n)) for n in range(11)], "there may be 10 guards"),
        (["strict"], "made by @guard"),
    ],
)
def test_guards_that_no_agent_can_have(guards: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        swarm_of(second_try(), *guards)


@pytest.mark.parametrize("settings", [{"on": frozenset()}, {"on": frozenset({"reply"})}, {"timeout": 0}])
def test_settings_of_guards_are_checked(settings: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="guard 'g'"):
        Guard(name="g", function=hangs, **{"on": frozenset({"call"}), **settings})


# ---------------------------------------------------------------------------------- guards that cost something


class Killed(BaseException):
    """Ends a turn as the end of its process does."""


async def test_the_reply_and_the_verdicts_are_stored_once() -> None:
    """A judging model is paid once, and so is the reply that it judges, if a crash comes between."""
    calls: list[str] = []
    dies = True

    def rule(view: View) -> list[Call]:
        calls.append("reply")
        report_usage(Usage(calls=1, output_tokens=7), "house/agent")
        return (
            [call("pay", to="bob"), call("pay", to=MARKER)] if len(view.messages) == 1 else [complete("done")]
        )

    async def judge(act: Act) -> Ruling:
        nonlocal dies
        if MARKER in act.text and dies:
            dies = False
            raise Killed
        calls.append(f"judge {act.tool}")
        with model_call("house/judge") as made:
            made.report(Usage(calls=1, output_tokens=1))
            assert not made.wants_deltas
        return no_marker(act)

    bank = Bank()
    guard = Guard(name="judge", function=judge, on=frozenset({"call"}), checkpointed=True)
    async with Rig(swarm_of(rule, guard, actions={"pay": bank.pay}), concurrency=0) as rig:
        submitted = await rig.submit()
        with pytest.raises(Killed):
            await rig.step()
        rig.queue.put(WakeUp(submitted.key, "chief", Tier.PERSON))
        while await rig.step():
            pass
        ended = await rig.outcome(submitted)
        assert MARKER not in await everything(rig, ended)
    assert calls == ["reply", "judge pay", "judge pay", "reply"]
    assert bank.paid == [{"to": "bob"}]
    usage = sum(each.output_tokens for each in ended.task.usage.values())
    assert usage == 2 * 7 + 2


async def test_live_events_have_no_text_before_the_verdict() -> None:
    swarm = swarm_of(lambda _view: [complete(str(TURN.get().is_private))], guard_of(no_marker, "answer"))
    assert (await ask_once(swarm)).answer == "True"
    swarm = swarm_of(lambda _view: [complete(str(TURN.get().is_private))], guard_of(no_marker, "call"))
    assert (await ask_once(swarm)).answer == "False"
