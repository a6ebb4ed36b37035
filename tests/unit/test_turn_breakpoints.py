"""Breakpoint tools: an agent calls, the task pauses, the user gives the result, the agent continues."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mail.core.decisions.fork import fork
from mail.core.decisions.submit import ResumeFrom, Submission, admit
from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.protocol.xml import read_mail_xml
from mail.core.task.change import Inheritance, Snapshot, Turn
from mail.core.task.events import EventKind
from mail.core.task.leases import Lease
from mail.core.task.swarm import History
from mail.core.task.task import TaskStatus
from mail.core.task.turn_state import Resumption
from mail.errors import BadBreakpointResult, BadRequest, NotPaused, QuestionOpen, TaskNotFound
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait
from mail.testing.rig import Outcome, Rig

FORMATS: list[ToolFormat] = ["completions", "responses"]
RESUME = "breakpoint_tool_call"


async def echo(args: dict[str, Any]) -> str:
    return "echo"


def asking(*script: Call, tool_format: ToolFormat = "completions") -> Rig:
    """A supervisor that plays the script first, and then finishes with the results it has."""

    def supervisor(view: View) -> Any:
        return list(script) if len(view.messages) == 1 else [complete(" | ".join(view.results))]

    return Rig(
        build_swarm(
            {"supervisor": supervisor, "worker": lambda view: [respond("supervisor")]},
            actions={"echo": echo},
            breakpoint_tools=frozenset({"approve", "choose"}),
            tool_format=tool_format,
        )
    )


async def resume(rig: Rig, paused: Outcome, result: Any, body: str = "", **fields: Any) -> Outcome:
    return await rig.ask(
        body, task_id=paused.key.task_id, resume_from=RESUME, breakpoint_tool_call_result=result, **fields
    )


async def test_the_answer_of_a_paused_task_in_completions_format() -> None:
    async with asking(call("approve", what="rockets")) as rig:
        outcome = await rig.ask()
    assert outcome.subject == "::breakpoint_tool_call::"
    assert json.loads(outcome.answer) == [
        {"arguments": '{"what": "rockets"}', "name": "approve", "id": "supervisor1.0"}
    ]
    assert outcome.task.status is TaskStatus.PAUSED
    assert outcome.response.msg_type == "broadcast_complete"


async def test_the_answer_of_a_paused_task_in_responses_format() -> None:
    async with asking(call("approve", what="rockets"), tool_format="responses") as rig:
        outcome = await rig.ask()
    (item,) = json.loads(outcome.answer)
    assert json.loads(item.pop("arguments")) == {"what": "rockets"}
    assert item == {
        "call_id": "supervisor1.0",
        "name": "approve",
        "type": "function_call",
        "id": "fc_supervisor1.0",
        "status": "completed",
    }


async def test_order_of_events_of_a_pause() -> None:
    async with asking(call("approve", what="rockets")) as rig:
        outcome = await rig.ask()
    assert outcome.kinds == ["new_message", "tool_call", "breakpoint_tool_call", "task_complete"]
    (event,) = outcome.of(EventKind.BREAKPOINT_TOOL_CALL)
    assert event.text == "agent supervisor used breakpoint tools approve with args: {'what': 'rockets'}"
    assert event.data("x")["extra_data"] == {"agent": "supervisor"}
    assert outcome.events[-1].data("x")["response"] == outcome.answer


ONE_RESULT = [
    ('{"content": "yes"}', "yes"),
    ({"content": "yes"}, "yes"),
    ('{"call_id": "supervisor1.0", "content": "yes"}', "yes"),
    ({"call_id": "supervisor1.0", "content": "yes"}, "yes"),
    ([{"call_id": "supervisor1.0", "content": "yes"}], "yes"),
    ('[{"call_id": "supervisor1.0", "content": "yes"}]', "yes"),
    ([{"content": "yes"}], "yes"),
    ([{"id": "supervisor1.0", "content": "yes"}], "yes"),
    ({"call_id": "one that nobody made", "content": "yes"}, "yes"),
    ([{"call_id": ["not", "even", "text"], "content": "yes"}], "yes"),
    ("yes", "yes"),
    ("plain text, with {braces", "plain text, with {braces"),
    ("", ""),
    ("{}", "{}"),
    ('{"approved": true}', '{"approved": true}'),
    ({"approved": True}, '{"approved": true}'),
    ("[1, 2]", "[1, 2]"),
    ([1, 2], "[1, 2]"),
    ("5", "5"),
    (5, "5"),
    ("null", "null"),
    ('"quoted"', "quoted"),
    ({"content": {"deep": [1, None]}}, '{"deep": [1, null]}'),
    ({"content": ""}, ""),
    ({"content": "ü🦊"}, "ü🦊"),
    ("x" * 100_000, "x" * 100_000),
    ("[" * 100_000, "[" * 100_000),
    ('{"content": "\\ud800"}', '{"content": "\\ud800"}'),
    ('{"content": NaN}', '{"content": NaN}'),
]


@pytest.mark.parametrize(("given", "read"), ONE_RESULT, ids=[str(n) for n in range(len(ONE_RESULT))])
async def test_every_form_of_a_result(given: Any, read: str) -> None:
    async with asking(call("approve")) as rig:
        paused = await rig.ask()
        outcome = await resume(rig, paused, given)
    assert outcome.answer == read
    assert outcome.task.status is TaskStatus.COMPLETED
    assert outcome.task.generation.number == 2


@pytest.mark.parametrize("tool_format", FORMATS)
async def test_the_result_is_the_tool_result_in_the_history_and_wakes_the_agent(
    tool_format: ToolFormat,
) -> None:
    async with asking(call("approve"), tool_format=tool_format) as rig:
        paused = await rig.ask()
        outcome = await resume(rig, paused, {"content": "yes"})
        history = await rig.history("supervisor", outcome.key)
    results = [e for e in history if e.get("role") == "tool" or e.get("type") == "function_call_output"]
    if tool_format == "completions":
        assert results[0] == {"role": "tool", "tool_call_id": "supervisor1.0", "content": "yes"}
    else:
        assert results[0] == {"type": "function_call_output", "call_id": "supervisor1.0", "output": "yes"}
    position = history.index(results[0])
    assert history[position - 1].get("tool_calls") or history[position - 1]["type"] == "function_call"
    (first,) = [e for e in history if e.get("role") == "user"]
    assert "::action_complete::" not in str(first)
    assert outcome.messages[0].message.subject == "::action_complete::"
    assert outcome.task.resumptions == ()
    assert outcome.kinds[:2] == ["breakpoint_action_complete", "new_message"]
    assert outcome.events[0].text == "breakpoint action complete (caller = supervisor):\nyes"


async def test_words_along_with_the_result_reach_the_agent() -> None:
    """They are before the call when the agent is called, so that it finds the result at the end; later behind it."""
    seen: list[History] = []

    def supervisor(view: View) -> Any:
        seen.append(view.history)
        return [complete(view.results[0])] if view.results else [call("approve")]

    async with Rig(build_swarm({"supervisor": supervisor}, breakpoint_tools=frozenset({"approve"}))) as rig:
        paused = await rig.ask()
        outcome = await resume(rig, paused, "yes", body="but hurry")
        history = await rig.history("supervisor", outcome.key)
    result = {"role": "tool", "tool_call_id": "supervisor1.0", "content": "yes"}
    position = history.index(result)
    words = read_mail_xml(history[position + 1])
    assert (words.sender.address_type, words.sender.address, words.body) == ("user", "ann", "but hurry")
    first, asked, *_ = history
    assert seen[1] == [first, history[position + 1], asked, result]
    assert outcome.answer == "yes"


@pytest.mark.parametrize("tool_format", FORMATS)
async def test_an_agent_function_finds_the_result_at_the_end_of_its_history(tool_format: ToolFormat) -> None:
    seen: list[History] = []

    def supervisor(view: View) -> Any:
        seen.append(view.history)
        return [complete("approved")] if len(seen) > 1 else [call("approve")]

    swarm = build_swarm(
        {"supervisor": supervisor}, breakpoint_tools=frozenset({"approve"}), tool_format=tool_format
    )
    async with Rig(swarm) as rig:
        paused = await rig.ask()
        assert (await resume(rig, paused, "yes")).answer == "approved"
        last = seen[1][-1]
        assert last.get("content", last.get("output")) == "yes"
        again = await rig.ask("and now?", task_id=paused.key.task_id)
        assert again.answer == "approved"
        roles = [entry["role"] for entry in seen[2] if "role" in entry]
    assert roles.count("user") == 2


async def test_a_fork_between_the_result_and_the_turn_shows_it_the_same_way() -> None:
    async with asking(call("approve")) as rig:
        paused = await rig.ask()
        results = Submission(
            task_id=paused.key.task_id,
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            breakpoint_tool_call_result="yes",
        )
        resumed = admit(paused.task, rig.runtime.swarm, rig.user, results, rig.runtime.clock)
        snapshot = Snapshot(resumed.task, [])
        history = [*await rig.history("supervisor", paused.key), *resumed.histories[0].entries]
        portions = resumed.task.histories["supervisor"]
        inherited = Inheritance(paused.key, {"supervisor": portions}, 100)
        forked = fork(
            snapshot,
            resumed.deliveries,
            inherited,
            rig.runtime.swarm,
            rig.user,
            "forked",
            rig.runtime.clock,
            run=True,
        )
    (entry,) = forked.deliveries
    assert forked.task.resumptions == (Resumption(seq=entry.seq, agent="supervisor", portions=portions),)
    lease = Lease("worker/1", 0.0)
    assert Turn(forked.task, entry, lease, history, None).prompts == []
    moved_on = replace(forked.task, histories={"supervisor": portions + 1})
    assert Turn(moved_on, entry, lease, [], None).prompts == [entry.prompt]


async def test_a_wake_up_that_is_read_after_another_pause_stays_unseen() -> None:
    """Two agents pause; the first one's results are read only after the second one's."""
    seen: dict[str, History] = {}

    def boss(view: View) -> Any:
        if len(view.messages) == 1:
            return [request("a"), request("b"), wait()]
        return [complete("both")] if view.mail.body == "b has read yes" else [wait()]

    def asks(name: str) -> Any:
        def policy(view: View) -> Any:
            seen[name] = view.history
            return [respond("boss", f"{name} has read yes")] if view.results else [call("approve")]

        return policy

    swarm = build_swarm(
        {"boss": boss, "a": asks("a"), "b": asks("b")}, breakpoint_tools=frozenset({"approve"})
    )
    async with Rig(swarm) as rig:
        outcome = await rig.ask()
        for _ in range(2):
            assert outcome.subject == "::breakpoint_tool_call::"
            outcome = await resume(rig, outcome, "yes")
        assert outcome.answer == "both"
        assert outcome.task.resumptions == ()
    for name in ("a", "b"):
        assert "::action_complete::" not in str(seen[name])


WRONG_FOR_SEVERAL: list[Any] = [
    "yes",
    {"content": "yes"},
    [{"content": "yes"}],
    [{"call_id": "supervisor1.0", "content": "yes"}],
    [{"call_id": f"supervisor1.{n}", "content": "yes"} for n in (0, 2)],
    [{"call_id": f"supervisor1.{n}", "content": "yes"} for n in (0, 2, 4)],
    [{"call_id": f"supervisor1.{n}", "content": "yes"} for n in (0, 2, 3, 4)],
    [{"call_id": f"supervisor1.{n}", "content": "yes"} for n in (0, 0, 2, 3)],
    [{"call_id": "supervisor1.0"}, {"call_id": "supervisor1.2"}, {"call_id": "supervisor1.3"}],
    [],
    {},
    None,
    "[]",
    5,
]


class TestSeveralCalls:
    SCRIPT = (call("approve", n=1), call("echo"), call("choose", n=2), call("approve", n=3))

    async def test_all_are_shown_and_wait(self) -> None:
        async with asking(*self.SCRIPT) as rig:
            outcome = await rig.ask()
        assert [(item["name"], item["id"]) for item in json.loads(outcome.answer)] == [
            ("approve", "supervisor1.0"), ("choose", "supervisor1.2"), ("approve", "supervisor1.3"),
        ]  # fmt: skip
        assert outcome.kinds.count(EventKind.BREAKPOINT_TOOL_CALL) == 3
        assert outcome.kinds.count(EventKind.ACTION_COMPLETE) == 1
        assert outcome.task.pending == {}, "the results will wake the agent; its own action need not"

    @pytest.mark.parametrize("as_text", [False, True])
    @pytest.mark.parametrize("order", [(0, 2, 3), (3, 0, 2)])
    async def test_results_are_matched_by_call_id(self, as_text: bool, order: tuple[int, ...]) -> None:
        given = [{"call_id": f"supervisor1.{n}", "content": f"result {n}"} for n in order]
        async with asking(*self.SCRIPT) as rig:
            paused = await rig.ask()
            outcome = await resume(rig, paused, json.dumps(given) if as_text else given)
        assert outcome.answer == "SUCCESS: echo | result 0 | result 2 | result 3"
        assert outcome.kinds.count(EventKind.BREAKPOINT_ACTION_COMPLETE) == 3
        assert outcome.kinds.count(EventKind.NEW_MESSAGE) == 2

    @pytest.mark.parametrize("given", WRONG_FOR_SEVERAL, ids=[str(n) for n in range(len(WRONG_FOR_SEVERAL))])
    async def test_wrong_results_change_nothing(self, given: Any) -> None:
        async with asking(*self.SCRIPT) as rig:
            paused = await rig.ask()
            with pytest.raises(BadBreakpointResult):
                await resume(rig, paused, given)
            assert await rig.store.load(paused.key) == paused.task
            right = [{"call_id": f"supervisor1.{n}", "content": "ok"} for n in (0, 2, 3)]
            assert (await resume(rig, paused, right)).answer == "SUCCESS: echo | ok | ok | ok"


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        "[]",
        [{"call_id": "supervisor1.0", "content": "x"}, {"call_id": "supervisor1.0", "content": "y"}],
        [{"content": "x"}, {"content": "y"}],
    ],
)
async def test_wrong_results_for_one_call_change_nothing(given: Any) -> None:
    async with asking(call("approve")) as rig:
        paused = await rig.ask()
        with pytest.raises(BadBreakpointResult):
            await resume(rig, paused, given)
        assert await rig.store.load(paused.key) == paused.task
        assert (await resume(rig, paused, "ok")).answer == "ok"


@pytest.mark.parametrize(
    "given",
    ["\ud800", {"content": "\ud800"}, [{"call_id": "supervisor1.0", "content": "a\udfff"}], {"\ud800": 1}],
)
async def test_a_result_that_utf_8_cannot_hold_is_refused_or_read(given: Any) -> None:
    async with asking(call("approve")) as rig:
        paused = await rig.ask()
        try:
            await resume(rig, paused, given)
        except BadRequest:
            assert await rig.store.load(paused.key) == paused.task
            assert (await resume(rig, paused, "ok")).answer == "ok"


async def test_results_for_a_task_that_is_not_paused() -> None:
    async with asking(complete()) as rig:
        finished = await rig.ask(task_id="t")
        with pytest.raises(NotPaused):
            await resume(rig, finished, "yes")
        with pytest.raises(TaskNotFound):
            await rig.ask("", task_id="unknown", resume_from=RESUME, breakpoint_tool_call_result="yes")
        with pytest.raises(BadRequest):
            await rig.ask("", resume_from=RESUME, breakpoint_tool_call_result="yes")
        assert await rig.store.load(finished.key) == finished.task


async def test_an_agent_may_pause_again_and_again() -> None:
    def supervisor(view: View) -> Any:
        return (
            [call("approve", n=len(view.results))]
            if len(view.results) < 3
            else [complete(",".join(view.results))]
        )

    async with Rig(build_swarm({"supervisor": supervisor}, breakpoint_tools=frozenset({"approve"}))) as rig:
        outcome = await rig.ask(task_id="t")
        for n in range(3):
            assert json.loads(json.loads(outcome.answer)[0]["arguments"]) == {"n": n}
            outcome = await resume(rig, outcome, f"r{n}")
    assert outcome.answer == "r0,r1,r2"
    assert outcome.task.generation.number == 4


class TestAbandoning:
    """The user sends something new instead of the result."""

    @pytest.mark.parametrize("tool_format", FORMATS)
    @pytest.mark.parametrize("on_purpose", [{"resume_from": "user_response"}, {"drop_question": True}])
    async def test_the_agent_gets_the_message_and_an_error_for_its_call(
        self, tool_format: ToolFormat, on_purpose: dict[str, Any]
    ) -> None:
        async with asking(call("approve"), call("choose"), tool_format=tool_format) as rig:
            paused = await rig.ask(task_id="t")
            outcome = await rig.ask("never mind", task_id="t", **on_purpose)
            history = await rig.history("supervisor", outcome.key)
        view = View(history, "")
        assert [letter.body for letter in view.messages] == ["hello", "never mind"]
        assert [result.partition(":")[0] for result in view.results[:2]] == ["ERROR", "ERROR"]
        assert outcome.answer == " | ".join(view.results[:2])
        assert outcome.task.generation.breakpoint is None
        assert paused.task.generation.breakpoint is not None

    async def test_no_question_is_dropped_by_mistake(self) -> None:
        async with asking(call("approve")) as rig:
            paused = await rig.ask(task_id="t")
            with pytest.raises(QuestionOpen, match="'supervisor' called approve with") as refused:
                await rig.ask("never mind", task_id="t")
            assert refused.value.calls == paused.task.generation.breakpoint.calls
            assert await rig.store.load(paused.key) == paused.task

    async def test_the_body_must_not_be_empty(self) -> None:
        async with asking(call("approve")) as rig:
            paused = await rig.ask(task_id="t")
            with pytest.raises(BadRequest):
                await rig.ask("", task_id="t", resume_from="user_response")
            assert await rig.store.load(paused.key) == paused.task


class TestWithOthersAtWork:
    async def test_what_waits_is_stashed_and_goes_on_after_the_resume(self) -> None:
        def supervisor(view: View) -> Any:
            if len(view.messages) == 1:
                return [request("worker", "work"), call("approve")]
            if len(view.messages) == 2:
                return [wait()]
            return [complete(f"{view.results[1]} {view.mail.body}")]

        swarm = build_swarm(
            {"supervisor": supervisor, "worker": lambda view: [respond("supervisor", "worked")]},
            breakpoint_tools=frozenset({"approve"}),
        )
        async with Rig(swarm) as rig:
            paused = await rig.ask()
            assert [entry.mailbox for entry in await rig.inbox(paused.key)] == ["worker"]
            outcome = await resume(rig, paused, "yes")
        assert outcome.answer == "yes worked"

    async def test_a_worker_may_pause_the_task(self) -> None:
        swarm = build_swarm(
            {
                "supervisor": lambda view: (
                    [request("worker"), wait()]
                    if view.mail.sender_type == "user"
                    else [complete(view.mail.body)]
                ),
                "worker": lambda view: (
                    [call("approve")] if len(view.messages) == 1 else [respond("supervisor", view.results[0])]
                ),
            },
            breakpoint_tools=frozenset({"approve"}),
        )
        async with Rig(swarm) as rig:
            paused = await rig.ask()
            assert paused.subject == "::breakpoint_tool_call::"
            assert paused.response.sender.address == "worker"
            outcome = await resume(rig, paused, "granted")
        assert outcome.answer == "granted"

    async def test_a_breakpoint_beside_task_complete(self) -> None:
        """Only one of both can end the generation; neither may leave a call without a result."""
        for script in ([call("approve"), complete("x")], [complete("x"), call("approve")]):
            async with asking(*script) as rig:
                outcome = await rig.ask()
                view = View(await rig.history("supervisor", outcome.key), "")
            assert outcome.kinds.count(EventKind.TASK_COMPLETE) == 1
            if outcome.task.status is TaskStatus.COMPLETED:
                assert outcome.answer == "x"
                assert len(view.results) == 2
            else:
                assert outcome.task.generation.breakpoint is not None


async def test_a_breakpoint_tool_that_is_an_action_as_well_is_run_by_the_user() -> None:
    ran: list[str] = []

    async def approve(args: dict[str, Any]) -> str:
        ran.append("ran")
        return "by itself"

    def supervisor(view: View) -> Any:
        return [call("approve")] if len(view.messages) == 1 else [complete(view.results[0])]

    swarm = build_swarm(
        {"supervisor": supervisor}, actions={"approve": approve}, breakpoint_tools=frozenset({"approve"})
    )
    async with Rig(swarm) as rig:
        paused = await rig.ask()
        outcome = await resume(rig, paused, "by the user")
    assert outcome.answer == "by the user"
    assert ran == []


async def test_a_pause_survives_a_restart(tmp_path: Any) -> None:
    rig = asking(call("approve"))
    rig.path = tmp_path / "mail.db"
    async with rig:
        paused = await rig.ask()
        await rig.restart()
        assert (await resume(rig, paused, "yes")).answer == "yes"
