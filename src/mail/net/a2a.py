"""Agents that are called by A2A 1.0: their cards, and messages to them as tasks there (JSON-RPC).

A request is one message: its id, by which the agent knows a repetition, is that of the MAIL message. What these agents
answer is the work of strangers: it is bounded, and nothing in it makes this server call another host.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from mail.core.decisions.interswarm import BUDGET_LEFT, STEPS_LEFT
from mail.core.decisions.receive import is_end
from mail.core.protocol.address import EVERYONE, parse_agent_address
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.traceparent import TRACEPARENT, traceparent_in
from mail.core.task.files import MAX_FILE_BYTES, MAX_FILES, File, FileRef, files_in
from mail.core.task.interswarm import Peer, PeerRecord, RemoteState, RemoteStatus
from mail.core.task.ports import ReadFile
from mail.errors import PeerRefused, PeerUnavailable
from mail.net.http import PROBE_SECONDS, Answer, PeerHTTP, Target
from mail.net.types import TEXT_LENGTH, SwarmInfo

VERSION = "1.0"
BINDING = "JSONRPC"

MAX_BYTES = 8 * 1024 * 1024
"""Bytes of an answer that are read, with the files in it."""

MAX_INLINE_BYTES = 1024 * 1024
"""Bytes of files that are sent inside of a message; the agent fetches the rest by their URLs."""

MAX_TEXT = 200_000
"""Characters of an answer that are passed on."""

MAX_ID = 256
"""Characters of an id that an agent gives to its tasks."""

STATES = {
    "TASK_STATE_SUBMITTED": RemoteStatus.WORKING,
    "TASK_STATE_WORKING": RemoteStatus.WORKING,
    "TASK_STATE_INPUT_REQUIRED": RemoteStatus.ASKING,
    "TASK_STATE_AUTH_REQUIRED": RemoteStatus.ASKING,
    "TASK_STATE_COMPLETED": RemoteStatus.COMPLETED,
    "TASK_STATE_FAILED": RemoteStatus.FAILED,
    "TASK_STATE_CANCELED": RemoteStatus.FAILED,
    "TASK_STATE_REJECTED": RemoteStatus.FAILED,
}

TRANSIENT = frozenset({-32603})
"""Codes of errors that are worth a retry: an internal one."""

PROBLEMS: Mapping[int, str] = {
    -32001: "it knows no such task",
    -32002: "the task can't be cancelled",
    -32004: "it does not support that, or the task has ended",
    -32005: "it does not take this type of content",
    -32009: "it does not speak A2A 1.0",
    -32601: "it does not speak A2A 1.0",
    -32602: "it does not accept the message",
}
"""What codes mean. What the agent itself says about an error is only logged."""


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class _Interface(_Read):
    url: str
    protocol_binding: str = Field(alias="protocolBinding")
    protocol_version: str = Field(default="", alias="protocolVersion")


class _Skill(_Read):
    tags: tuple[str, ...] = ()


class _Card(_Read):
    """An agent card."""

    description: str = ""
    version: str = ""
    interfaces: tuple[_Interface, ...] = Field(default=(), alias="supportedInterfaces")
    skills: tuple[_Skill, ...] = ()


class _Part(_Read):
    """A part of a message or an artifact. Exactly one of the first four is given."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = None
    name: str = Field(default="", alias="filename")
    type: str = Field(default="", alias="mediaType")


class _Message(_Read):
    context: str = Field(default="", alias="contextId")
    parts: tuple[_Part, ...] = ()


class _Status(_Read):
    state: str = ""
    message: _Message | None = None


class _Task(_Read):
    id: str = Field(min_length=1, max_length=MAX_ID)
    context: str = Field(default="", alias="contextId", max_length=MAX_ID)
    status: _Status
    artifacts: tuple[_Message, ...] = ()


class _Sent(_Read):
    """The result of `SendMessage`: a task, or a message that is the whole answer."""

    task: _Task | None = None
    message: _Message | None = None


class AgentInfo(SwarmInfo):
    """The description of an agent, from its card."""

    interface: str

    @classmethod
    def of(cls, card_url: str, given: object) -> Self:
        """Read a card. Raises PeerRefused if it isn't one, or names no interface that can be called.

        The token goes only to the origin that was registered, whatever the card says.
        """
        card = _read(_Card, given, "the agent card")
        urls = [
            each.url
            for each in card.interfaces
            if each.protocol_binding.upper() == BINDING and each.protocol_version.startswith(VERSION)
        ]
        if not urls:
            raise PeerRefused(f"its card has no interface for A2A {VERSION} by {BINDING}")
        own = [url for url in urls if _origin(url) == _origin(card_url)]
        if not own:
            raise PeerRefused(
                f"its card sends requests to {urls[0][:200]!r}; an agent must be registered where it takes them"
            )
        tags = tuple(dict.fromkeys(tag for skill in card.skills for tag in skill.tags))
        return cls(
            name="", version=card.version, description=card.description, keywords=tags, interface=own[0]
        )


