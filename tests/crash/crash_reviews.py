"""A life of a server whose actions are approved by others than the task's owner, while it is killed at every point.

Each task pays somebody. What becomes of the call is the name of the task: a reviewer decides (`approve`, `reject`), who
has the `link` of the request does, or nobody does in time (`expire`).
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from crash_clients import ANN, BOB, Violation
from crash_points import append_line, read_lines
from crash_process import Life
from pydantic_core import from_json

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.submit import Submission
from mail.core.protocol.address import Principal
from mail.core.task.approvals import Approval, LinkHolder, whos
from mail.core.task.events import EventKind
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.webhooks import Reply, TaskWebhook, Webhook
from mail.core.turns.context import current_context
from mail.errors import ApprovalNotFound
from mail.testing.agents import Call, View, build_swarm, call, complete

FATES = ("approve", "reject", "link", "expire")
LONG, SOON = 1_000_000.0, 0.1
GLANCE_SECONDS = 0.005
SECRET = "${WEBHOOK_SECRET_REVIEWS}"


def clerk(view: View) -> list[Call]:
    """Pay, and answer with what has become of it."""
    return [complete(view.results[-1])] if view.results else [call(view.mail.body)]


@dataclass
class ReviewLife(Life):
    """The tasks of ann, whose payments bob reviews; it is its own receiver of webhooks."""

    retry_seconds = (0.01,) * 9

    @property
    def webhooks(self) -> Any:
        return self

    async def check(self, webhook: Webhook) -> None:
        """Take any webhook."""

    async def registered(self, caller: str) -> Sequence[Webhook]:
        return ()

    async def link_token(self, secret_ref: str, approval_id: str) -> str:
        return f"token-of-{approval_id}"

    async def send(self, hook: TaskWebhook, event_id: str, body: bytes, *, seconds: float) -> Reply:
        self.points.hit("before request")
        append_line(self.folder / "sent", f"{event_id} {body.decode()}")
        self.points.hit("after request")
        return Reply(200)

    def _swarm(self) -> SwarmCore:
        return build_swarm(
            {"clerk": clerk},
            actions={
                fate: ActionCore(
                    fate,
                    self._pay,
                    idempotent=True,
                    needs_approval=True,
                    approval_timeout=SOON if fate == "expire" else LONG,
                    reviewers=Approval(
                        by=("user:bob",),
                        otherwise="approve",
                        webhook="https://reviews.example/",
                        secret=SECRET,
                    ),
                )
                for fate in FATES
            },
        )

    async def _pay(self, _arguments: dict[str, Any]) -> str:
        append_line(self.folder / "paid", current_context().task_id)
        return "paid"

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
        while not (self._sent(fate) or _has_ended(await self._task(fate))):  # noqa: ASYNC110 - of a store
            await asyncio.sleep(GLANCE_SECONDS)
        if fate != "expire":
            await self._decide(fate)
        while not _has_ended(await self._task(fate)):  # noqa: ASYNC110 - of a store
            await asyncio.sleep(GLANCE_SECONDS)

    async def _decide(self, fate: str) -> None:
        """Decide as the request says, unless an earlier process has."""
        request = self._sent(fate)[0][1]
        given = GivenApproval(decision="reject" if fate == "reject" else "approve")
        who: Principal | LinkHolder = BOB
        self.points.hit("before decision")
        try:
            if fate == "link":
                token = request["link"].rpartition("/")[2]
                who = await self.runtime.reviews.link_holder(request["id"], token)
            await self.runtime.reviews.decide(who, request["id"], given)
        except ApprovalNotFound:
            append_line(self.folder / "again", fate)
        self.points.hit("after decision")

    async def _task(self, fate: str) -> Task | None:
        return await self.inner.load(TaskKey(str(ANN), fate))

    def _sent(self, fate: str) -> list[tuple[str, dict[str, Any]]]:
        """The requests that have gone out for a task, with their ids."""
        lines = (line.split(" ", 1) for line in read_lines(self.folder / "sent"))
        found = [(event_id, from_json(body)) for event_id, body in lines]
        return [each for each in found if each[1]["approval"] and each[1]["approval"]["name"] == fate]

    async def _check_what_was_left(self) -> None:
        """Nothing can be said of it but that all ends well."""

    async def _check_the_end(self) -> None:
        async with self.world.open(self.points, self.clock) as self.inner:
            wrong = [problem for fate in FATES for problem in await self._faults(fate)]
            for who in (*whos(ANN), *whos(BOB), f"link@{BOB.swarm}"):
                wrong += [f"{who}: {each}" for each in await self.inner.find_asks(who, limit=9)]
        wrong += self.world.problems()
        if wrong:
            raise Violation("\n".join(wrong))

    async def _faults(self, fate: str) -> list[str]:
        key = TaskKey(str(ANN), fate)
        events = await self.inner.read_events(key)
        response = await self.inner.read_response(key, 2)
        assert response is not None
        kinds = [event.kind for event in events]
        by = [event.extra for event in events if event.kind is EventKind.BREAKPOINT_ACTION_COMPLETE]
        return list(self._find(fate, response.message.body, kinds, by))

    def _find(self, fate: str, answer: str, kinds: list[EventKind], decisions: list[Any]) -> Iterator[str]:
        if kinds.count(EventKind.APPROVAL_REQUESTED) != 1 or len(decisions) != 1:
            yield f"{fate}: {kinds}"
        ids = {event_id for event_id, _ in self._sent(fate)}
        if len(ids) > 1 or (fate != "expire" and not ids):
            yield f"{fate}: the request went out as {ids}"
        by = {"link": "link:reviews.example", "expire": None}.get(fate, str(BOB))
        if decisions[0].by != by or decisions[0].decision != ("reject" if fate == "reject" else "approve"):
            yield f"{fate}: {decisions}"
        if (fate in read_lines(self.folder / "paid")) is (fate == "reject"):
            yield f"{fate}: what was paid: {read_lines(self.folder / 'paid')}"
        if ("rejected this call" if fate == "reject" else "SUCCESS: paid") not in answer:
            yield f"{fate}: the answer is {answer!r}"


def _has_ended(task: Task | None) -> bool:
    return task is not None and task.status in (TaskStatus.COMPLETED, TaskStatus.FAILED)
