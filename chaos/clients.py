"""Those who use the swarms. Each runs one workload: gives orders, and knows what has to come of them.

People come back until they are answered, to whichever server is there, and say the same again under the same key where
they can't know whether it was heard. Whatever is not as it has to be, they write down.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from itertools import count
from random import Random
from typing import Any

from chaos.process import ConnectionLost
from chaos.servers import Servers
from chaos.swarm import NORTH, UNKNOWN, Swarms
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.engine.admission import Forked
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal
from mail.core.task.events import Event
from mail.core.task.extras import DeadLetterExtra
from mail.core.task.idempotency import IdempotencyKey
from mail.core.task.limits import Budget
from mail.core.task.mailboxes import hook_of
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.webhooks import DEFAULT_EVENTS, Webhook
from mail.errors import BadRequest, DeadLetterNotFound, MAILError, NotCancellable, StoreUnavailable

USERS = ("ann", "bob", "eve")

TIMEOUT = 4 * 3600.0
"""Seconds, of the clock that leaps, after which somebody who was not answered says so."""

CANCELLED = "The task was cancelled by"

WORKLOADS = {
    "demo": 2, "fan": 3, "act": 3, "approve": 3, "join": 2, "once": 2, "meet": 2, "abroad": 3, "budget": 1, "late": 1,
    "idle": 1, "broken": 1, "cancel": 5, "cancel-abroad": 2,
    "hooked": 3, "doomed": 2, "fork": 3,
}  # fmt: skip
"""What people may be up to, and how often, in proportion."""

LONG_AFTER = 1e10
"""When keys are forgotten, in seconds since the epoch."""


class Workload:
    """One task, as those see it who have ordered it.

    Attributes:
        complaints: what is not as it has to be.
        seen: by watcher, the events that it was shown.
        cancelled: whether it was asked to be cancelled.
        twins: the workloads that were made of it, by forks.
    """

    def __init__(self, servers: Servers, swarms: Swarms, seed: str, number: int | str, kind: str) -> None:
        self._servers = servers
        self._swarms = swarms
        self._seed = seed
        self._number = number
        self.twins: list[Workload] = []
        self._chance = Random(f"{seed} workload {number}")
        self.kind = kind
        self._caller = Principal(role="user", id=self._chance.choice(USERS), swarm=NORTH)
        self.task_id = f"{number}-{kind}"
        self.key = TaskKey(str(self._caller), self.task_id)
        self.complaints: list[str] = []
        self.seen: list[list[Event]] = []
        self.cancelled = False
        self._marks = count(1)
        self._told: list[tuple[Submitted, str]] = []
        self._statuses = {TaskStatus.COMPLETED}
        self._watchers: list[asyncio.Task[None]] = []

    async def run(self, within: float) -> None:
        """Run it, beginning at some time of the next `within` seconds."""
        await asyncio.sleep(self._chance.uniform(0, within))
        steps: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "cancel": self._cancel, "cancel-abroad": self._cancel_abroad, "late": self._late, "budget": self._budget,
            "approve": self._approve, "act": self._act, "join": self._join, "once": self._once, "demo": self._demo,
            "idle": self._idle, "broken": self._broken, "abroad": self._abroad, "fan": self._fan, "meet": self._meet,
            "hooked": self._hooked, "doomed": self._doomed, "fork": self._fork,
        }  # fmt: skip
        try:
            async with asyncio.timeout(TIMEOUT):
                await steps[self.kind]()
        except TimeoutError:
            self.complaints.append("there was no answer")
        except MAILError as error:
            self.complaints.append(f"it was refused: {error!r}")

    async def finish(self, status: TaskStatus) -> None:
        """When all has come to its end: what was answered still is the answer, and watchers have seen all."""
        for submitted, answer in self._told:
            again = await self._ask(lambda runtime, of=submitted: runtime.wait(of, 5.0))  # type: ignore[misc]
            if again is None or again.message.body != answer:
                self.complaints.append(
                    f"the answer was {answer!r}, and now is {again and again.message.body!r}"
                )
        await asyncio.gather(*self._watchers)
        for seen in self.seen:
            await self._watch(seen)
        if status not in self._statuses:
            self.complaints.append(f"the task is {status}, and not {sorted(self._statuses)}")

    # -------------------------------------------------------------------------------------- what they are up to

    async def _demo(self) -> None:
        number = self._chance.randint(2, 99)
        answer = await self._order(f"What is {number}*7, and the weather in Tokyo?", entrypoint="supervisor")
        if f"{number}*7 = {number * 7}." not in answer or "The weather in Tokyo today:" not in answer:
            self.complaints.append(f"the answer is {answer!r}")

    async def _fan(self) -> None:
        width, mark = self._chance.randint(1, 4), self._mark()
        answer = await self._order(f"fan {mark} {width}")
        self._expect(answer, f"{mark}: {' '.join(str(n * n) for n in range(width))}")

    async def _act(self) -> None:
        mark = self._mark()
        self._expect_act(mark, await self._order(f"act {mark}"))

    async def _approve(self) -> None:
        mark = self._mark()
        question = await self._order(f"approve {mark}")
        if mark not in question:
            self.complaints.append(f"the question is {question!r}")
        await asyncio.sleep(self._chance.choice((0, self._chance.uniform(0, 100))))
        self._expect(await self._approve_of(mark), f"{mark}: approve: yes {mark}")

    async def _join(self) -> None:
        """The second order comes while the first is carried out, or after it; each is answered."""
        first, second = self._mark(), self._mark()
        one = await self._submit(f"echo {first}")
        await asyncio.sleep(self._chance.choice((0, self._chance.uniform(0, 4))))
        two = await self._submit(f"echo {second}")
        self._expect(await self._answer(two), f"echo {second}")
        self._expect(await self._answer(one), f"echo {first}")

    async def _once(self) -> None:
        """However often it is said: under one key it is one order."""
        mark = self._mark()
        said = await asyncio.gather(*(self._submit(f"echo {mark}", key="the key") for _ in range(3)))
        self._expect(await self._answer(said[0]), f"echo {mark}")
        said.append(await self._submit(f"echo {mark}", key="the key"))
        if len(set(said)) != 1:
            self.complaints.append(f"one order came to {said}")
        task = await self._ask(lambda runtime: runtime.store.load(self.key))
        if task is None or task.generation.number != 1:
            self.complaints.append("one order was carried out more than once")

    async def _meet(self) -> None:
        mark = self._mark()
        self._expect(await self._order(f"meet {mark}"), f"{mark}: 49 hurried")

    async def _abroad(self) -> None:
        mark = self._mark()
        self._expect(await self._order(f"abroad {mark}"), f"{mark}: 81")

    async def _budget(self) -> None:
        """Without an end, but for what it may use up."""
        mark = self._mark()
        limits: dict[str, Any] = self._chance.choice(({"steps": 8}, {"budget": Budget(turns=9)}))
        self._expect(await self._order(f"loop {mark}", **limits), f"stopped {mark}")

    async def _late(self) -> None:
        """Its time is up before its steps are; where it is slow to begin, even at once."""
        mark = self._mark()
        answer = await self._order(f"loop {mark}", timeout=self._chance.uniform(1, 30))
        self._statuses = {TaskStatus.FAILED, TaskStatus.COMPLETED}
        if answer not in ("The task did not finish within its time limit.", f"stopped {mark}"):
            self.complaints.append(f"the answer is {answer!r}")

    async def _idle(self) -> None:
        self._statuses = {TaskStatus.FAILED}
        answer = await self._order(f"idle {self._mark()}")
        if "stalled" not in answer and "5 faulty turns in a row" not in answer:
            self.complaints.append(f"the answer is {answer!r}")

    async def _broken(self) -> None:
        mark = self._mark()
        answer = await self._order(f"break {mark}")
        if not answer.startswith(f"told {mark}: agent 'bo' has failed"):
            self.complaints.append(f"the answer is {answer!r}")

    async def _cancel(self) -> None:
        await self._change_mind(
            self._chance.choice(("fan {} 4", "act {}", "approve {}", "loop {}", "meet {}"))
        )

    async def _cancel_abroad(self) -> None:
        await self._change_mind("abroad {}")

    async def _change_mind(self, order: str) -> None:
        """Cancel it at some moment, if it is not over by then; and perhaps go on all the same."""
        mark = self._mark()
        submitted = await self._submit(order.format(mark))
        await asyncio.sleep(self._chance.uniform(0, self._chance.choice((1, 8, 40))))
        self.cancelled = True
        try:
            task = await self._ask(lambda runtime: runtime.cancel(self._caller, self.task_id, "never mind"))
        except NotCancellable:
            self.cancelled = False
        answer = await self._answer(submitted)
        if self.cancelled:
            self._statuses = {TaskStatus.CANCELLED}
            if task.status is not TaskStatus.CANCELLED:
                self.complaints.append(f"the task was cancelled, and is {task.status}")
            if not answer.startswith(CANCELLED) and not order.startswith("approve"):
                self.complaints.append(f"the task was cancelled, and its answer is {answer!r}")
        # An order that nobody has read is read first when the task resumes; this one would pause it again.
        would_pause = order.startswith("approve") and answer.startswith(CANCELLED)
        if self._chance.random() < 0.5 and not would_pause:
            mark = self._mark()
            self._expect(await self._order(f"echo {mark}"), f"echo {mark}")
            self.cancelled, self._statuses = False, {TaskStatus.COMPLETED}

    async def _hooked(self) -> None:
        """Have it told to a receiver, and see to what did not get there."""
        mark = self._mark()
        events = self._chance.choice((DEFAULT_EVENTS, ()))
        webhook = Webhook(url=f"https://hooks.example/{self.task_id}", events=events)
        answer = await self._order(f"fan {mark} 2", webhook=webhook)
        self._expect(answer, f"{mark}: 0 1")
        for _ in range(8):
            await asyncio.sleep(self._chance.uniform(0, 30))
            task = await self._load()
            if task.dead_letters and self._chance.random() < 0.8:
                await self._redrive()
            elif task.dead_letters:
                await self._ask(lambda runtime: runtime.dead_letters.discard(self._caller, self.key))
            elif not task.has_outbound_mail:
                break

    async def _doomed(self) -> None:
        """An agent fails; what it has failed over is done again, once that is of use."""
        mark = self._mark()
        delegates = self._chance.random() < 0.5
        answer = await self._order(f"{'delegate' if delegates else 'flaky'} {mark}")
        if "has failed: ValueError" not in answer:
            self.complaints.append(f"the answer is {answer!r}")
        if len(await self._buried()) != 1:
            self.complaints.append("an agent has failed, and there is not one dead letter")
        await asyncio.sleep(self._chance.uniform(0, 10))
        self._swarms.mended.add(mark)
        if self._chance.random() < 0.25:
            await self._ask(lambda runtime: runtime.dead_letters.discard(self._caller, self.key))
            self._statuses = {TaskStatus.COMPLETED if delegates else TaskStatus.FAILED}
        else:
            await asyncio.gather(self._redrive(), self._redrive())
            if not delegates and (await self._load()).generation.number != 2:
                self.complaints.append(
                    "a dead letter of a failed task was redriven, and the task does not go on"
                )
            elif not delegates:
                self._expect(await self._answer(Submitted(self.key, 2, 0, 0)), f"mended {mark}")
            elif self._chance.random() < 0.8:  # else it waits in a mailbox of a task that has stopped
                mark = self._mark()
                self._expect(await self._order(f"echo {mark}"), f"echo {mark}")
        for letter in await self._buried():
            self.complaints.append(f"there is a dead letter left: {letter.seq} {letter.text}")

    async def _buried(self) -> list[Event]:
        """The dead letters of agents; a webhook that all of a caller's tasks have may have made others."""
        dead = (await self._load()).dead_letters
        events = await self._ask(lambda runtime: runtime.store.read_events(self.key))
        return [
            event
            for event in events
            if event.seq in dead
            and isinstance(event.extra, DeadLetterExtra)
            and hook_of(event.extra.mailbox) is None
        ]

    async def _redrive(self) -> None:
        """Redrive all, or one after the other; who is late finds nothing to do."""
        if self._chance.random() < 0.5:
            await self._ask(lambda runtime: runtime.dead_letters.redrive(self._caller, self.key))
            return
        for seq in (await self._load()).dead_letters:
            with suppress(DeadLetterNotFound):
                await self._ask(
                    lambda runtime, seq=seq: runtime.dead_letters.redrive(self._caller, self.key, seq)  # type: ignore[misc]
                )

    async def _fork(self) -> None:
        """At some moment, begin another task with all that has happened; neither harms the other."""
        verb, mark = self._chance.choice(("fan", "act", "meet", "abroad", "approve")), self._mark()
        submitted = await self._submit(f"{verb} {mark}{' 3' if verb == 'fan' else ''}")
        forking = asyncio.create_task(self._fork_now_and_then(verb, mark))
        answer = await self._answer(submitted)
        if verb == "approve":
            answer = await self._approve_of(mark)
        self._expect_answer(verb, mark, answer)
        if verb == "act":
            self._expect_act(mark, answer)
        await forking

    async def _fork_now_and_then(self, verb: str, mark: str) -> None:
        for n in range(self._chance.choice((1, 1, 2))):
            await asyncio.sleep(self._chance.uniform(0, self._chance.choice((3, 30))))
            await self._fork_once(verb, mark, n)

    async def _fork_once(self, verb: str, mark: str, n: int) -> None:
        at = self._chance.choice((None, self._chance.randint(1, (await self._load()).seq)))
        forked = await self._ask_for_fork(at, run=verb == "approve" or self._chance.random() < 0.7)
        task = forked.task
        twin = Workload(self._servers, self._swarms, self._seed, f"{self._number}.{n}", "twin")
        twin._caller, twin.task_id, twin.key = self._caller, task.task_id, task.key
        self.twins.append(twin)
        if task.is_running:
            twin._begin_to_watch()
            answer = await twin._answer(Submitted(task.key, 1, 0, 0))
            if (await twin._load()).generation.breakpoint is not None:
                answer = await twin._approve_of(mark)
            twin._expect_answer(verb, mark, answer)
        elif task.generation.breakpoint is not None:
            twin._expect_answer(verb, mark, await twin._approve_of(mark))
        else:
            other = f"{mark}/{n}"
            answer = await twin._order(f"echo {other}")
            if verb != "abroad" or answer != f"left behind {mark}":  # what the system says is read before it
                twin._expect(answer, f"echo {other}")

    async def _ask_for_fork(self, at: int | None, *, run: bool) -> Forked:
        try:
            return await self._ask(lambda runtime: runtime.fork(self._caller, self.task_id, at=at, run=run))
        except BadRequest:  # it had stopped by then
            return await self._ask(lambda runtime: runtime.fork(self._caller, self.task_id, at=at))

    async def _approve_of(self, mark: str) -> str:
        return await self._order(
            "",
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            breakpoint_tool_call_result={"content": f"yes {mark}"},
        )

    def _expect_answer(self, verb: str, mark: str, answer: str) -> None:
        """Either task comes to the same answer, but for what a fork does not take along."""
        known = {
            "fan": "0 1 4",
            "meet": "49 hurried",
            "abroad": "81",
            "approve": f"approve: yes {mark}",
            "act": f"look: found {mark}; book: (booked {mark}|ERROR: {UNKNOWN}.*)",
        }
        others = "|left behind .*" if self.kind == "twin" and verb == "abroad" else ""
        if re.fullmatch(f"{mark}: {known[verb]}{others}", answer) is None:
            self.complaints.append(f"the answer to {verb} is {answer!r}")

    # ------------------------------------------------------------------------------------------------ how they do it

    async def _load(self) -> Task:
        task = await self._ask(lambda runtime: runtime.store.load(self.key))
        assert task is not None
        return task

    def _mark(self) -> str:
        return f"{self.task_id}/{next(self._marks)}"

    def _expect(self, answer: str, expected: str) -> None:
        if answer != expected:
            self.complaints.append(f"the answer is {answer!r}, and not {expected!r}")

    def _expect_act(self, mark: str, answer: str) -> None:
        """What is said of an action is what became of it."""
        times = sum(run.action == "book" for run in self._swarms.ran.get(self.task_id, ()))
        known = re.fullmatch(f"{mark}: look: found {mark}; book: booked {mark}", answer) is not None
        if known and times != 1:
            self.complaints.append(f"{answer!r}, but it was done {times} times")
        unknown = answer.startswith(f"{mark}: look: found {mark}; book: ERROR: {UNKNOWN}")
        if not known and not (unknown and self._servers.faults.met):
            self.complaints.append(f"the answer is {answer!r}")

    async def _order(self, body: str, **fields: Any) -> str:
        return await self._answer(await self._submit(body, **fields))

    async def _submit(self, body: str, *, key: str = "", **fields: Any) -> Submitted:
        """Say it, and again until it is heard; now and then twice although it was."""
        idempotency_key = IdempotencyKey(
            key=key or f"{self.task_id} {next(self._marks)}", digest=body, until=LONG_AFTER
        )
        submission = Submission(body=body, task_id=self.task_id, idempotency_key=idempotency_key, **fields)
        times = 1 + self._servers.faults.strikes("duplicate", self._chance, 0.2)
        results = await asyncio.gather(
            *(self._ask(lambda runtime: runtime.submit(self._caller, submission)) for _ in range(times))
        )
        if len(set(results)) != 1:
            self.complaints.append(f"one order came to {results}")
        self._begin_to_watch()
        return results[0]

    def _begin_to_watch(self) -> None:
        if not self._watchers:
            for _ in range(self._chance.choice((1, 1, 2))):
                self.seen.append([])
                self._watchers.append(asyncio.create_task(self._watch(self.seen[-1])))

    async def _answer(self, submitted: Submitted) -> str:
        while True:
            response = await self._ask(lambda runtime: runtime.wait(submitted, 20.0))
            if response is not None:
                self._told.append((submitted, response.message.body))
                return response.message.body

    async def _watch(self, seen: list[Event]) -> None:
        """See all that happens until the task stops; the connection breaks now and then."""
        chance = Random(f"{self.task_id} {len(seen)}")
        while not await self._ask(lambda runtime: _follow(runtime, self.key, seen, chance)):  # noqa: ASYNC110 - connections are made again
            await asyncio.sleep(chance.uniform(0, 3))

    async def _ask[T](self, question: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        """Ask until somebody answers."""
        while True:
            try:
                return await self._servers.ask(NORTH, self._chance, question)
            except (ConnectionLost, StoreUnavailable):
                await asyncio.sleep(self._chance.uniform(0.1, 2))


async def _follow(runtime: Runtime, key: TaskKey, seen: list[Event], chance: Random) -> bool:
    """Add to what was seen. False where the connection broke before the end."""
    after = seen[-1].seq if seen else 0
    async with aclosing(runtime.watch(key, after=after, heartbeat=15.0)) as batches:
        async for batch in batches:
            seen += (event for event in batch if isinstance(event, Event))
            if chance.random() < 0.1:
                return False
    return True