async def read_card(http: PeerHTTP, target: Target) -> tuple[AgentInfo, Answer]:
    """Request an agent's card. Raises PeerRefused, PeerUnavailable."""
    answer = await http.get(target, "", seconds=PROBE_SECONDS)
    answer.raise_for_status()
    return AgentInfo.of(target.base_url, answer.json()), answer


class RemoteAgent:
    """An agent that is called by A2A.

    Args:
        bearer: the token for it; empty if it needs none.
        link: returns the URL by which others can fetch a file; empty if this server doesn't know its own URL.
    """

    def __init__(self, http: PeerHTTP, peer: PeerRecord, bearer: str, link: Callable[[FileRef], str]) -> None:
        if not peer.interface:
            raise PeerUnavailable("its card has not been read yet")
        self._http = http
        self._name = peer.name
        self._bearer = bearer
        self._link = link
        self._target = Target.of(peer.interface, peer.auth, peer.metadata)

    async def deliver(
        self, message: MAILInterswarmMessage, known: Peer | None, read: ReadFile | None
    ) -> RemoteState | None:
        """Send a message, or cancel what the agent does if the message reports the end of the MAIL task."""
        known = known or Peer(agent="")
        if is_end(message):
            for task_id in dict.fromkeys(each.id for each in known.remote_tasks):
                await self.cancel(task_id)
            return None
        place = _place(message, known)
        traceparent = traceparent_in(message.payload.routing_info)
        result = await self._call(
            "SendMessage",
            {
                "message": {
                    "messageId": message.message_id,
                    "role": "ROLE_USER",
                    "parts": await self._parts(message, read),
                    "metadata": _metadata(message),
                    **place,
                },
                "configuration": {"returnImmediately": True, "historyLength": 0},
            },
            {TRACEPARENT: traceparent} if traceparent else {},
        )
        sent = _read(_Sent, result, "its answer")
        if sent.task is not None:
            if place.get("taskId", sent.task.id) != sent.task.id:
                raise PeerRefused(
                    "it has answered with another task than the one that the message belongs to"
                )
            return await self._state(sent.task)
        if sent.message is None:
            raise PeerRefused("its answer is neither a task nor a message")
        text, files = await self._content(sent.message.parts)
        context = sent.message.context[:MAX_ID]
        return RemoteState(id="", context=context, status=RemoteStatus.COMPLETED, text=text, files=files)

    async def poll(self, task_id: str) -> RemoteState:
        """Return the state of a task."""
        task = _read(_Task, await self._call("GetTask", {"id": task_id, "historyLength": 0}), "its task")
        if task.id != task_id:
            raise PeerRefused("it has answered with another task")
        return await self._state(task)

    async def cancel(self, task_id: str) -> None:
        """Cancel a task; one that has ended, or that the agent does not cancel, is left alone."""
        try:
            await self._call("CancelTask", {"id": task_id})
        except PeerRefused:
            return

    async def _call(self, method: str, params: object, headers: Mapping[str, str] | None = None) -> object:
        """Return the result of a method."""
        answer = await self._http.request(
            "POST",
            self._target,
            "",
            bearer=self._bearer or None,
            body={"jsonrpc": "2.0", "id": "1", "method": method, "params": params},
            headers={"A2A-Version": VERSION, **(headers or {})},
            max_bytes=MAX_BYTES,
        )
        answer.raise_for_status(f"agent {self._name}", self._bearer)
        given = answer.json()
        if not isinstance(given, dict):
            raise PeerRefused(f"its answer is not JSON, or has more than {MAX_BYTES} bytes")
        match given.get("error"):
            case None:
                return given.get("result")
            case {"code": int(code)}:
                problem = f"error {code}: {PROBLEMS.get(code, 'it does not say more')}"
                raise (PeerUnavailable if code in TRANSIENT else PeerRefused)(problem)
        raise PeerRefused("its answer is not one of JSON-RPC")

    async def _parts(self, message: MAILInterswarmMessage, read: ReadFile | None) -> list[dict[str, Any]]:
        """Return the text and the files of a message: the bytes of small files, and where to fetch the others."""
        parts: list[dict[str, Any]] = [{"text": message.payload.body, "mediaType": "text/plain"}]
        left = MAX_INLINE_BYTES
        for file in files_in(message.payload.routing_info):
            shown = {"filename": file.name, "mediaType": file.type}
            data = await read(file.id) if read is not None and file.size <= left else None
            if data is not None:
                left -= file.size
                parts.append({"raw": b64encode(data).decode(), **shown})
            elif file.link and (url := self._link(file)):
                parts.append({"url": url, **shown})
            else:
                parts.append({"text": f"[file {file.name} can't be sent]", "mediaType": "text/plain"})
        return parts

    async def _state(self, task: _Task) -> RemoteState:
        status = STATES.get(task.status.state)
        if status is None:
            raise PeerRefused(f"its task is in no known state: {task.status.state[:40]!r}")
        if status is RemoteStatus.WORKING:
            return RemoteState(id=task.id, context=task.context, status=status)
        said = () if task.status.message is None else task.status.message.parts
        made = [part for artifact in task.artifacts for part in artifact.parts]
        parts = made or said if status is RemoteStatus.COMPLETED else said
        text, files = await self._content(parts)
        return RemoteState(id=task.id, context=task.context, status=status, text=text, files=files)

    async def _content(self, parts: Sequence[_Part]) -> tuple[str, tuple[File, ...]]:
        """Return what parts say, and their files. URLs of other hosts are text, which agents may use by their tools."""
        texts, files, left = list[str](), list[File](), MAX_FILE_BYTES
        for part in parts:
            if part.text is not None:
                texts.append(part.text)
            elif part.raw is not None or part.url is not None:
                data = await self._bytes(part, left) if len(files) < MAX_FILES else None
                if data:
                    left -= len(data)
                    files.append(File(data, part.name, part.type))
                else:
                    about = ", ".join(filter(None, (part.name[:TEXT_LENGTH], part.type[:TEXT_LENGTH])))
                    texts.append(f"[file {about}: {(part.url or 'not readable')[:TEXT_LENGTH]}]")
            elif part.data is not None:
                texts.append(to_json(part.data).decode())
        text = "\n\n".join(filter(None, texts)).encode(errors="replace").decode()
        if len(text) > MAX_TEXT:
            text = f"{text[:MAX_TEXT]}\n[{len(text) - MAX_TEXT} more characters are left out]"
        return text or ("(files only)" if files else "(no text)"), tuple(files)

    async def _bytes(self, part: _Part, left: int) -> bytes | None:
        """Return the bytes of a part, fetched from the agent's own origin if need be; None for what can't be read."""
        if part.url is None:
            text = (part.raw or "").replace("-", "+").replace("_", "/")
            try:
                data = b64decode(text + "=" * (-len(text) % 4), validate=True)
            except (NotBase64, ValueError):
                return None
            return data if len(data) <= left else None
        if _origin(part.url) != _origin(self._target.base_url):
            return None
        try:
            answer = await self._http.get(Target(part.url), "", max_bytes=left)
        except PeerRefused:
            return None
        return answer.body if answer.is_success and len(answer.body) <= left else None


