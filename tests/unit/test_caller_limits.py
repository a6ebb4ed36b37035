"""What callers may keep busy at once: mailboxes and tasks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from mail.core.decisions.caller_limits import CallerLimits
from mail.core.decisions.submit import Submission, admit
from mail.core.engine.caller_limits import LimitGuard
from mail.core.protocol.address import Principal
from mail.core.task.callbacks import LATER, Later
from mail.core.task.ports import CallerUsage
from mail.core.task.swarm import ActionCore
from mail.core.task.task import TaskKey, TaskStatus, Transition
from mail.errors import MailboxFull, RateLimited, StorageFull, TooManyTasks
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait
from mail.testing.changes import Mail, Maker
from mail.testing.rig import Rig


class FormContext:
    """A swarm whose agents wait until the gate is opened."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def work(self, view: View) -> list[Call]:
        await self.gate.wait()
        return [complete("done")]


@pytest.fixture
def desk() -> FormContext:
    return FormContext()


@pytest.fixture
async def rig(desk: FormContext) -> AsyncIterator[Rig]:
    async with Rig(
        build_swarm({"supervisor": desk.work, "worker": lambda _view: [respond("supervisor")]})
    ) as rig:
        yield rig


def waiting(rig: Rig, task_id: str) -> TaskKey:
    return TaskKey(str(rig.user), task_id)


class TestDepth:
    async def test_the_message_past_the_limit_is_refused_and_not_stored(self, rig: Rig) -> None:
        rig.runtime.caller_limits = CallerLimits(mailbox_depth=3)
        for n in range(3):
            await rig.submit(f"message {n}", task_id="t")
        before = await rig.store.load(waiting(rig, "t"))
        with pytest.raises(MailboxFull, match="3 messages or more wait for 'supervisor'") as refusal:
            await rig.submit("one more", task_id="t")
        assert refusal.value.retry_after >= 1
        assert await rig.store.load(waiting(rig, "t")) == before
        assert len(await rig.inbox(waiting(rig, "t"))) == 3

    async def test_those_at_the_same_moment_cannot_pass_it(self, rig: Rig) -> None:
        rig.runtime.caller_limits = CallerLimits(mailbox_depth=5)
        await rig.submit(task_id="t")
        tries = [rig.submit(f"message {n}", task_id="t") for n in range(20)]
        ends = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(end, MailboxFull) for end in ends) == 16
        assert len(await rig.inbox(waiting(rig, "t"))) == 5

    async def test_it_lets_in_again_what_has_room(self, rig: Rig, desk: FormContext) -> None:
        rig.runtime.caller_limits = CallerLimits(mailbox_depth=1)
        first = await rig.submit(task_id="t")
        with pytest.raises(MailboxFull):
            await rig.submit(task_id="t")
        desk.gate.set()
        await rig.outcome(first)
        assert (await rig.ask(task_id="t")).answer == "done"

    async def test_another_agent_has_a_mailbox_of_its_own(self, desk: FormContext) -> None:
        async with Rig(build_swarm({"supervisor": desk.work, "worker": desk.work})) as rig:
            rig.runtime.caller_limits = CallerLimits(mailbox_depth=1)
            await rig.submit(task_id="t")
            with pytest.raises(MailboxFull):
                await rig.submit("to all", task_id="t", msg_type="broadcast")
            assert len(await rig.inbox(waiting(rig, "t"))) == 1

    async def test_a_task_that_has_stopped_can_always_go_on(self, rig: Rig, desk: FormContext) -> None:
        """Nothing else would ever empty its mailboxes."""
        desk.gate.set()
        stopped = (await rig.ask(task_id="t")).task
        running = replace(stopped, status=TaskStatus.RUNNING)
        for task, is_refused in ((stopped, False), (running, True)):
            full = replace(task, pending={"supervisor": (0, 0, 0, 0, 7)})
            change = admit(full, rig.swarm, rig.user, Submission(body="go on", task_id="t"), rig.clock)
            with pytest.raises(MailboxFull) if is_refused else nullcontext():
                CallerLimits(mailbox_depth=7).check_depth(full, change)

    async def test_agents_among_themselves_are_not_bounded_by_it(self) -> None:
        def ask(view: View) -> list[Call]:
            if view.mail.sender == "worker":
                return [complete("answered")]
            return [request("worker", f"{n}") for n in range(3)] + [wait()]

        async with Rig(
            build_swarm({"supervisor": ask, "worker": lambda _view: [respond("supervisor")]})
        ) as rig:
            rig.runtime.caller_limits = CallerLimits(mailbox_depth=1)
            assert (await rig.ask()).answer == "answered"


class TestWaitingTasks:
    @pytest.fixture
    async def sleepy(self) -> AsyncIterator[Rig]:
        async def film(arguments: dict[str, object]) -> Later:
            return LATER

        def rule(view: View) -> list[Call]:
            return [call("film")] if view.mail.body == "film" else [complete("done")]

        action = ActionCore("film", film, finish_within=60.0)
        async with Rig(build_swarm({"director": rule}, actions={"film": action})) as rig:
            yield rig

    async def sleep(self, rig: Rig, task_id: str) -> None:
        await rig.submit("film", task_id=task_id)
        while not (await rig.task(waiting(rig, task_id))).is_asleep:  # noqa: ASYNC110 - of a store
            await asyncio.sleep(0.001)

    async def test_a_task_past_the_limit_is_refused_and_others_continue(self, sleepy: Rig) -> None:
        sleepy.runtime.caller_limits = CallerLimits(waiting_tasks=2)
        for task_id in ("1", "2"):
            await self.sleep(sleepy, task_id)
        for _ in range(2):
            with pytest.raises(TooManyTasks, match="2 of your tasks wait for results that come later, of 2"):
                await sleepy.submit("film", task_id="3")
        assert await sleepy.store.load(waiting(sleepy, "3")) is None
        assert (await sleepy.ask("stop", task_id="1")).answer == "done"
        await self.sleep(sleepy, "3")

    async def test_the_store_is_asked_when_there_may_be_no_room(self, sleepy: Rig) -> None:
        asked: list[str] = []
        usage_of = sleepy.store.usage_of

        async def count(instance: str) -> CallerUsage:
            asked.append(instance)
            return await usage_of(instance)

        sleepy.store.usage_of = count  # type: ignore[method-assign]
        sleepy.runtime.caller_limits = CallerLimits(waiting_tasks=3)
        for n in range(6):
            await sleepy.ask("stop", task_id=f"{n}")
        assert len(asked) == 2


