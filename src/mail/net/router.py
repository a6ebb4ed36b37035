"""Delivery of mail to other swarms over HTTP."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import ValidationError

from mail.core.protocol.address import (
    MAILAddress,
    Principal,
    create_agent_address,
    create_system_address,
    join_agent_address,
    parse_agent_address,
)
from mail.core.protocol.awaitables import Flag
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.compose import compose_message, read_message
from mail.core.protocol.error_text import explain
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILBroadcast, MAILInterrupt, MAILMessage
from mail.core.protocol.traceparent import TRACEPARENT, traceparent_in
from mail.core.task.files import FileRef
from mail.core.task.interswarm import Peer, PeerRecord, RemoteState
from mail.core.task.ports import ReadFile
from mail.errors import (
    BadRequest,
    PeerError,
    PeerRefused,
    PeerUnavailable,
    PeerUnreachable,
    StoreUnavailable,
    Subject,
)
from mail.net.http import Target
from mail.net.peers import Registry
from mail.net.registration import target_of
from mail.net.secrets import variable_in

if TYPE_CHECKING:
    from mail.net.a2a import RemoteAgent


def destinations(message: MAILMessage, local: str) -> dict[str | None, list[MAILAddress]]:
    """Return the recipients by swarm, with None for local ones."""
    found: dict[str | None, list[MAILAddress]] = {}
    for recipient in message.message.recipients:
        swarm = None
        if recipient.address_type == "agent":
            swarm = parse_agent_address(recipient.address)[1]
        found.setdefault(None if swarm == local else swarm, []).append(recipient)
    return found


def address_to(
    message: MAILMessage, recipients: Sequence[MAILAddress], swarm: str | None, local: str
) -> MAILMessage:
    """Return the message for its recipients in one swarm, or with None for the local ones."""
    payload = message.message
    if swarm is None:
        sender, sender_swarm = payload.sender, payload.sender_swarm
        recipients = [_without_swarm(recipient) for recipient in recipients]
    else:
        sender, sender_swarm = _with_swarm(payload.sender, local), local
    target = swarm or local
    addressed: dict[str, Any] = {"recipient": recipients[0], "recipient_swarm": target}
    if isinstance(payload, MAILBroadcast | MAILInterrupt):
        addressed = {"recipients": tuple(recipients), "recipient_swarms": (target,)}
    routed = type(payload)(**{**payload, "sender": sender, "sender_swarm": sender_swarm, **addressed})
    return MAILMessage(id=message.id, timestamp=message.timestamp, msg_type=message.msg_type, message=routed)


def compose_wrapper(
    message: MAILMessage, local: str, swarm: str, owner: str, contributors: Sequence[str], clock: Clock
) -> MAILInterswarmMessage:
    """Return the message in its interswarm wrapper. Raises BadRequest for invalid principals."""
    try:
        return MAILInterswarmMessage(
            message_id=message.id,
            source_swarm=local,
            target_swarm=swarm,
            timestamp=clock.now().isoformat(),
            payload=message.message,
            msg_type=message.msg_type,
            task_owner=owner,
            task_contributors=tuple(dict.fromkeys((owner, *contributors))),
            auth_token="",
            metadata={},
        )
    except (ValidationError, TypeError) as error:
        raise BadRequest(f"the message can't be sent to swarm {swarm!r}: {error}") from error


def _with_swarm(address: MAILAddress, swarm: str) -> MAILAddress:
    agent, given = parse_agent_address(address.address)
    if address.address_type != "agent" or given is not None:
        return address
    return create_agent_address(join_agent_address(agent, swarm))


def _without_swarm(address: MAILAddress) -> MAILAddress:
    if address.address_type != "agent":
        return address
    return create_agent_address(parse_agent_address(address.address)[0])


def shared_path(file: FileRef) -> str:
    """Return the path at which others fetch a file by its link."""
    return f"/files/shared/{quote(file.link, safe='')}"


MessageHandler = Callable[[MAILMessage], Awaitable[MAILMessage | None]]

ANSWER_SECONDS = 3600.0
"""Timeout of the answer to a person's message, in seconds."""

ANY_TYPE = "*"
"""The message type of the fallback handler."""

logger = logging.getLogger(__name__)


