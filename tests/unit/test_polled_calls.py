"""Calls on which a server works: it is asked for their results, whatever happens to the process meanwhile."""

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from support.engines.adapters import STORES

from mail.core.engine.callbacks import MAX_CALLS_IN_A_TURN
from mail.core.task.callbacks import CallResult, LaterCall, Polled
from mail.core.task.events import EventKind
from mail.core.task.files import File, files_in
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.mailboxes import CANCELLED_CALLS
from mail.core.task.swarm import ActionCore, ProvidedTools, SwarmCore
from mail.core.task.task import TaskKey, TaskStatus
from mail.core.task.webhooks import RETRY_SECONDS
from mail.core.turns.context import TURN
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete
from mail.testing.rig import Rig

DAY = 86_400.0


class Works:
    """A server that works: a `ToolSource` with the tool `build`.

    Attributes:
        answers: what it says of its work, one after the other.
        asked, cancelled: the work that it was asked about, or to cancel.
    """

    def __init__(self, *answers: CallResult | Polled | Exception) -> None:
        self.answers = [*answers]
        self.asked: list[str] = []
        self.cancelled: list[str] = []

    async def build(self, arguments: dict[str, Any]) -> Polled:
        return Polled(work=arguments["what"], lasts=DAY, pause=5.0)

    async def tools(self) -> ProvidedTools:
        return self.known()

    def known(self) -> ProvidedTools:
        return ProvidedTools({"build": ActionCore("build", self.build)})

    async def poll(self, polled: Polled) -> CallResult | Polled:
        assert TURN.get().agent == "lead"
        self.asked.append(polled.work)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def cancel(self, polled: Polled) -> None:
        self.cancelled.append(polled.work)

    async def aclose(self) -> None:
        pass


def working(progress: str = "", pause: float = 5.0) -> Polled:
    return Polled(work="boat", lasts=DAY, pause=pause, progress=progress)


def lead(view: View) -> Sequence[Call]:
    """Have built what the user says, and answer with what comes of it."""
    if view.mail.sender_type == "user":
        return [call("build", what=word) for word in view.mail.body.split()]
    return [complete(view.mail.body)]


def swarm_of(works: Works) -> SwarmCore:
    return build_swarm({"lead": build_agent(lead, supervises=True, tool_source=works)})


async def calls_of(rig: Rig, key: TaskKey) -> list[LaterCall]:
    return [wait for wait in await rig.store.list_waits(key, limit=9) if isinstance(wait, LaterCall)]


async def begin(rig: Rig, body: str = "boat") -> TaskKey:
    assert rig._concurrency == 0
    key = (await rig.submit(body)).key
    assert await rig.step() == "lead"
    return key


async def ask(rig: Rig, key: TaskKey, seconds: float) -> None:
    """Let time pass, and the servers be asked."""
    await rig.pass_time(seconds)
    await rig.runtime.run_turn(key, CANCELLED_CALLS)


@pytest.mark.parametrize(
    "where",
    [
        "sqlite-memory",
        *(
            pytest.param(name, marks=pytest.mark.full)
            for name in ("dynamodb-moto", "postgres")
            if name in STORES
        ),
    ],
)
async def test_the_result_comes_as_mail(tmp_path: Path, where: str) -> None:
    works, adapter = Works(working("half", pause=20.0), CallResult("a boat")), STORES[where](tmp_path)
    await adapter.open()
    try:
        async with Rig(swarm_of(works), store=adapter.store, concurrency=0) as rig:
            key = await begin(rig)
            assert (await rig.task(key)).is_asleep
            await ask(rig, key, 4.0)
            assert works.asked == []
            await ask(rig, key, 1.0)
            (waiting,) = await calls_of(rig, key)
            assert (works.asked, waiting.progress) == (["boat"], "half")
            await ask(rig, key, 19.0)
            assert len(works.asked) == 1
            await ask(rig, key, 1.0)
            task = await rig.task(key)
            assert (len(works.asked), task.waits.open_calls, task.waits.poll_at) == (2, 0, None)
            assert await rig.step() == "lead"
            assert (await rig.task(key)).status is TaskStatus.COMPLETED
            (done,) = [
                each for each in await rig.store.read_events(key) if each.kind is EventKind.ACTION_COMPLETE
            ]
            assert done.text.endswith("a boat")
            assert works.cancelled == []
    finally:
        await adapter.close()


