"""A life of a server whose actions finish later, while it is killed at every point.

Each task renders a film. What becomes of the call is the name of the task: its result comes `early`, before the turn of
the call is committed, or `late`, when the task sleeps; it will `expire`; or the task is cancelled (`cancel`).
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crash_clients import ANN, Violation
from crash_points import append_line, read_lines
from crash_process import Life

from mail.core.decisions.submit import Submission
from mail.core.task.callbacks import LATER, CallResult, Later, task_of
from mail.core.task.events import EventKind
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.turns.context import TURN, current_context
from mail.testing.agents import Call, View, build_swarm, call, complete

FATES = ("early", "late", "expire", "cancel")
YEAR = 31_536_000.0
SOON = 0.1
GLANCE_SECONDS = 0.005


def film(fate: str) -> CallResult:
    """Return the result of the call of a task."""
    return CallResult(f"{fate} film")


def chief(view: View) -> list[Call]:
    """Render a film, and tell what has become of it."""
    return [call(view.mail.body)] if view.mail.sender_type == "user" else [complete(view.mail.body)]


@dataclass
class LaterLife(Life):
    """The tasks of ann, and the farm that renders their films."""

    def _swarm(self) -> SwarmCore:
        return build_swarm(
            {"chief": chief},
            actions={
                fate: ActionCore(
                    fate,
                    self._render,
                    idempotent=True,
                    finish_within=SOON if fate == "expire" else YEAR,
                    on_cancel=self._cancel,
                )
                for fate in FATES
            },
        )

    async def _render(self, _arguments: dict[str, Any]) -> str | Later:
        context = current_context()
        self.points.hit("before action")
        append_line(
            self.folder / "begun", f"{context.task_id} {context.idempotency_key} {context.callback.token}"
        )
        self.points.hit("inside action")
        if context.task_id == "early":
            await self.runtime.callbacks.finish(context.callback.token, film("early"))
        self.points.hit("after action")
        return LATER

    async def _cancel(self, _arguments: dict[str, Any]) -> None:
        self.points.hit("before on_cancel")
        append_line(self.folder / "cancelled", f"{current_context().idempotency_key} {TURN.get().agent}")
        self.points.hit("after on_cancel")

    async def _wake(self) -> None:
        if self.world.redelivers:
            await asyncio.sleep(2 * GLANCE_SECONDS)
            await self.runtime.recover()
        while True:
            await asyncio.sleep(4 * GLANCE_SECONDS)
            await self.runtime.sweep()

    async def _serve_clients(self) -> None:
        await asyncio.gather(*map(self._serve_one, FATES))

    async def _serve_one(self, fate: str) -> None:
        if await self._task(fate) is None:
            self.points.hit("before submit")
            await self.runtime.submit(ANN, Submission(body=fate, task_id=fate))
            self.points.hit("after submit")
        while (task := await self._task(fate)) is None or not (  # noqa: ASYNC110 - of a store
            task.is_asleep or task.status is not TaskStatus.RUNNING
        ):
            await asyncio.sleep(GLANCE_SECONDS)
        match fate:
            case "late":
                await self.runtime.callbacks.finish(self._tokens(fate)[0], film(fate))
            case "cancel":
                await self.runtime.cancel(ANN, fate)
        while not _has_ended(await self._task(fate)):  # noqa: ASYNC110 - of a store
            await asyncio.sleep(GLANCE_SECONDS)

    async def _task(self, fate: str) -> Task | None:
        return await self.inner.load(TaskKey(str(ANN), fate))

    def _tokens(self, fate: str) -> list[str]:
        return [line.split()[2] for line in read_lines(self.folder / "begun") if line.startswith(f"{fate} ")]

    async def _check_what_was_left(self) -> None:
        """Nothing can be said of it but that all ends well."""

    async def _check_the_end(self) -> None:
        async with self.world.open(self.points, self.clock) as self.inner:
            wrong = [problem for fate in FATES for problem in await self._faults(fate)]
        wrong += self.world.problems()
        if wrong:
            raise Violation("\n".join(wrong))

    async def _faults(self, fate: str) -> list[str]:
        key = TaskKey(str(ANN), fate)
        task = await self._task(fate)
        events = await self.inner.read_events(key)
        response = await self.inner.read_response(key, 1)
        texts = [event.text for event in events]
        assert task is not None
        assert response is not None
        ended = [
            event.text
            for event in events
            if event.kind in (EventKind.ACTION_COMPLETE, EventKind.ACTION_ERROR, EventKind.ACTION_CANCELLED)
        ]
        begun = [line.split()[1] for line in read_lines(self.folder / "begun") if line.startswith(f"{fate} ")]
        told = [line.split()[0] for line in read_lines(self.folder / "cancelled")]
        return list(self._find(fate, task, response.message.body, ended, begun, told)) + (
            [] if not await self.inner.list_waits(key, limit=9) else [f"{fate}: calls still wait: {texts}"]
        )

    def _find(
        self, fate: str, task: Task, answer: str, ended: list[str], begun: list[str], told: list[str]
    ) -> Iterator[str]:
        if len({*begun}) != 1 or len({*self._tokens(fate)}) != 1:
            yield f"{fate}: a call has more than one key or token: {begun}"
        if any(task_of(token) != task.key for token in self._tokens(fate)):
            yield f"{fate}: a token names another task"
        if (
            task.waits.open_calls
            or (task.waits.early and not task.pending)
            or task.waits.cancel_at is not None
        ):
            yield f"{fate}: {task.waits}"
        if len(ended) != 1:
            yield f"{fate}: its call has ended {len(ended)} times: {ended}"
        if ({*begun} <= {*told}) is not (fate == "cancel"):
            yield f"{fate}: on_cancel was called for {told}"
        expected = {
            "early": "early: early film",
            "late": "late: late film",
            "expire": "expire: ERROR: its result had not come by",
            "cancel": "The task was cancelled by ann",
        }[fate]
        if not answer.startswith(expected):
            yield f"{fate}: the answer is {answer!r}"


def _has_ended(task: Task | None) -> bool:
    return task is not None and task.status is not TaskStatus.RUNNING and task.waits.cancel_at is None