class InterswarmRouter:
    """`mail.core.task.ports.Peers` over HTTP. All requests go through the one client of the registry.

    A program without an engine can route whole messages with `route_message`, and handles those to its own agents with
    `register_message_handler`.

    Args:
        reads_tokens: whether this process can read the tokens of the registry; a function that only takes mail can't.
    """

    def __init__(
        self,
        swarm_registry: Registry,
        local_swarm_name: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        reads_tokens: bool = True,
    ) -> None:
        self.swarm_registry = swarm_registry
        self._reads_tokens = reads_tokens
        self.local_swarm_name = local_swarm_name
        self._clock = clock
        self._handlers: dict[str, MessageHandler] = {}
        self._is_running = False

    # ------------------------------------------------------------------------------------------ lifecycle

    async def start(self) -> None:
        """Load the registry, and begin the health checks. Raises ConfigurationError."""
        if not self._is_running:
            await self.swarm_registry.start()
            await self.swarm_registry.start_health_checks()
            self._is_running = True

    async def stop(self) -> None:
        """End the health checks, delete the volatile entries, and close the connections."""
        if self._is_running:
            self._is_running = False
            await self.swarm_registry.stop()
        else:
            await self.swarm_registry.http.aclose()

    def is_running(self) -> Flag:
        """Return whether it was started and not stopped; may be awaited. Deliveries work in either case."""
        return Flag(self._is_running)

    # ----------------------------------------------------------------------------------------- for the engine

    async def deliver(
        self,
        message: MAILInterswarmMessage,
        *,
        back: bool,
        known: Peer | None = None,
        read: ReadFile | None = None,
    ) -> str | RemoteState | None:
        """Deliver a message to another swarm; see `mail.core.task.ports.Peers`."""
        name = message.target_swarm
        peer, bearer = await self._authorized(name, otherwise=message.auth_token)
        traceparent = traceparent_in(message.payload.routing_info)
        try:
            if peer.kind == "a2a":
                return await self._agent(peer, bearer).deliver(message, known, read)
            answer = await self.swarm_registry.http.request(
                "POST",
                target_of(peer),
                "/interswarm/back" if back else "/interswarm/forward",
                bearer=bearer,
                body={"message": message.as_json()},
                headers={TRACEPARENT: traceparent} if traceparent else {},
            )
            answer.raise_for_status(f"swarm {name}", bearer)
        except PeerError as error:
            failure = type(error)(f"swarm {name!r}: {error.detail}")
            if isinstance(failure, PeerUnreachable):
                failure.last_answer = self.swarm_registry.last_answer(name)
            raise failure from error
        return _runner(answer.json())

    async def poll(self, swarm: str, task_id: str) -> RemoteState:
        """Return the state of a task at an agent; see `mail.core.task.ports.Peers`."""
        return await self._agent(*await self._authorized(swarm)).poll(task_id)

    async def cancel(self, swarm: str, task_id: str) -> None:
        """Cancel a task at an agent; see `mail.core.task.ports.Peers`."""
        await self._agent(*await self._authorized(swarm)).cancel(task_id)

    def _agent(self, peer: PeerRecord, bearer: str) -> "RemoteAgent":
        from mail.net.a2a import RemoteAgent

        def link(file: FileRef) -> str:
            here = self.swarm_registry.local_base_url
            return here and here + shared_path(file)

        return RemoteAgent(self.swarm_registry.http, peer, bearer, link)

    async def origin_of(self, swarm: str) -> tuple[str, str]:
        """Return where files of a swarm are fetched; see `mail.core.task.ports.Peers`."""
        peer = await self.swarm_registry.find(swarm)
        if peer is None:
            return "", ""
        target = target_of(peer)
        return target.base_url, target.region or ""

    async def fetch_file(self, file: FileRef) -> bytes:
        """Return a file of another swarm; see `mail.core.task.ports.Peers`."""
        if not file.origin:
            raise PeerRefused(f"swarm {file.swarm!r} was not known here when the message came")
        target = Target(file.origin, "aws_iam" if file.region else "bearer", file.region or None)
        answer = await self.swarm_registry.http.get(target, shared_path(file), max_bytes=file.size)
        answer.raise_for_status(f"swarm {file.swarm}")
        if len(answer.body) > file.size:
            raise PeerRefused(f"the file is larger than {file.size} bytes")
        return answer.body

    async def _authorized(
        self, swarm: str, *, given: str | None = None, otherwise: str | None = None
    ) -> tuple[PeerRecord, str]:
        """Return a swarm's entry and the token for it: the one `given`, that of the registry, or the other one."""
        peer = await self._find(swarm)
        if peer is None:
            raise PeerRefused(f"swarm {swarm!r} is not known here")
        try:
            bearer = given or await self.swarm_registry.token_for(peer) or otherwise
        except StoreUnavailable as error:
            raise PeerUnavailable(f"swarm {swarm!r}: its token can't be read now") from error
        if not bearer and peer.kind == "mail":
            raise PeerRefused(f"authentication token missing for swarm '{swarm}'")
        return peer, bearer or ""

    async def _find(self, swarm: str) -> PeerRecord | None:
        try:
            return await self.swarm_registry.find(swarm)
        except StoreUnavailable as error:
            raise PeerUnavailable(f"swarm {swarm!r}: the registry can't be read now") from error

    async def known(self) -> Sequence[str]:
        """Return the names of all known swarms."""
        return await self.swarm_registry.names()

    async def caller_ids(self, swarm: str) -> Sequence[str]:
        """Return the ids of the tokens with which a swarm may call this server; see `mail.core.task.ports.Peers`."""
        return await self.swarm_registry.caller_ids(swarm)

    async def metadata_of(self, swarm: str) -> Mapping[str, Any]:
        """Return the metadata with which a MAIL server is registered; none for others."""
        peer = await self.swarm_registry.find(swarm)
        return peer.metadata if peer is not None and peer.kind == "mail" else {}

    async def call(self, swarm: str, path: str, body: object) -> Any:
        """Post JSON to a swarm, and return its answer. Raises PeerRefused and PeerUnavailable."""
        peer, bearer = await self._authorized(swarm)
        answer = await self.swarm_registry.http.request(
            "POST", target_of(peer), path, bearer=bearer, body=body
        )
        answer.raise_for_status(f"swarm {swarm}", bearer)
        return answer.json()

    async def obstacle(self, swarm: str) -> str:
        """Return why mail of a swarm can't be answered; see `mail.core.task.ports.Peers`."""
        here = self.local_swarm_name
        peer = await self.swarm_registry.find(swarm)
        if peer is None:
            return f"{swarm!r} is not registered at {here!r} (POST /swarms)"
        if peer.kind == "a2a":
            return f"{swarm!r} is registered at {here!r} as an agent that is called by A2A, and sends no mail"
        if not self.swarm_registry.may_call(peer):
            return (
                f"{peer.base_url} is not public; to allow it, set allow_private_addresses in [server.interswarm] "
                f"of {here!r}"
            )
        try:
            has_token = not self._reads_tokens or await self.swarm_registry.token_for(peer)
        except StoreUnavailable:
            return ""
        return "" if has_token else f"{here!r} has no token for it: set {variable_in(peer.auth_token)} there"

    async def discover(self, urls: Sequence[str]) -> str:
        """Register the public swarms that servers at these URLs run or list; return the result as text for an agent."""
        return str(await self.swarm_registry.discover_swarms(urls))

    # -------------------------------------------------------------------------------------- for other programs

    def register_message_handler(self, message_type: str, handler: MessageHandler) -> None:
        """Set the handler of messages of a type to local agents; `*` handles all other types."""
        self._handlers[message_type] = handler

    async def route_message(
        self, message: MAILMessage | Mapping[str, Any], *, owner: str | None = None
    ) -> MAILMessage:
        """Deliver a message to its recipients: local ones by the handler of its type, remote ones to their swarms.

        Returns the local handler's response, or the message as it was sent. If a delivery to a swarm fails, returns a
        system message to the sender with the reason. `owner` is the principal that owns the task; the default is the
        sender if it is a user or admin, else this swarm.

        Raises BadRequest if there are local recipients but no handler for the message's type.
        """
        answer = message = read_message(message)
        failed: MAILMessage | None = None
        for swarm, recipients in destinations(message, self.local_swarm_name).items():
            if swarm is None:
                answer = await self._route_to_local_agent(self._create_local_message(message, recipients))
                continue
            remote = self._create_remote_message(message, recipients, swarm)
            answer = await self._route_to_remote_swarm(remote, swarm, owner or self._owner(message))
            if answer is not remote:
                failed = answer
        return failed or answer

    async def post_interswarm_user_message(
        self, message: MAILInterswarmMessage | Mapping[str, Any]
    ) -> MAILMessage:
        """Send a person's message to another swarm's `/interswarm/message`, and return the answer.

        The request carries the message's `auth_token`, the person's key there, or else the registry's token. If there
        is no answer, returns a system message to the sender with the reason. Raises BadRequest for an invalid message.
        """
        try:
            wrapped = MAILInterswarmMessage.model_validate(message)
        except ValidationError as error:
            raise BadRequest(f"the message is not valid: {explain(error)}") from error
        sent = MAILMessage(
            id=self._clock.new_id(),
            timestamp=wrapped.timestamp,
            msg_type=wrapped.msg_type,
            message=wrapped.payload,
        )
        try:
            return await self._ask_swarm(wrapped)
        except PeerError as error:
            logger.warning("message %s: %s", wrapped.message_id, error.detail)
            return self._system_router_message(sent, error.detail)

    async def _ask_swarm(self, message: MAILInterswarmMessage) -> MAILMessage:
        name, payload = message.target_swarm, message.payload
        peer, bearer = await self._authorized(name, given=message.auth_token)
        body = {
            "user_token": bearer,
            "subject": payload.subject,
            "body": payload.body,
            "targets": [_with_swarm(recipient, name).address for recipient in payload.recipients],
            "msg_type": "broadcast" if isinstance(payload, MAILBroadcast) else "request",
            "task_id": payload.task_id,
            "routing_info": payload.routing_info or {},
        }
        answer = await self.swarm_registry.http.request(
            "POST",
            target_of(peer),
            "/interswarm/message",
            bearer=bearer,
            body=body,
            seconds=ANSWER_SECONDS,
        )
        answer.raise_for_status(f"swarm {name}", bearer)
        given = answer.json()
        try:
            return MAILMessage.model_validate(given["response"])
        except (KeyError, TypeError, ValidationError) as error:
            raise PeerRefused(f"swarm {name!r} gave no answer to task {payload.task_id!r}") from error

    async def _route_to_local_agent(self, message: MAILMessage) -> MAILMessage:
        handler = self._handlers.get(message.msg_type) or self._handlers.get(ANY_TYPE)
        if handler is None:
            raise BadRequest(
                f"no handler is registered for messages of type {message.msg_type!r} to local agents"
            )
        return await handler(message) or message

    async def _route_to_remote_swarm(self, message: MAILMessage, swarm: str, owner: str) -> MAILMessage:
        """Deliver a message to one swarm; return it, or a system message to its sender if that fails."""
        contributors = (message.message.routing_info or {}).get("task_contributors") or ()
        try:
            wrapped = compose_wrapper(message, self.local_swarm_name, swarm, owner, contributors, self._clock)
            back = any(Principal.parse(each).swarm == swarm for each in wrapped.task_contributors)
            await self.deliver(wrapped, back=back)
        except (BadRequest, PeerError) as error:
            logger.warning("message %s: %s", message.id, error.detail)
            return self._system_router_message(message, error.detail)
        return message

    def _create_local_message(self, message: MAILMessage, recipients: Sequence[Any]) -> MAILMessage:
        """Return the message for its local recipients only."""
        return address_to(message, recipients, None, self.local_swarm_name)

    def _create_remote_message(
        self, message: MAILMessage, recipients: Sequence[Any], swarm: str
    ) -> MAILMessage:
        """Return the message for its recipients in another swarm only, with a sender `agent@swarm`."""
        return address_to(message, recipients, swarm, self.local_swarm_name)

    def _system_router_message(self, message: MAILMessage, reason: str) -> MAILMessage:
        """Return a system message to the sender with the reason of a failed delivery."""
        return compose_message(
            "response",
            task_id=message.task_id,
            sender=create_system_address(self.local_swarm_name),
            recipients=[_without_swarm(message.sender)],
            subject=Subject.RUNTIME_ERROR,
            body=f"your message {message.message.subject!r} could not be delivered: {reason}",
            clock=self._clock,
            request_id=message.message.get("request_id"),
        )

    def _owner(self, message: MAILMessage) -> str:
        sender = message.sender
        if sender.is_person:
            return f"{sender.address_type}:{sender.address}@{self.local_swarm_name}"
        return f"swarm:{self.local_swarm_name}@{self.local_swarm_name}"


def _runner(answer: Any) -> str | None:
    """Return the principal under which a peer runs the task (`local_runner`), if its response names a valid one."""
    given = answer.get("local_runner") if isinstance(answer, dict) else None
    try:
        return str(Principal.parse(given)) if isinstance(given, str) else None
    except BadRequest:
        return None