class TestStoredBytes:
    @pytest.fixture(autouse=True)
    def ask_each_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mail.core.engine.caller_limits.COUNTED_EVERY", 1)

    async def test_nothing_is_added_to_what_is_full(self, rig: Rig, desk: FormContext) -> None:
        desk.gate.set()
        rig.runtime.caller_limits = CallerLimits(caller_bytes=5_000)
        await rig.ask("x" * 5_000, task_id="1")
        for task_id in ("1", "2"):
            before = await rig.store.load(waiting(rig, task_id))
            with pytest.raises(StorageFull, match=r"store \d+ bytes, of 5000 .* mail task delete ID"):
                await rig.submit(task_id=task_id)
            assert await rig.store.load(waiting(rig, task_id)) == before
        with pytest.raises(StorageFull):
            await rig.runtime.fork(rig.user, "1")
        bob = Principal(role="user", id="bob", swarm=rig.swarm.name)
        await rig.submit(task_id="1", caller=bob)

    async def test_deleting_makes_room(self, rig: Rig, desk: FormContext) -> None:
        desk.gate.set()
        rig.runtime.caller_limits = CallerLimits(caller_bytes=5_000)
        await rig.ask("x" * 5_000, task_id="1")
        with pytest.raises(StorageFull):
            await rig.submit(task_id="2")
        await rig.runtime.delete(str(rig.user), "1")
        assert (await rig.ask(task_id="2")).answer == "done"

    async def test_a_task_may_always_be_cancelled(self, rig: Rig) -> None:
        make = Maker()
        begun = make.begin(TaskKey(str(rig.user), "1"), Mail("alpha", body="x" * 5_000))
        await rig.store.commit(begun)
        limits, guard = CallerLimits(caller_bytes=5_000), LimitGuard(rig.store)
        with pytest.raises(StorageFull):
            async with guard.enforce(limits, begun.task, make.change(begun.task, Mail("@beta"))):
                pass
        ended = make.change(begun.task, Mail("@beta"), transition=Transition.CANCEL)
        async with guard.enforce(limits, begun.task, ended):
            await rig.store.commit(ended)

    async def test_the_first_message_and_then_few_ask_the_store(
        self, rig: Rig, desk: FormContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.core.engine.caller_limits.COUNTED_EVERY", 32)
        desk.gate.set()
        asked: list[str] = []
        count = rig.store.usage_of

        async def counted(instance: str) -> CallerUsage:
            asked.append(instance)
            return await count(instance)

        monkeypatch.setattr(rig.store, "usage_of", counted)
        rig.runtime.caller_limits = CallerLimits(caller_bytes=10**9)
        await rig.ask(task_id="t")
        assert asked == [str(rig.user)]
        for _ in range(32):
            await rig.ask(task_id="t")
        assert asked == [str(rig.user)] * 2


class TestRunningTasks:
    async def test_one_more_is_refused_until_one_has_ended(self, rig: Rig, desk: FormContext) -> None:
        rig.runtime.caller_limits = CallerLimits(running_tasks=2)
        first = await rig.submit(task_id="1")
        second = await rig.submit(task_id="2")
        with pytest.raises(TooManyTasks, match="2 of your tasks are running"):
            await rig.submit(task_id="3")
        assert await rig.store.load(waiting(rig, "3")) is None
        await rig.submit("more mail for a running one", task_id="1")
        desk.gate.set()
        await rig.outcome(first)
        await rig.outcome(second)
        assert (await rig.ask(task_id="3")).answer == "done"

    async def test_to_go_on_counts_as_well(self, rig: Rig, desk: FormContext) -> None:
        desk.gate.set()
        await rig.ask(task_id="old")
        desk.gate.clear()
        rig.runtime.caller_limits = CallerLimits(running_tasks=1)
        await rig.submit(task_id="new")
        with pytest.raises(TooManyTasks):
            await rig.submit(task_id="old")

    async def test_others_have_tasks_of_their_own(self, rig: Rig) -> None:
        rig.runtime.caller_limits = CallerLimits(running_tasks=1)
        await rig.submit(task_id="t")
        bob = Principal(role="user", id="bob", swarm=rig.swarm.name)
        await rig.submit(task_id="t", caller=bob)

    async def test_those_at_the_same_moment_cannot_pass_it(self, rig: Rig) -> None:
        rig.runtime.caller_limits = CallerLimits(running_tasks=4)
        ends = await asyncio.gather(*(rig.submit(task_id=f"{n}") for n in range(20)), return_exceptions=True)
        assert sum(isinstance(end, RateLimited) for end in ends) == 16
        assert await rig.store.count_running(str(rig.user), upto=100) == 4
