"""The clients of a run. They reconnect after a crash, and know only what is in the logs."""

from crash_checks import Logs
from crash_points import WHERE, MortalPoints, append_line, read_lines
from crash_scenario import APPROVAL, FOLLOW_UP, PINGS, PLAN, PONGS, TASK_ID

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.ports import Store
from mail.core.task.task import TaskKey
from mail.errors import BadRequest, DecisionTooLate
from mail.testing.agents import NAME

ANN = Principal(role="user", id="ann", swarm=NAME)
BOB = Principal(role="user", id="bob", swarm=NAME)

STEPS = [
    Submission(body=PLAN, task_id=TASK_ID, subject="Plan"),
    Submission(
        task_id=TASK_ID,
        resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
        breakpoint_tool_call_result={"content": APPROVAL},
        approvals=(GivenApproval(decision="approve"),),
    ),
    Submission(body=FOLLOW_UP, task_id=TASK_ID, resume_from=ResumeFrom.USER_RESPONSE, subject="Follow up"),
]


class Violation(Exception):
    """An invariant does not hold."""


class Clients:
    """Ann and Bob. Each waits `patience` seconds for the next event or answer."""

    def __init__(
        self, runtime: Runtime, store: Store, points: MortalPoints, logs: Logs, patience: float
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._points = points
        self._logs = logs
        self._patience = patience

    async def be_ann(self) -> None:
        """Send what has not been accepted, and watch until it is answered; reconnect after a crash."""
        key = TaskKey(str(ANN), TASK_ID)
        for number, submission in enumerate(STEPS, start=1):
            WHERE.set(f"ann {number}")
            task = await self._store.load(key)
            is_there = task is not None and task.generation.number >= number
            await self._send(ANN, submission, f"ann {number}", is_there=is_there)
            await self._watch_until_answered(number)

    async def be_bob(self) -> None:
        """Don't wait for the first answer before asking again."""
        key = TaskKey(str(BOB), TASK_ID)
        for ping in PINGS:
            WHERE.set(f"bob {ping}")
            events = await self._store.read_events(key) if await self._store.load(key) else []
            is_there = any(event.message and event.message.message.body == ping for event in events)
            submission = Submission(body=ping, task_id=TASK_ID, subject="Ping")
            await self._send(BOB, submission, f"bob {ping}", is_there=is_there)
        for generation, pong in enumerate(PONGS, start=1):
            while (answer := await self._store.read_response(key, generation)) is None:
                await self._store.wait_for_response(key, generation, seconds=self._patience)
            if answer.message.body != pong:
                raise Violation(f"bob was answered {answer.message.body!r} in generation {generation}")

    async def _send(self, caller: Principal, submission: Submission, name: str, *, is_there: bool) -> None:
        if is_there:
            return
        if name in read_lines(self._logs.accepted):
            raise Violation(f"{name!r} was accepted, and is gone")
        self._points.hit("before submit")
        try:
            await self._runtime.submit(caller, submission)
        except (BadRequest, DecisionTooLate) as refusal:
            raise Violation(f"{name!r} is refused: {refusal.detail}") from refusal
        append_line(self._logs.accepted, name)
        self._points.hit("after submit")

    async def _watch_until_answered(self, generation: int) -> None:
        key = TaskKey(str(ANN), TASK_ID)
        seen = read_lines(self._logs.seen)
        ends = [line for line in seen if line.split()[1] in ("task_complete", "task_error")]
        if len(ends) >= generation:
            return
        async for batch in self._runtime.watch(key, after=len(seen), heartbeat=self._patience / 2):
            if not batch:  # there is always something to do until she is answered
                raise Violation(f"ann sees nothing happen after event {len(read_lines(self._logs.seen))}")
            for event in batch:
                append_line(self._logs.seen, f"{event.seq} {event.kind} {event.text.splitlines()[:1]}")
                self._points.hit("after an event was seen")
