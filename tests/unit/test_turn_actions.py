"""Actions: functions outside MAIL that agents call as tools."""

import asyncio
import logging
import os
from dataclasses import replace
from os import fsync
from pathlib import Path
from typing import Any

import pytest

from mail.adapters.local import workers as local
from mail.adapters.sqlite import write_ahead_log
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.core.engine.actions import UNKNOWN_AFTER_TIMEOUT, UNKNOWN_OUTCOME
from mail.core.protocol.message import Tier
from mail.core.task.callbacks import Later, Polled
from mail.core.task.events import EventKind
from mail.core.task.swarm import ActionCore
from mail.core.turns.context import idempotency_key
from mail.errors import StoreUnavailable, ToolCallFault
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, turns, wait
from mail.testing.rig import Outcome, Rig, ask_once


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Some texts here have no form in UTF-8, and pytest-xdist can't pass on logs that hold such text."""
    caplog.set_level(logging.CRITICAL, logger="mail")


async def echo(args: dict[str, Any]) -> str:
    return f"echo {args.get('text', '')}"


async def broken(args: dict[str, Any]) -> str:
    raise LookupError("no such thing")


async def act(*script: Call, actions: dict[str, Any] | None = None, **settings: Any) -> tuple[Outcome, View]:
    """Let a supervisor play a script; returns the outcome and what it saw when it was woken after."""
    seen: list[View] = []

    def supervisor(view: View) -> Any:
        seen.append(view)
        return list(script) if len(view.messages) == 1 else [complete()]

    swarm = build_swarm({"supervisor": supervisor}, actions=actions or {"echo": echo, "broken": broken})
    async with Rig(swarm, **settings) as rig:
        outcome = await rig.ask()
    return outcome, seen[1]


async def test_a_result_wakes_the_agent_as_a_system_broadcast() -> None:
    outcome, view = await act(call("echo", text="hi"))
    woken = outcome.messages[1]
    assert woken.msg_type == "broadcast"
    assert woken.message.subject == "::action_complete::"
    assert "echo hi" in woken.message.body
    assert woken.message.sender.model_dump() == {"address_type": "system", "address": "example"}
    assert [address.address for address in woken.message.recipients] == ["supervisor"]
    assert view.results == ["SUCCESS: echo hi"]
    assert view.mail.body == woken.message.body


async def test_a_failure_wakes_the_agent_as_a_system_response() -> None:
    outcome, view = await act(call("broken"))
    woken = outcome.messages[1]
    assert woken.msg_type == "response"
    assert woken.message.subject == "::action_error::"
    assert "no such thing" in woken.message.body
    assert view.results[0].startswith("ERROR: ")
    assert "no such thing" in view.results[0]
    assert outcome.kinds[1:4] == ["tool_call", "action_call", "action_error"]


async def test_several_run_at_once_and_wake_the_agent_once_in_the_order_of_the_calls() -> None:
    ran: list[int] = []
    all_run = asyncio.Barrier(3)

    async def count(args: dict[str, Any]) -> str:
        await all_run.wait()
        for _ in range(3 - args["n"]):
            await asyncio.sleep(0)
        ran.append(args["n"])
        return f"number {args['n']}"

    outcome, view = await act(
        call("count", n=0), call("count", n=1), call("broken"), call("count", n=2),
        actions={"count": count, "broken": broken},
    )  # fmt: skip
    assert ran == [2, 1, 0]
    assert [result.partition(":")[0] for result in view.results] == ["SUCCESS", "SUCCESS", "ERROR", "SUCCESS"]
    assert [result[-1] for result in view.results if "number" in result] == ["0", "1", "2"]
    assert outcome.kinds.count(EventKind.ACTION_CALL) == 4
    assert outcome.kinds.count(EventKind.ACTION_COMPLETE) == 3
    assert outcome.kinds.count(EventKind.ACTION_ERROR) == 1
    (woken,) = outcome.messages[1:-1]
    assert woken.message.subject == "::action_complete::"
    lines = [line.partition(":")[2] for line in woken.message.body.splitlines()]
    assert lines == [" number 0", " number 1", " ERROR: no such thing", " number 2"]


