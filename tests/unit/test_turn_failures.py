"""Agents that fail: they raise, hang, or return what nobody can use. An error is reported, and nothing hangs."""

import asyncio
import logging
import sqlite3
from typing import Any

import pytest

from mail.adapters.local import workers as local
from mail.core.engine.attempts import MAX_ATTEMPTS
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.runtime import Runtime
from mail.core.protocol.tool_schemas import AgentToolCall
from mail.core.task.events import EventKind
from mail.core.task.swarm import AgentCore, History, SwarmCore, ToolChoice
from mail.core.task.task import TaskStatus
from mail.core.task.usage import Usage, report_usage
from mail.errors import StoreUnavailable
from mail.testing.agents import View, build_swarm, call, complete, output, request, respond, wait
from mail.testing.faults import FaultyPort, Points, at_name
from mail.testing.rig import Outcome, Rig, ask_once


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Some texts here have no form in UTF-8, and pytest-xdist can't pass on logs that hold such text."""
    caplog.set_level(logging.CRITICAL, logger="mail")


def told(view: View) -> Any:
    """A supervisor that asks the worker and finishes with whatever comes back."""
    if view.mail.sender_type == "user":
        return [request("worker"), wait()]
    return [complete(f"{view.mail.sender_type} {view.mail.subject} {view.mail.body}")]


def raising(error: BaseException) -> Any:
    def policy(view: View) -> Any:
        raise error

    return policy


def agent(function: Any, **settings: Any) -> AgentCore:
    return AgentCore(function, comm_targets=["supervisor"], **settings)


