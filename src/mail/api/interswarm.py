"""The connection of an embedded swarm to other swarms."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from mail import bootstrap
from mail.api.embedded import EmbeddedSwarm
from mail.core.protocol.address import Principal, parse_agent_address
from mail.core.protocol.awaitables import Flag
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage
from mail.core.task.task import TaskKey
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.net import InterswarmRouter, SwarmRegistry

LOCAL_URL = "http://localhost:8000"
"""The default base URL of a swarm."""


class InterswarmLink:
    """The connection of a runtime to other swarms.

    Args:
        principal: the owner of the runtime's tasks.
        registry: the known swarms; by default one is created on `start`.
        on_message: called with messages that are routed to agents here.
    """

    def __init__(
        self,
        swarm: EmbeddedSwarm,
        principal: Principal,
        registry: "SwarmRegistry | None",
        on_message: Callable[[MAILMessage], Awaitable[None]],
    ) -> None:
        self.registry = registry
        self._swarm = swarm
        self._principal = principal
        self._on_message = on_message
        self._router: InterswarmRouter | None = None

    @property
    def is_running(self) -> Flag:
        """Whether the swarm is connected; may be awaited."""
        return Flag(self._router is not None and self._router.is_running())

    async def start(self) -> None:
        """Connect, so that mail to other swarms is delivered."""
        if self.registry is None:
            self.registry = bootstrap.interswarm_registry(self._principal.swarm, LOCAL_URL)
        if self._router is None:
            self._router = bootstrap.interswarm_router(self.registry)
            self._router.register_message_handler("*", self._on_message)
        await self._router.start()
        self._swarm.peers = self._router

    async def stop(self) -> None:
        """Disconnect; mail to other swarms is then returned to its senders."""
        self._swarm.peers = None
        if self._router is not None:
            await self._router.stop()

    async def close(self) -> None:
        """Close the connections of the registry."""
        if self.registry is not None:
            await self.registry.http.aclose()

    @property
    def router(self) -> "InterswarmRouter":
        """The router. Raises MAILError if the swarm is not connected."""
        if self._router is None or not self._router.is_running():
            raise MAILError("there is no connection to other swarms: await start_interswarm() first")
        return self._router

    async def route(self, message: MAILMessage) -> MAILMessage:
        """Send a message that belongs to no task here. Raises MAILError if the swarm is not connected."""
        return await self.router.route_message(message, owner=str(self._principal))

    async def receive(self, message: MAILMessage) -> bool:
        """Deliver a message from a swarm that participates in its task; return False for any other message."""
        sender, runtime = message.sender, self._swarm.engine
        source = parse_agent_address(sender.address)[1] if sender.address_type == "agent" else None
        task = await runtime.store.load(TaskKey(str(self._principal), message.task_id))
        if source is None or task is None or source not in task.peers:
            return False
        known = () if runtime.peers is None else await runtime.peers.caller_ids(source)
        wrapped = MAILInterswarmMessage(
            message_id=message.id,
            source_swarm=source,
            target_swarm=self._principal.swarm,
            timestamp=message.timestamp,
            task_owner=task.owner,
            task_contributors=task.contributors,
            msg_type=message.msg_type,
            payload=message.message,
        )
        await runtime.receive(known[0] if known else source, wrapped, back=True)
        return True