class TestSequential:
    """Sequential actions run alone, in the order of the calls."""

    async def trace(self, names: str, *, sequential: str = "", agent: bool = False) -> str:
        """Run actions with these names in one turn; return where each began (upper case) and ended (lower case)."""
        traced: list[str] = []

        def action(name: str) -> ActionCore:
            async def function(args: dict[str, Any]) -> str:
                traced.append(name.upper())
                await asyncio.sleep(0)
                traced.append(name)
                return name

            return ActionCore(name, function, sequential=name in sequential)

        def supervisor(view: View) -> Any:
            return [*map(call, names)] if len(view.messages) == 1 else [complete(str(view.results))]

        swarm = build_swarm({"supervisor": supervisor}, actions={name: action(name) for name in names})
        if agent:
            swarm = replace(
                swarm,
                agents={name: replace(core, sequential=True) for name, core in swarm.agents.items()},
            )
        outcome = await ask_once(swarm)
        assert outcome.answer == str([f"SUCCESS: {name}" for name in names])
        return "".join(traced)

    async def test_without_it_all_begin_before_one_ends(self) -> None:
        assert await self.trace("abc") == "ABCabc"

    async def test_an_action_waits_for_those_before_it_and_those_after_it_wait_for_it(self) -> None:
        assert await self.trace("abcde", sequential="c") == "ABabCcDEde"

    async def test_all_actions_of_an_agent(self) -> None:
        assert await self.trace("abc", agent=True) == "AaBbCc"


async def test_a_store_that_fails_while_actions_run_costs_none_of_their_results() -> None:
    """The receipt of the first can't be stored; the second is not cancelled, and both receipts are stored with it."""
    first_ended = asyncio.Event()

    async def quick(args: dict[str, Any]) -> str:
        first_ended.set()
        return "quick"

    async def slow(args: dict[str, Any]) -> str:
        await refused.wait()
        return "slow"

    refused = asyncio.Event()
    swarm = build_swarm(
        {"supervisor": turns([call("quick"), call("slow")], [complete("done")])},
        actions={"quick": quick, "slow": slow},
    )
    async with Rig(swarm) as rig:
        save = rig.store.save_checkpoint

        async def fail_once(turn: Any, checkpoint: Any, **options: Any) -> None:
            if first_ended.is_set() and not refused.is_set():
                refused.set()
                raise StoreUnavailable
            await save(turn, checkpoint, **options)

        rig.store.save_checkpoint = fail_once  # type: ignore[method-assign]
        outcome = await rig.ask()
        results = View(await rig.history("supervisor", outcome.key), "").results
    assert refused.is_set()
    assert results[:2] == ["SUCCESS: quick", "SUCCESS: slow"]


async def test_no_action_outlives_a_turn_that_takes_too_long() -> None:
    ended: list[str] = []

    async def hang(args: dict[str, Any]) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(args["name"])
        return ""

    swarm = build_swarm(
        {"supervisor": lambda view: [call("hang", name="a"), call("hang", name="b"), call("echo")]},
        actions={"hang": hang, "echo": echo},
    )
    async with Rig(swarm, turn_seconds=0.05) as rig:
        outcome = await rig.ask()
    assert "longer than 0.05 seconds" in outcome.answer
    assert sorted(ended) == ["a", "b"]


async def test_all_failing_is_one_action_error() -> None:
    outcome, _ = await act(call("broken"), call("broken"))
    (woken,) = outcome.messages[1:-1]
    assert woken.message.subject == "::action_error::"


async def test_what_an_action_does_to_its_arguments_is_its_own_business() -> None:
    async def take(args: dict[str, Any]) -> str:
        args["list"].append("changed")
        args["more"] = "changed"
        return "taken"

    outcome, view = await act(call("take", list=[1]), actions={"take": take})
    assert outcome.of(EventKind.TOOL_CALL)[0].extra.as_json()["tool_args"] == {"list": [1]}
    assert "changed" not in str(outcome.of(EventKind.ACTION_CALL)[0].text)
    assert "changed" not in str(view.history[:2])


@pytest.mark.parametrize("result", [None, 5, {"a": 1}, ["x"], b"bytes", True])
async def test_a_result_that_is_no_text_is_an_error(result: Any) -> None:
    async def wrong(args: dict[str, Any]) -> Any:
        return result

    outcome, view = await act(call("wrong"), actions={"wrong": wrong})
    assert view.mail.subject == "::action_error::"
    assert type(result).__name__ in view.mail.body
    assert outcome.kinds.count(EventKind.ACTION_ERROR) == 1