def _read[Shape: BaseModel](shape: type[Shape], given: object, what: str) -> Shape:
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        raise PeerRefused(f"{what} can't be read: it is not as A2A {VERSION} says") from error


def _origin(url: str) -> tuple[str, str, int | None]:
    """Return the scheme, host and port of a URL; of one that is not valid, nothing that another URL has."""
    try:
        split = urlsplit(url)
        port = split.port or {"http": 80, "https": 443}.get(split.scheme)
    except ValueError:
        return "", url, None
    return split.scheme, "" if "@" in split.netloc else split.hostname or "", port


def _place(message: MAILInterswarmMessage, known: Peer) -> dict[str, str]:
    """Return the task or the context that a message belongs to.

    It answers the question of a task that the same agent has begun; an interrupt joins such a task while it works.
    Otherwise it continues the last conversation, unless that is busy: agents join the tasks of one conversation.
    """
    sender = message.payload.sender
    asked_by = parse_agent_address(sender.address)[0] if sender.address_type == "agent" else ""
    for each in reversed(known.remote_tasks):
        if each.asked_by == asked_by and (not each.poll_at or message.msg_type == "interrupt"):
            return {"taskId": each.id, **({"contextId": each.context} if each.context else {})}
    is_busy = any(each.context == known.context for each in known.remote_tasks)
    return {"contextId": known.context} if known.context and not is_busy else {}


def _metadata(message: MAILInterswarmMessage) -> dict[str, Any]:
    """Return what a MAIL server reads in the metadata of a message: the agent that it is for, and limits."""
    agent = parse_agent_address(message.payload.recipients[0].address)[0]
    given = message.payload.routing_info or {}
    limits = {name: given[name] for name in (STEPS_LEFT, BUDGET_LEFT) if name in given}
    return limits if agent == EVERYONE else {"entrypoint": agent, **limits}
