"""People who write to a task that is being worked on: each gets an answer that was given after reading them."""

import asyncio
from typing import Any

from mail.core.decisions.submit import Submission
from mail.core.protocol.address import Principal
from mail.testing.agents import View, build_agent, build_swarm, complete, request, respond, wait
from mail.testing.rig import Rig

ANN = Principal(role="user", id="ann", swarm="example")


class Echo:
    """A supervisor that waits until it is let go, and answers with the last person's words."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, view: View) -> Any:
        self.begun.set()
        await self.go_on.wait()
        return [complete(f"answer to {view.mail.body}")]


def message(body: str) -> Submission:
    return Submission(body=body, task_id="t")


async def test_each_person_gets_the_answer_to_their_own_message() -> None:
    echo = Echo()
    async with Rig(build_swarm({"supervisor": echo})) as rig:
        submitted = [await rig.runtime.submit(ANN, message("one"))]
        await echo.begun.wait()
        submitted += [await rig.runtime.submit(ANN, message(body)) for body in ("two", "three")]
        echo.go_on.set()
        answers = await asyncio.gather(*(rig.runtime.wait(each, seconds=60) for each in submitted))
        late = await rig.runtime.wait(submitted[1], seconds=60)
        events = await rig.store.read_events(submitted[0].key)
        task = await rig.task(submitted[0].key)
        streamed = [
            [
                event
                async for batch in rig.runtime.watch(each.key, after=each.after, answer_to=each.seq)
                for event in batch
            ]
            for each in submitted
        ]
    said = [answer.message.body if answer else None for answer in answers]
    assert said == ["answer to one", "answer to two", "answer to three"]
    assert late == answers[1]
    assert [stream[-1].text for stream in streamed] == said
    assert [event.extra.as_json().get("unread_from") for event in events if event.is_terminal] == [
        submitted[1].seq,
        submitted[2].seq,
        None,
    ]
    assert (task.generation.number, task.unread_questions, task.pending, task.is_running) == (
        3,
        (),
        {},
        False,
    )


async def test_mail_that_is_read_in_time_is_answered_at_once() -> None:
    """The worker is asked first, so the second message is read before the answer, which serves both people."""
    worker_begun, go_on = asyncio.Event(), asyncio.Event()

    async def worker(view: View) -> Any:
        worker_begun.set()
        await go_on.wait()
        return [respond("supervisor")]

    def supervisor(view: View) -> Any:
        if view.mail.sender != "worker":
            return [request("worker"), wait()] if view.mail.body == "one" else [wait()]
        return [complete("answer to all")]

    async with Rig(build_swarm({"supervisor": supervisor, "worker": worker})) as rig:
        first = await rig.runtime.submit(ANN, message("one"))
        await worker_begun.wait()
        second = await rig.runtime.submit(ANN, message("two"))
        await rig.store.wait_for_change(first.key, after=second.seq, seconds=60)
        go_on.set()
        answers = [await rig.runtime.wait(each, seconds=60) for each in (first, second)]
        task = await rig.task(first.key)
    assert answers[0] == answers[1]
    assert task.generation.number == 1


async def test_a_turn_that_outlives_its_generation_does_not_end_the_next() -> None:
    """The deputy may complete tasks, and still works on the first question when the second one comes."""
    at_work, late, second = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def supervisor(view: View) -> Any:
        match view.mail.body:
            case "first":
                return [request("deputy", "help"), request("clerk", "is the deputy at work?")]
            case "yes":
                return [complete("answer to first")]
            case "second":
                await second.wait()
                return [complete("answer to second")]
        return [wait()]

    async def deputy(view: View) -> Any:
        if view.mail.body != "help":  # the refusal of its late call
            await asyncio.Event().wait()
        at_work.set()
        await late.wait()
        return [complete("too late")]

    async def clerk(_: View) -> Any:
        await at_work.wait()
        return [respond("supervisor", "yes")]

    deputies = build_agent(deputy, can_complete_tasks=True, name="deputy")
    swarm = build_swarm({"supervisor": supervisor, "deputy": deputies, "clerk": clerk})
    async with Rig(swarm) as rig:
        first = await rig.runtime.submit(ANN, message("first"))
        await rig.runtime.wait(first, seconds=60)
        again = await rig.runtime.submit(ANN, message("second"))
        seq = (await rig.task(first.key)).seq
        late.set()
        await rig.store.wait_for_change(first.key, after=seq, seconds=60)
        second.set()
        await rig.runtime.wait(again, seconds=60)
        events = await rig.store.read_events(first.key)
    assert [event.text for event in events if event.is_terminal] == ["answer to first", "answer to second"]