async def test_files_of_a_result_belong_to_the_task() -> None:
    image = File(b"\x89PNG\r\n\x1a\n" + bytes(100_000), "boat.png")

    class Draws(Works):
        async def poll(self, polled: Polled) -> CallResult | Polled:
            files = TURN.get().files
            assert files is not None
            return CallResult((await files.add(image)).in_words)

    async with Rig(swarm_of(Draws()), concurrency=0) as rig:
        key = await begin(rig)
        before = (await rig.task(key)).stored_bytes
        await ask(rig, key, 5.0)
        assert (await rig.task(key)).stored_bytes - before > len(image.data)
        messages = [each.message for each in await rig.store.read_events(key) if each.message]
        told = messages[-1].message
        [ref] = files_in(told.routing_info)
        assert (ref.name, await rig.runtime.caller_files.read(key.instance, ref.id)) == (
            "boat.png",
            image.data,
        )


async def test_a_process_that_begins_asks_again(tmp_path: Path) -> None:
    works = Works(CallResult("a boat"))
    async with Rig(swarm_of(works), path=tmp_path / "mail.db", concurrency=0) as rig:
        key = await begin(rig)
        await rig.restart()
        assert await rig.runtime.recover() == 1
        await ask(rig, key, 5.0)
        assert await rig.step() == "lead"
        assert (await rig.task(key)).status is TaskStatus.COMPLETED


async def test_a_server_that_can_not_be_asked_is_asked_again_and_given_up_at_last() -> None:
    failures = [ConnectionError("it is down")] * (len(RETRY_SECONDS) + 1)
    works = Works(*failures[:3], working(), *failures)
    async with Rig(swarm_of(works), concurrency=0) as rig:
        key = await begin(rig)
        for pause in (5.0, *RETRY_SECONDS[:3], 5.0, *RETRY_SECONDS):
            assert (await rig.task(key)).waits.open_calls == 1
            await ask(rig, key, pause)
        assert works.answers == []
        (failed,) = [each for each in await rig.store.read_events(key) if each.kind is EventKind.ACTION_ERROR]
        assert "its result can't be read: it is down" in failed.text


async def test_work_that_fails_is_an_error_for_its_agent() -> None:
    works = Works(CallResult("no wood", has_failed=True))
    async with Rig(swarm_of(works), concurrency=0) as rig:
        key = await begin(rig)
        await ask(rig, key, 5.0)
        assert await rig.step() == "lead"
        assert "ERROR: no wood" in str((await rig.store.read_events(key))[-1].text)


async def test_who_no_longer_wants_the_result_cancels_the_work() -> None:
    works = Works()
    async with Rig(swarm_of(works), concurrency=0) as rig:
        key = await begin(rig, "boat bridge")
        boat, _ = await calls_of(rig, key)
        await rig.runtime.cancel_wait.call(rig.user, key, boat.digest)
        await rig.runtime.run_turn(key, CANCELLED_CALLS)
        assert len(works.cancelled) == 1
        await rig.runtime.cancel(rig.user, key.task_id)
        await rig.runtime.run_turn(key, CANCELLED_CALLS)
        assert sorted(works.cancelled) == ["boat", "bridge"]
        assert await calls_of(rig, key) == []
        assert (await rig.task(key)).waits.see_at is None


async def test_work_that_has_no_result_in_its_time_has_failed() -> None:
    works = Works(*[working(pause=DAY)] * 3)
    async with Rig(swarm_of(works), concurrency=0) as rig:
        key = await begin(rig)
        await ask(rig, key, 5.0)
        await rig.pass_time(DAY)
        assert (await rig.task(key)).waits.open_calls == 0
        assert await rig.step() == "lead"


async def test_one_turn_begins_only_so_many() -> None:
    works = Works()
    async with Rig(swarm_of(works), concurrency=0) as rig:
        key = await begin(rig, " ".join(map(str, range(MAX_CALLS_IN_A_TURN + 2))))
        assert (await rig.task(key)).waits.open_calls == MAX_CALLS_IN_A_TURN


async def test_who_watches_sees_what_servers_say() -> None:
    works = Works(working("half"), working("half"), working("most"), CallResult("a boat"))
    async with Rig(swarm_of(works), concurrency=0) as rig:
        key = await begin(rig)
        seen: list[str] = []
        async with aclosing(rig.runtime.with_live(key, rig.runtime.watch(key))) as batches:
            await anext(batches)
            for _ in range(3):
                await ask(rig, key, 10.0)
            async for batch in batches:
                seen += [
                    str(event.extra["progress"])
                    for event in batch
                    if isinstance(event, LiveEvent) and event.kind is LiveKind.ACTION_PROGRESS
                ]
                if "most" in seen:
                    break
        assert [each for each in seen if each] == ["half", "most"]
