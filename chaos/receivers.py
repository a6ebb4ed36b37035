"""Those whom webhooks call: they keep what reaches them, and are down now and then.

They are `mail.core.task.ports.Webhooks` of a process: an event that is sent in it is kept here, whatever becomes of the
process.
"""

import asyncio
import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from random import Random

from chaos.faults import Faults
from chaos.invariants import Arrival
from mail.core.decisions.webhooks import GONE
from mail.core.task.events import EventKind
from mail.core.task.webhooks import Reply, TaskWebhook, Webhook

RETRY_SECONDS = (1, 2, 4)
"""How long a webhook rests after each failure: short, so that some are given up."""

PERIOD, DOWN = 120.0, 25.0
"""A receiver is down for so many seconds of each period."""

REGISTERED = {
    "eve": Webhook(
        url="https://eve.example/ends",
        events=(EventKind.TASK_COMPLETE, EventKind.TASK_ERROR, EventKind.DEAD_LETTER),
    )
}
"""By the person who has registered it."""


class Receivers:
    """All of them.

    Attributes:
        got: by task and webhook, what has arrived, in order.
    """

    def __init__(self) -> None:
        self.got: defaultdict[str, defaultdict[str, list[Arrival]]] = defaultdict(lambda: defaultdict(list))

    def take(self, hook: TaskWebhook, event_id: str, body: bytes) -> None:
        """Something has arrived."""
        event = json.loads(body)
        webhook = Webhook(url=hook.url, events=hook.events)
        self.got[event["task_id"]][webhook.id].append(Arrival(event["seq"], event_id, event["event"]))


class Sender:
    """How the events of a process reach them."""

    retry_seconds: Sequence[float] = RETRY_SECONDS

    def __init__(self, receivers: Receivers, faults: Faults, chance: Random) -> None:
        self._receivers = receivers
        self._faults = faults
        self._chance = chance

    async def check(self, webhook: Webhook) -> None:
        """All may be called."""

    async def registered(self, caller: str) -> Sequence[Webhook]:
        """Those of a caller."""
        webhook = REGISTERED.get(caller.partition(":")[2].partition("@")[0])
        return () if webhook is None else (webhook,)

    async def send(self, hook: TaskWebhook, event_id: str, body: bytes, *, seconds: float) -> Reply:
        """Send an event; it may fail before it has arrived, or after that."""
        strikes, chance = self._faults.strikes, self._chance
        if strikes("delay", chance, 0.1):
            await asyncio.sleep(min(seconds, chance.uniform(0, 20)))
        if strikes("throttle", chance, 0.05) or (self._is_down(hook) and strikes("throttle", chance, 1.0)):
            return Reply(503, "down", retry_after=chance.choice((None, 3.0)))
        self._receivers.take(hook, event_id, body)
        if strikes("duplicate", chance, 0.05):
            self._receivers.take(hook, event_id, body)
        if strikes("throttle", chance, 0.05):
            return Reply(None, "no answer")
        return Reply(GONE, "gone") if strikes("throttle", chance, 0.01) else Reply(204)

    def _is_down(self, hook: TaskWebhook) -> bool:
        return (asyncio.get_running_loop().time() + zlib.crc32(hook.url.encode())) % PERIOD < DOWN
