"""Several swarms in one process, whose mail goes from engine to engine without HTTP between them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from mail.core.engine.wiring import HOP_LIMIT
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.task.files import FileRef
from mail.core.task.interswarm import Peer, RemoteState
from mail.core.task.ports import ReadFile
from mail.core.task.swarm import SwarmCore
from mail.errors import MAILError, PeerRefused
from mail.testing.rig import Rig

Trouble = Callable[[MAILInterswarmMessage], Awaitable[None]]
"""Called before a message is handed over; raises PeerUnavailable or PeerRefused to keep it from arriving."""


class Swallow:
    """`mail.core.task.ports.Peers` that takes everything and does nothing with it.

    It knows all swarms but two, and one of them by a token with another id.
    """

    async def deliver(
        self,
        message: MAILInterswarmMessage,
        *,
        back: bool,
        known: Peer | None = None,
        read: ReadFile | None = None,
    ) -> str | RemoteState | None:
        return None

    async def poll(self, swarm: str, task_id: str) -> RemoteState:
        raise PeerRefused("it has no task")

    async def cancel(self, swarm: str, task_id: str) -> None:
        raise PeerRefused("it has no task")

    async def origin_of(self, swarm: str) -> tuple[str, str]:
        return "", ""

    async def fetch_file(self, file: FileRef) -> bytes:
        raise PeerRefused("it has no file")

    async def known(self) -> Sequence[str]:
        return ()

    async def caller_ids(self, swarm: str) -> Sequence[str]:
        known: dict[str, tuple[str, ...]] = {"stranger": (), "outsider": (), "renamed": ("other-key",)}
        return known.get(swarm, (swarm,))

    async def obstacle(self, swarm: str) -> str:
        return "" if await self.caller_ids(swarm) else "it is not registered here"

    async def discover(self, urls: Sequence[str]) -> str:
        return "nothing"


class Wire(Swallow):
    """`mail.core.task.ports.Peers` of one swarm in a federation."""

    def __init__(self, federation: "Federation", home: str) -> None:
        self._federation = federation
        self._home = home

    async def deliver(
        self,
        message: MAILInterswarmMessage,
        *,
        back: bool,
        known: Peer | None = None,
        read: ReadFile | None = None,
    ) -> str | RemoteState | None:
        return await self._federation.carry(self._home, message, back=back)

    async def origin_of(self, swarm: str) -> tuple[str, str]:
        return (f"https://{swarm}", "") if swarm in self._federation.rigs else ("", "")

    async def fetch_file(self, file: FileRef) -> bytes:
        files = self._federation.rigs[file.origin.removeprefix("https://")].runtime.caller_files
        instance, found = await files.follow(file.link)
        data = await files.read(instance, found.id)
        assert data is not None
        return data

    async def known(self) -> Sequence[str]:
        return [name for name in self._federation.rigs if name != self._home]

    async def caller_ids(self, swarm: str) -> Sequence[str]:
        return (swarm,) if swarm in self._federation.rigs else ()

    async def obstacle(self, swarm: str) -> str:
        return "" if swarm in self._federation.rigs else "it is not registered here"

    async def discover(self, urls: Sequence[str]) -> str:
        return f"found {len(urls)}"


class Federation:
    """Swarms that know each other.

    Attributes:
        sent: every message that was handed over, with whether it went back.
        taken: how often each `message_id` was answered with success.
        trouble: what befalls messages on their way.
        after: likewise, once they have arrived: the sender does not learn it.
        hop_limit: that of all swarms.
    """

    def __init__(self, *swarms: SwarmCore) -> None:
        self.rigs = {swarm.name: Rig(swarm) for swarm in swarms}
        self.sent: list[tuple[MAILInterswarmMessage, bool]] = []
        self.taken: Counter[str] = Counter()
        self.trouble: Trouble | None = None
        self.after: Trouble | None = None
        self.hop_limit = HOP_LIMIT
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for name, rig in self.rigs.items():
            await self._stack.enter_async_context(rig)
            rig.runtime.peers = Wire(self, name)
            rig.runtime.hop_limit = self.hop_limit
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def __getitem__(self, name: str) -> Rig:
        return self.rigs[name]

    async def carry(self, home: str, message: MAILInterswarmMessage, *, back: bool) -> str | None:
        """Hand a message over as HTTP would: what the other engine refuses is refused for good."""
        if self.trouble is not None:
            await self.trouble(message)
        target = self.rigs.get(message.target_swarm)
        if target is None:
            raise PeerRefused(f"swarm {message.target_swarm!r} is not known")
        copy = MAILInterswarmMessage.model_validate_json(message.model_dump_json())
        try:
            received = await target.runtime.receive(home, copy, back=back)
        except MAILError as error:
            raise PeerRefused(f"{error.http_status}: {error.detail}") from error
        self.sent.append((message, back))
        self.taken[message.message_id] += 1
        if self.after is not None:
            await self.after(message)
        return received.runner

    async def settle(self) -> None:
        """Return once nothing is under way anywhere."""
        async with asyncio.timeout(60):
            while any(rig.queue or rig.workers._at_work for rig in self.rigs.values()):
                for rig in self.rigs.values():
                    await rig.workers.idle()