class TestRaising:
    async def test_the_sender_is_told(self) -> None:
        outcome = await ask_once(
            build_swarm({"supervisor": told, "worker": raising(RuntimeError("no model"))})
        )
        assert outcome.answer.startswith("system ::agent_error:: ")
        assert "worker" in outcome.answer
        assert "RuntimeError" in outcome.answer
        assert "no model" not in outcome.answer  # the text of an error may hold secrets; it is in the log
        assert outcome.kinds.count(EventKind.AGENT_ERROR) == 1

    async def test_the_text_of_the_error_is_for_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.ERROR, logger="mail")
        secret = RuntimeError("401 for key sk-123")
        outcome = await ask_once(build_swarm({"supervisor": told, "worker": raising(secret)}))
        assert "sk-123" in caplog.text
        assert "sk-123" not in repr(outcome)

    async def test_the_sender_and_not_the_entrypoint_is_told(self) -> None:
        def middle(view: View) -> Any:
            return (
                [request("worker"), wait()]
                if len(view.messages) == 1
                else [respond("supervisor", view.mail.subject)]
            )

        agents = {
            "supervisor": lambda view: (
                [request("middle"), wait()] if view.mail.sender_type == "user" else [complete(view.mail.body)]
            ),
            "middle": middle,
            "worker": raising(RuntimeError("no model")),
        }
        assert (await ask_once(build_swarm(agents))).answer == "::agent_error::"

    async def test_an_entrypoint_that_fails_on_the_users_message_ends_the_task(self) -> None:
        outcome = await ask_once(build_swarm({"supervisor": raising(RuntimeError("no model"))}))
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.subject == "::task_error::"
        assert "RuntimeError" in outcome.answer
        assert "no model" not in outcome.answer  # the text of an error may hold secrets; it is in the log

    async def test_its_message_is_in_its_history_so_that_it_can_be_asked_again(self) -> None:
        calls: list[int] = []

        def worker(view: View) -> Any:
            calls.append(len(view.messages))
            if len(calls) == 1:
                raise RuntimeError("busy")
            return [respond("supervisor", f"{len(view.messages)} letters")]

        def supervisor(view: View) -> Any:
            if view.mail.subject == "Response":
                return [complete(view.mail.body)]
            return [request("worker", "again"), wait()]

        assert (
            await ask_once(build_swarm({"supervisor": supervisor, "worker": worker}))
        ).answer == "2 letters"

    @pytest.mark.parametrize(
        "error",
        [
            ValueError(""),
            TimeoutError("slow"),
            KeyError("x"),
            RecursionError("deep"),
            ValueError("\ud800"),
            OSError(5, "io"),
        ],
        ids=repr,
    )
    async def test_whatever_it_raises(self, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        # the log quotes the error; pytest-xdist can't carry a captured log with half a surrogate pair in it
        monkeypatch.setattr(logging.getLogger("mail.core.engine.turns"), "disabled", True)
        outcome = await ask_once(build_swarm({"supervisor": told, "worker": raising(error)}))
        assert outcome.answer.startswith("system ::agent_error:: ")


class TestHanging:
    async def test_a_turn_that_takes_too_long_is_a_failure(self) -> None:
        async def hang(view: View) -> Any:
            await asyncio.sleep(60)
            return [respond("supervisor")]

        async with Rig(build_swarm({"supervisor": told, "worker": hang}), turn_seconds=0.05) as rig:
            outcome = await rig.ask()
        assert outcome.answer.startswith("system ::agent_error:: ")
        assert "worker" in outcome.answer


BROKEN_CALL = output([respond("supervisor")])[0]


class TestUnusableOutput:
    async def test_the_asker_hears_what_an_agent_must_return(self, caplog: pytest.LogCaptureFixture) -> None:
        async def words(_history: History, _choice: ToolChoice) -> Any:
            return "just words"

        caplog.set_level(logging.WARNING, logger="mail")
        agents = {"supervisor": told, "worker": agent(words)}
        outcome = await ask_once(build_swarm(agents))
        for text in (outcome.answer, caplog.text):
            assert "returned str; an agent function is async" in text

    @pytest.mark.parametrize(
        "args",
        [
            {"target": "supervisor", "subject": "s", "body": "\ud800"},
            {"target": "\udfff", "subject": "s", "body": "b"},
            {"target": "supervisor", "subject": "s", "body": "b", "extra": "\ud800"},
            {"target": "supervisor", "subject": "s", "body": "b", "extra": object()},
            {"target": "supervisor", "subject": "s", "body": "b", "\ud800": 1},
        ],
        ids=["body", "target", "extra", "object", "key"],
    )
    async def test_what_cannot_be_stored_is_told_and_not_tried_for_ever(self, args: dict[str, Any]) -> None:
        """Models do write half a surrogate pair, and `json.loads` lets it through."""
        calls: list[int] = []

        async def function(history: History, choice: ToolChoice) -> tuple[None, list[AgentToolCall]]:
            calls.append(len(history))
            if len(calls) > 3:
                return None, output([respond("supervisor", "recovered")])
            return None, [BROKEN_CALL.model_copy(update={"tool_name": "send_response", "tool_args": args})]

        outcome = await ask_once(build_swarm({"supervisor": told, "worker": agent(function)}))
        assert outcome.task.status is TaskStatus.COMPLETED
        assert len(calls) <= 4

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
    async def test_numbers_that_json_lacks(self, value: float) -> None:
        async def function(history: History, choice: ToolChoice) -> tuple[None, list[AgentToolCall]]:
            args = {"target": "supervisor", "subject": "s", "body": "b", "extra": value}
            return None, [BROKEN_CALL.model_copy(update={"tool_args": args})]

        outcome = await ask_once(build_swarm({"supervisor": told, "worker": agent(function)}))
        assert outcome.task.status is TaskStatus.COMPLETED

    async def test_an_action_with_arguments_that_cannot_be_stored_does_not_run(self) -> None:
        """Its receipt could not be stored either, so it could run twice."""
        ran: list[int] = []

        async def act(args: dict[str, Any]) -> str:
            ran.append(1)
            return "acted"

        def supervisor(view: View) -> Any:
            return told(view)

        async def worker(history: History, choice: ToolChoice) -> tuple[None, list[AgentToolCall]]:
            return None, output([call("act")])[:1] and [
                output([call("act")])[0].model_copy(update={"tool_args": {"x": "\ud800"}})
            ]

        swarm = build_swarm(
            {"supervisor": supervisor, "worker": agent(worker, actions=["act"])}, actions={"act": act}
        )
        outcome = await ask_once(swarm)
        assert ran == []
        assert outcome.answer.startswith("system ::agent_error:: ")


class TestStoreTrouble:
    """The database refuses a write for a while."""

    async def full_for_a_while(self, rig: Rig, task_id: str) -> Outcome:
        """Let the file be full when the first turn wants to commit, and grow again later."""
        limit = rig.database.connection.execute("PRAGMA max_page_count").fetchone()[0]
        submitted = await rig.submit("x" * 10, task_id=task_id)
        pages = rig.database.connection.execute("PRAGMA page_count").fetchone()[0]
        rig.database.connection.execute(f"PRAGMA max_page_count = {pages}")
        await asyncio.sleep(0.1)
        task = await rig.task(submitted.key)
        assert task.is_running
        rig.database.connection.execute(f"PRAGMA max_page_count = {limit}")
        return await rig.outcome(submitted)

    async def test_the_commit_is_repeated_until_it_can_be_stored_and_the_agent_is_called_once(
        self, tmp_path: Any
    ) -> None:
        calls: list[int] = []

        def supervisor(view: View) -> Any:
            calls.append(len(view.messages))
            return [complete("y" * 200_000)]

        async with Rig(build_swarm({"supervisor": supervisor}), path=tmp_path / "mail.db") as rig:
            outcome = await self.full_for_a_while(rig, "t")
            events = await rig.store.read_events(outcome.key)
        assert outcome.answer == "y" * 200_000
        assert calls == [1]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))

    async def refused(self, point: str, called: list[str], **actions: Any) -> Outcome:
        """Let the store fail at a point while a turn has half a second; then run the turn again."""

        def supervisor(view: View) -> Any:
            called.append("agent")
            return [call("act"), wait()] if actions and not view.results else [complete("paid")]

        async with Rig(build_swarm({"supervisor": supervisor}, actions=actions), concurrency=0) as rig:
            submitted = await rig.submit()
            faulty = FaultyPort(rig.store, "store", Points(at_name(point, StoreUnavailable())))
            cut_off = Runtime(rig.swarm, faulty, rig.queue, rig.clock)
            with pytest.raises(StoreUnavailable):
                await cut_off.run_turn(submitted.key, "supervisor", seconds=0.5)
            for _ in range(2):
                await rig.runtime.run_turn(submitted.key, "supervisor")
            return await rig.outcome(submitted)

    @pytest.mark.parametrize("point", ["before store.commit", "after store.commit"])
    async def test_when_its_time_ends_the_next_attempt_does_not_call_the_agent(self, point: str) -> None:
        called: list[str] = []
        assert (await self.refused(point, called)).answer == "paid"
        assert called == ["agent"]

    async def test_an_action_whose_end_is_stored_late_runs_once(self) -> None:
        called: list[str] = []

        async def act(args: dict[str, Any]) -> str:
            called.append("action")
            return "acted"

        assert (await self.refused("before store.commit", called, act=act)).answer == "paid"
        assert called == ["agent", "action", "agent"]

    async def test_a_refused_checkpoint_is_repeated_before_the_action_begins(self) -> None:
        called: list[str] = []
        refusals = iter(["refused", "refused"])

        async def act(args: dict[str, Any]) -> str:
            called.append("action")
            return "acted"

        def supervisor(view: View) -> Any:
            called.append("agent")
            return [complete("paid")] if view.results else [call("act")]

        def plan(number: int, name: str) -> Any:
            return (
                StoreUnavailable() if name == "before store.save_checkpoint" and next(refusals, "") else 0.0
            )

        async with Rig(build_swarm({"supervisor": supervisor}, actions={"act": act}), concurrency=0) as rig:
            submitted = await rig.submit()
            unsteady = Runtime(rig.swarm, FaultyPort(rig.store, "store", Points(plan)), rig.queue, rig.clock)
            for _ in range(2):
                await unsteady.run_turn(submitted.key, "supervisor")
            assert (await rig.outcome(submitted)).answer == "paid"
        assert called == ["agent", "action", "agent"]
        assert not list(refusals)

    @pytest.mark.parametrize("asked", [[], [call("remind_me")]], ids=["plain", "reads its reminders"])
    async def test_a_refused_commit_is_repeated(self, asked: list[Any]) -> None:
        refusals = iter(["refused", "refused"])

        def plan(number: int, name: str) -> Any:
            return StoreUnavailable() if name == "before store.commit" and next(refusals, "") else 0.0

        swarm = build_swarm({"supervisor": lambda view: [*asked, complete("paid")]})
        async with Rig(swarm, concurrency=0) as rig:
            submitted = await rig.submit()
            unsteady = Runtime(rig.swarm, FaultyPort(rig.store, "store", Points(plan)), rig.queue, rig.clock)
            await unsteady.run_turn(submitted.key, "supervisor")
            assert (await rig.outcome(submitted)).answer == "paid"
        assert not list(refusals)

    async def test_a_checkpoint_that_is_not_stored_in_time_does_not_fail_the_agent(self) -> None:
        """The store doesn't answer until the turn's time ends: the turn is repeated, and its agent reads no error."""
        slow = iter([9.0])

        def supervisor(view: View) -> Any:
            return [complete("done")] if view.results else [call("act")]

        async def act(_: Any) -> str:
            return "acted"

        def plan(number: int, name: str) -> float:
            return next(slow, 0.0) if name == "before store.save_checkpoint" else 0.0

        swarm = build_swarm({"supervisor": supervisor}, actions={"act": act})
        async with Rig(swarm, concurrency=0) as rig:
            submitted = await rig.submit()
            store = FaultyPort(rig.store, "store", Points(plan))
            hasty = Runtime(rig.swarm, store, rig.queue, rig.clock, turn_seconds=0.05)
            with pytest.raises(StoreUnavailable, match="its time ended before its checkpoint was stored"):
                await hasty.run_turn(submitted.key, "supervisor")
            for _ in range(2):
                await rig.runtime.run_turn(submitted.key, "supervisor")
            outcome = await rig.outcome(submitted)
        assert outcome.answer == "done"
        assert "took longer" not in str(outcome.events)

    async def test_another_process_that_holds_the_file_is_waited_for(self, tmp_path: Any) -> None:
        path = tmp_path / "mail.db"
        async with Rig(build_swarm({"supervisor": lambda view: [complete()]}), path=path) as rig:
            rig.database.connection.execute("PRAGMA busy_timeout = 5000")
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM tasks").fetchone()
            outcome = await rig.ask()
            other.execute("COMMIT")
            other.close()
        assert outcome.answer == "done"