@pytest.mark.parametrize(
    "text", ["", "x" * 100_000, "</body>&\x00\x1b", "🦊"], ids=["empty", "long", "xml", "fox"]
)
async def test_any_text_is_a_result(text: str) -> None:
    async def give(args: dict[str, Any]) -> str:
        return text

    _, view = await act(call("give"), actions={"give": give})
    assert view.results == [f"SUCCESS: {text}"]


class Odd(Exception):
    def __str__(self) -> str:
        return ""


@pytest.mark.parametrize(
    "error",
    [ValueError("plain"), Odd(), TimeoutError("slow"), KeyError("x"), RecursionError(), StopAsyncIteration()],
)
async def test_whatever_an_action_raises_is_told(error: Exception) -> None:
    async def fail(args: dict[str, Any]) -> str:
        raise error

    outcome, view = await act(call("fail"), actions={"fail": fail})
    assert view.mail.subject == "::action_error::"
    assert (str(error) or type(error).__name__) in view.mail.body
    assert view.results[0] != "ERROR: "
    assert outcome.answer == "done"


def hanging(name: str, **settings: Any) -> ActionCore:
    async def hang(args: dict[str, Any]) -> str:
        await asyncio.Event().wait()
        return "never"

    return ActionCore(name, hang, timeout=0.01, **settings)


async def test_an_action_times_out() -> None:
    """The agent reads that the outcome is unknown, unless the action may be repeated."""
    actions = {"pay": hanging("pay"), "look": hanging("look", read_only=True)}
    _, view = await act(call("pay"), call("look"), actions=actions)
    assert view.results == [
        f"ERROR: pay timed out after 0.01 s; {UNKNOWN_AFTER_TIMEOUT}",
        "ERROR: look timed out after 0.01 s",
    ]


async def test_an_action_that_may_be_repeated_is_retried() -> None:
    """All attempts have one receipt and one key; arguments that are wrong stay wrong."""
    keys: dict[str, list[str]] = {"heals": [], "fails": [], "refuses": []}

    def failing(name: str, error: Exception) -> ActionCore:
        async def fail(args: dict[str, Any]) -> str:
            keys[name].append(idempotency_key())
            if name == "heals" and len(keys[name]) == 2:
                return "healed"
            raise error

        return ActionCore(name, fail, idempotent=True, retries=1)

    actions = {name: failing(name, OSError("busy")) for name in ("heals", "fails")}
    actions["refuses"] = failing("refuses", ToolCallFault("no such place"))
    outcome, view = await act(*map(call, actions), actions=actions)
    assert view.results == [
        "SUCCESS: healed",
        "ERROR: busy (on the last of 2 attempts)",
        "ERROR: no such place",
    ]
    assert [len(each) for each in keys.values()] == [2, 2, 1]
    assert len({key for each in keys.values() for key in each}) == 3
    kinds = (EventKind.ACTION_COMPLETE, EventKind.ACTION_ERROR)
    facts = [event.extra.as_json() for event in outcome.events if event.kind in kinds]
    assert [each.get("attempts") for each in facts] == [2, 2, None]
    assert [each["seconds"] >= 0.5 for each in facts] == [True, True, False]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
async def test_a_result_that_utf_8_cannot_hold_harms_nobody(text: str) -> None:
    ran: list[int] = []

    async def odd(args: dict[str, Any]) -> str:
        ran.append(1)
        return text

    outcome = await within_a_swarm({"odd": odd}, call("odd"))
    assert outcome.answer.startswith("the worker said: ") or "worker" in outcome.answer
    assert ran == [1]


async def test_an_error_that_utf_8_cannot_hold_harms_nobody() -> None:
    async def odd(args: dict[str, Any]) -> str:
        raise ValueError("\ud800")

    await within_a_swarm({"odd": odd}, call("odd"))


async def within_a_swarm(actions: dict[str, Any], script: Call) -> Outcome:
    """A worker runs the script; the supervisor finishes with whatever it hears of it."""
    swarm = build_swarm(
        {
            "supervisor": lambda view: (
                [request("worker"), wait()]
                if view.mail.sender_type == "user"
                else [complete(f"the worker said: {view.mail.body}")]
            ),
            "worker": lambda view: (
                [script] if len(view.messages) == 1 else [respond("supervisor", view.mail.body)]
            ),
        },
        actions=actions,
    )
    return await ask_once(swarm)


