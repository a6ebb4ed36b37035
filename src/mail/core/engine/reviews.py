"""What waits for a caller's decision: the calls in its own tasks, and those in others' tasks that it may review.

The index has the task of each; what waits there, and for whom, the task itself says, so an entry that lags behind shows
nobody anything.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from hmac import compare_digest
from itertools import batched

from mail.core.decisions.approvals import GivenApproval, is_too_late, review
from mail.core.decisions.reviewers import find_call, may_decide
from mail.core.engine.admission import Admission
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.protocol.values import value
from mail.core.task.approvals import APPROVAL_MARK, LINKS, LinkHolder, whos
from mail.core.task.task import Task
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.core.task.webhooks import host_of
from mail.core.turns.context import CURRENT_TASK
from mail.errors import ApprovalNotFound

LOADED_AT_ONCE = 8
"""Tasks that a list of approvals loads at the same time."""

_ID = re.compile(rf"([0-9a-f]{{12}}-[\w-]{{1,64}}){re.escape(APPROVAL_MARK)}\d{{1,4}}", re.ASCII)


@value
class Review:
    """A call that waits for a decision; `can_decide` says whether the caller who reads it may make it."""

    task: Task
    paused_at: Breakpoint
    call: PausedCall
    can_decide: bool


class Reviews:
    """Finds what waits for a decision, and takes the decisions. All methods raise StoreUnavailable."""

    def __init__(self, wiring: Wiring, admission: Admission) -> None:
        self._wiring = wiring
        self._admission = admission

    async def waiting(
        self, caller: Principal, *, limit: int, cursor: str | None = None
    ) -> AsyncGenerator[tuple[str, list[Review]]]:
        """Yield the calls of `limit` tasks that wait for a caller, oldest first, each with the cursor that leads to it.

        A few tasks are loaded at the same time, as the arguments of their calls may be long.
        """
        start = "" if cursor is None else _breakpoint_in(f"{cursor}{APPROVAL_MARK}0")
        store = self._wiring.store
        lists = [await store.find_asks(who, start=start, limit=limit) for who in whos(caller)]
        found = sorted({ask_id: key for each in lists for ask_id, key in each}.items())
        for some in batched(found[:limit], LOADED_AT_ONCE):
            tasks = await asyncio.gather(*(store.load(key) for _, key in some))
            for (ask_id, _), task in zip(some, tasks, strict=True):
                yield ask_id, [] if task is None else self._calls(task, caller)

    async def find(self, who: Principal | LinkHolder, approval_id: str) -> Review:
        """Return a call that waits for somebody. Raises ApprovalNotFound."""
        names = whos(who) if isinstance(who, Principal) else (f"{LINKS}@{self._wiring.swarm.name}",)
        task = await self._load(names, approval_id)
        for each in self._calls(task, who):
            if each.paused_at.approval_id(each.call) == approval_id:
                return each
        raise ApprovalNotFound

    async def link_holder(self, approval_id: str, token: str) -> LinkHolder:
        """Return who has the link of a call. Raises ApprovalNotFound for a wrong token, or a link that was used."""
        wiring = self._wiring
        task = await self._load((f"{LINKS}@{wiring.swarm.name}",), approval_id)
        call = find_call(task, approval_id)
        if call is None or call.reviewers is None or wiring.webhooks is None:
            raise ApprovalNotFound
        expected = await wiring.webhooks.link_token(call.reviewers.secret, approval_id)
        if not compare_digest(expected.encode(), token.encode()):
            raise ApprovalNotFound
        return LinkHolder(approval_id, host_of(call.reviewers.webhook).partition("//")[2])

    async def decide(self, who: Principal | LinkHolder, approval_id: str, given: GivenApproval) -> str:
        """Decide on a call, so that its task resumes when no decision is missing; return the decision.

        Raises as `mail.core.decisions.approvals.review`.
        """
        wiring, found = self._wiring, await self.find(who, approval_id)
        CURRENT_TASK.set(found.task.task_id)
        await self._admission.adopt(
            found.task, lambda task: review(wiring.draft(task), who, approval_id, given)
        )
        return given.decision if given.arguments is None or given.decision == "reject" else "edit"

    async def _load(self, names: Sequence[str], approval_id: str) -> Task:
        """Return the task of an approval that stands in the index under one of these names."""
        breakpoint_id, store = _breakpoint_in(approval_id), self._wiring.store
        for name in names:
            for ask_id, key in await store.find_asks(name, start=breakpoint_id, limit=1):
                if ask_id == breakpoint_id and (task := await store.load(key)) is not None:
                    return task
        raise ApprovalNotFound

    def _calls(self, task: Task, who: Principal | LinkHolder) -> list[Review]:
        """Return the calls of a task that somebody may decide on or, as its owner, see."""
        paused_at, now = task.paused_at, self._wiring.now()
        if paused_at is None:
            return []
        shown = []
        for call in paused_at.calls:
            if not call.is_undecided or is_too_late(call, now):
                continue
            can_decide = may_decide(task, call, who)
            if can_decide or str(who) == task.instance:
                shown.append(Review(task, paused_at, call, can_decide))
        return shown


def _breakpoint_in(approval_id: str) -> str:
    """Return the id of the breakpoint of an approval. Raises ApprovalNotFound for any other text."""
    found = _ID.fullmatch(approval_id)
    if found is None:
        raise ApprovalNotFound
    return found[1]