class Count:
    """A number of a foreign library, which JSON doesn't know."""

    def __add__(self, other: object) -> "Count":
        return self

    __radd__ = __add__


class TestTurnsThatCannotBeStored:
    """An agent reports a number of tokens that is not JSON: neither its output nor its failure can be stored
    with it.
    """

    @pytest.fixture
    def calls(self) -> list[int]:
        return []

    @pytest.fixture
    def swarm(self, calls: list[int]) -> SwarmCore:
        def supervisor(view: View) -> Any:
            calls.append(1)
            report_usage(Usage(calls=1, input_tokens=Count()))  # type: ignore[arg-type]
            return [complete()]

        return build_swarm({"supervisor": supervisor})

    async def test_after_five_attempts_the_task_ends_with_the_cause(
        self,
        swarm: SwarmCore,
        calls: list[int],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.ERROR, logger="mail.core.engine.attempts")
        monkeypatch.setattr(local, "RETRY_SECONDS", 0.001)
        outcome = await ask_once(swarm)
        [dead] = [event for event in outcome.events if event.kind is EventKind.DEAD_LETTER]
        assert len(calls) == dead.extra.as_json()["attempts"] == MAX_ATTEMPTS
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.subject == "::task_error::"
        assert (
            "5 attempts at a turn of 'supervisor' could not be stored: PydanticSerializationError"
            in outcome.answer
        )
        assert not outcome.task.usage
        assert "is abandoned" in caplog.text

    async def test_until_then_it_can_be_cancelled(self, swarm: SwarmCore) -> None:
        async with Rig(swarm, concurrency=0) as rig:
            submitted = await rig.submit()
            for _ in range(MAX_ATTEMPTS - 1):
                with pytest.raises(ValueError, match="Count"):
                    await rig.runtime.run_turn(submitted.key, "supervisor")
            task = await rig.runtime.cancel(rig.user, submitted.key.task_id)
            report = await rig.runtime.run_turn(submitted.key, "supervisor")
        assert task.status is TaskStatus.CANCELLED
        assert report.outcome is TurnReport.Outcome.IDLE

    async def test_a_store_that_refuses_writes_does_not_count(self) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete()]}), concurrency=0) as rig:
            submitted = await rig.submit()
            rig.database.connection.execute("PRAGMA query_only = 1")
            for _ in range(MAX_ATTEMPTS + 1):
                with pytest.raises(StoreUnavailable):
                    await rig.runtime.run_turn(submitted.key, "supervisor", seconds=0.1)
            rig.database.connection.execute("PRAGMA query_only = 0")
            await rig.runtime.run_turn(submitted.key, "supervisor")
            assert (await rig.outcome(submitted)).answer == "done"

    async def test_the_dead_letter_handler_of_aws_stores_nothing_of_it(self, swarm: SwarmCore) -> None:
        async with Rig(swarm, concurrency=0) as rig:
            submitted = await rig.submit()
            with pytest.raises(ValueError, match="Count"):
                await rig.runtime.run_turn(submitted.key, "supervisor")
            another = Runtime(swarm, rig.store, rig.queue, rig.clock)
            await another.dead_letter_turn(submitted.key, "supervisor", "it failed", upto=99, attempts=5)
            outcome = await rig.outcome(submitted)
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.answer == "agent 'supervisor' has failed: it failed"