async def test_an_action_beside_task_complete_runs_and_wakes_nobody() -> None:
    ran: list[str] = []

    async def note(args: dict[str, Any]) -> str:
        ran.append("ran")
        return "noted"

    swarm = build_swarm({"supervisor": turns([call("note"), complete()])}, actions={"note": note})
    async with Rig(swarm) as rig:
        outcome = await rig.ask()
        results = View(await rig.history("supervisor", outcome.key), "").results
        assert await rig.inbox(outcome.key) == []
    assert ran == ["ran"]
    assert results == ["SUCCESS: noted", "SUCCESS: task completed"]
    assert outcome.messages[1:-1] == []


async def test_actions_that_run_at_once_have_a_receipt_each() -> None:
    """All are stored as started before one starts, and each as done while others run."""
    known: list[str] = []

    async def look(args: dict[str, Any]) -> str:
        if args["last"]:
            while not known or known[-1].count('"done"') < 1:
                await asyncio.sleep(0)
                known.append(read())
        known.append(read())
        return "looked"

    def read() -> str:
        return str(rig.database.connection.execute("SELECT checkpoint FROM checkpoints").fetchone()[0])

    swarm = build_swarm(
        {"supervisor": turns([call("look", last=True), call("look", last=False)], [complete()])},
        actions={"look": look},
    )
    async with Rig(swarm) as rig:
        await rig.ask()
    assert known[0].count('"started"') == 2
    assert (known[-1].count('"started"'), known[-1].count('"done"')) == (1, 1)


class TestRedelivery:
    """A worker dies in the middle of an action; the next runner of the turn finds its checkpoint."""

    async def die_in(self, action: ActionCore, runs: list[str], calls_of_agent: list[int]) -> Outcome:
        started = asyncio.Event()

        def supervisor(view: View) -> Any:
            calls_of_agent.append(len(view.messages))
            return (
                [call("first"), call(action.name)] if len(view.messages) == 1 else [complete(view.mail.body)]
            )

        async def first(args: dict[str, Any]) -> str:
            runs.append("first")
            return "first result"

        async def slow(args: dict[str, Any]) -> str | Later | Polled:
            result = await action.function(args)
            if not started.is_set():
                started.set()
                await asyncio.sleep(60)
            return result

        dying = ActionCore(action.name, slow, idempotent=action.idempotent)
        swarm = build_swarm({"supervisor": supervisor}, actions={"first": first, action.name: dying})
        async with Rig(swarm) as rig:
            submitted = await rig.submit()
            await started.wait()
            await rig.workers.stop(grace=0)
            rig.workers = type(rig.workers)(rig.runtime, rig.queue)
            await rig.workers.start()
            return await rig.outcome(submitted)

    async def test_an_action_with_unknown_outcome_is_not_repeated_and_the_agent_is_told(self) -> None:
        runs: list[str] = []
        calls: list[int] = []

        async def pay(args: dict[str, Any]) -> str:
            runs.append("pay")
            return "paid"

        outcome = await self.die_in(ActionCore("pay", pay), runs, calls)
        assert runs == ["first", "pay"]
        assert calls == [1, 2]
        assert "first result" in outcome.answer
        assert UNKNOWN_OUTCOME in outcome.answer
        assert outcome.kinds.count(EventKind.ACTION_ERROR) == 1
        assert outcome.kinds.count(EventKind.ACTION_COMPLETE) == 1

    async def test_an_idempotent_action_is_repeated(self) -> None:
        runs: list[str] = []
        calls: list[int] = []

        keys: list[str] = []

        async def look(args: dict[str, Any]) -> str:
            runs.append("look")
            keys.append(idempotency_key())
            return "looked"

        outcome = await self.die_in(ActionCore("look", look, idempotent=True), runs, calls)
        assert runs == ["first", "look", "look"]
        assert keys[0] == keys[1] != ""
        assert calls == [1, 2]
        assert "looked" in outcome.answer
        assert outcome.kinds.count(EventKind.ACTION_ERROR) == 0
        assert outcome.kinds.count(EventKind.ACTION_CALL) == 2

    async def test_urgent_mail_that_comes_meanwhile_is_read_with_its_own_output(self) -> None:
        """The unfinished turn keeps its checkpoint for later; none of its actions runs twice."""
        runs: list[str] = []
        started = asyncio.Event()

        async def pay(args: dict[str, Any]) -> str:
            runs.append("pay")
            if not started.is_set():
                started.set()
                await asyncio.sleep(60)
            return "paid"

        def supervisor(view: View) -> Any:
            if view.mail.body == "urgent":
                return [call("help")]
            if view.mail.subject == "::help::":
                return [wait()]
            if view.mail.sender_type == "user":
                return [call("pay")]
            return [complete(view.mail.body)]

        swarm = build_swarm({"supervisor": supervisor}, actions={"pay": pay})
        async with Rig(swarm) as rig:
            submitted = await rig.submit("first", task_id="t")
            await started.wait()
            await rig.workers.stop(grace=0)
            await rig.store.commit(urgent_change(rig, await rig.store.load(submitted.key)))
            rig.workers = type(rig.workers)(rig.runtime, rig.queue)
            await rig.workers.start()
            outcome = await rig.outcome(submitted)
        assert runs == ["pay"]
        assert UNKNOWN_OUTCOME in outcome.answer


