"""An agent on a loopback port that is called by A2A: a server of the official SDK, with its own store of tasks.

What it does depends on the first word of a message:

    async with A2AAgent() as agent:
        await registry.register_swarm("partner", agent.card_url)
"""

import asyncio
from typing import Any, Self

from a2a.helpers.proto_helpers import get_message_text, new_raw_part, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette

from support.processes.http_server import QuickUvicorn

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


class _Partner(AgentExecutor):
    """Answers at once, later, with a question, with a file, with an error, or never."""

    def __init__(self, agent: "A2AAgent") -> None:
        self._agent = agent

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        self._agent.taken.append(message)
        text = get_message_text(message)
        word = text.split()[0]
        if word == "plain":
            await event_queue.enqueue_event(new_text_message("no task", context_id=context.context_id))
            return
        if context.current_task is None:
            await event_queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                    history=[message],
                )
            )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        match word:
            case "ask":
                await updater.requires_input(self._say(updater, "Which city?"))
                return
            case "fail":
                await updater.failed(self._say(updater, "out of order"))
                return
            case "wait":
                await self._agent.gate.wait()
        files = [part for part in message.parts if part.WhichOneof("content") != "text"]
        sizes = "".join(f" [{part.filename}, {len(part.raw)} bytes]" for part in files)
        answer = [new_text_part(f"partner: {text}{sizes}")]
        if word == "draw":
            answer.append(new_raw_part(PNG, media_type="image/png", filename="plot.png"))
        await updater.add_artifact(answer, name="answer")
        await updater.complete()

    def _say(self, updater: TaskUpdater, text: str) -> Message:
        return updater.new_agent_message([new_text_part(text)])

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        self._agent.cancelled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class A2AAgent:
    """The agent.

    Attributes:
        taken: the messages that it has got.
        cancelled: the ids of the tasks that it was to cancel.
        gate: lets tasks end that begin with the word `wait`.
    """

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.cancelled: list[str] = []
        self.gate = asyncio.Event()
        self.app = Starlette()

    async def __aenter__(self) -> Self:
        self._uvicorn = await QuickUvicorn(self.app).__aenter__()
        self.url = self._uvicorn.url
        self.card_url = f"{self.url}/.well-known/agent-card.json"
        card = AgentCard(
            name="Partner",
            description="It helps.",
            version="2",
            supported_interfaces=[
                AgentInterface(url=f"{self.url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
            ],
            capabilities=AgentCapabilities(streaming=True),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[AgentSkill(id="help", name="Help", description="It helps.", tags=["help", "plots"])],
        )
        handler = DefaultRequestHandler(_Partner(self), InMemoryTaskStore(), card)
        routes: list[Any] = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")]
        self.app.router.routes.extend(routes)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.gate.set()
        await self._uvicorn.__aexit__(*error)