def urgent_change(rig: Rig, task: Any) -> Any:
    """An interrupt by the system for the supervisor, put into the store behind the workers' back."""
    from mail.core.task.draft import Draft
    from mail.errors import Subject

    draft = Draft(task, rig.swarm, rig.clock)
    draft.tell("supervisor", Subject.MANUAL_STEP, "urgent")
    change = draft.seal()
    assert change.deliveries[0].tier is Tier.SYSTEM
    return change


class TestPowerFailures:
    """On SQLite, an action that isn't idempotent begins after its receipt is on the disk; `fsync` is only watched."""

    @pytest.fixture
    def done(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What was written to the disk, by the name of the file, and the actions that ran."""
        done: list[str] = []

        def watched(file: int) -> None:
            fsync(file)
            done.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))

        monkeypatch.setattr(write_ahead_log.os, "fsync", watched)
        return done

    async def ask(self, path: Path, done: list[str], **settings: Any) -> Outcome:
        async def act(args: dict[str, Any]) -> str:
            done.append("act")
            return ""

        agent = turns([call("act"), call("act")], [complete("done")])
        swarm = build_swarm({"supervisor": agent}, actions={"act": ActionCore("act", act, **settings)})
        async with Rig(swarm, path=path / "mail.db") as rig:
            return await rig.ask()

    async def test_its_receipt_is_on_the_disk_before_it_begins(self, tmp_path: Path, done: list[str]) -> None:
        await self.ask(tmp_path, done)
        assert done == ["mail.db-wal", tmp_path.name, "act", "act"]

    async def test_each_of_those_that_run_one_after_the_other(self, tmp_path: Path, done: list[str]) -> None:
        await self.ask(tmp_path, done, sequential=True)
        assert done == ["mail.db-wal", tmp_path.name, "act", "mail.db-wal", "act"]

    async def test_one_that_may_be_repeated_does_not_wait(self, tmp_path: Path, done: list[str]) -> None:
        await self.ask(tmp_path, done, idempotent=True)
        assert done == ["act", "act"]

    async def test_without_a_disk_it_does_not_begin(
        self, tmp_path: Path, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(local, "RETRY_SECONDS", 0.001)
        watched, is_full = os.fsync, True

        def refuse(file: int) -> None:
            nonlocal is_full
            if is_full:
                is_full = False
                raise OSError(28, "No space left on device")
            watched(file)

        monkeypatch.setattr(write_ahead_log.os, "fsync", refuse)
        outcome = await self.ask(tmp_path, done)
        assert done == []
        assert UNKNOWN_OUTCOME in next(
            event.text for event in outcome.events if event.kind is EventKind.ACTION_ERROR
        )

    @pytest.mark.parametrize(("synchronous", "synced"), [("normal", 2), ("full", 0)])
    async def test_those_who_ask_together_wait_together(
        self, tmp_path: Path, done: list[str], synchronous: Any, synced: int
    ) -> None:
        with SQLiteDatabase(tmp_path / "mail.db", synchronous=synchronous) as database:
            log = write_ahead_log.WriteAheadLog(database)
            await asyncio.gather(*(log.sync() for _ in range(20)))
        assert [name for name in done if name != tmp_path.name] == ["mail.db-wal"] * synced
