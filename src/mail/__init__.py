"""MAIL: swarms of agents that work by sending each other mail.

    from mail import Agent, Swarm

    lead = Agent("lead", "You answer questions.", model="openai/gpt-5-mini")
    print(Swarm(lead).ask("What is MAIL?"))

The public names are loaded on first use, so that `import mail` stays cheap.
"""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.api.actions import MAILAction as MAILAction
    from mail.api.actions import action as action
    from mail.api.agents import Agent as Agent
    from mail.api.agents import MAILAgent as MAILAgent
    from mail.api.agents import MAILAgentTemplate as MAILAgentTemplate
    from mail.api.answers import Answer as Answer
    from mail.api.facade import Swarm as Swarm
    from mail.api.guards import guard as guard
    from mail.api.runtime import MAILRuntime as MAILRuntime
    from mail.api.swarms import MAILSwarm as MAILSwarm
    from mail.api.swarms import MAILSwarmTemplate as MAILSwarmTemplate
    from mail.core.protocol import PROTOCOL_VERSION as PROTOCOL_VERSION
    from mail.core.protocol.address import MAILAddress as MAILAddress
    from mail.core.protocol.interswarm import MAILInterswarmMessage as MAILInterswarmMessage
    from mail.core.protocol.message import MAILBroadcast as MAILBroadcast
    from mail.core.protocol.message import MAILInterrupt as MAILInterrupt
    from mail.core.protocol.message import MAILMessage as MAILMessage
    from mail.core.protocol.message import MAILRequest as MAILRequest
    from mail.core.protocol.message import MAILResponse as MAILResponse
    from mail.core.protocol.tool_schemas import AgentToolCall as AgentToolCall
    from mail.core.task.approvals import Approval as Approval
    from mail.core.task.callbacks import LATER as LATER
    from mail.core.task.events import Event as Event
    from mail.core.task.files import File as File
    from mail.core.task.guards import ALLOW as ALLOW
    from mail.core.task.guards import Act as Act
    from mail.core.task.guards import AskPerson as AskPerson
    from mail.core.task.guards import Refuse as Refuse
    from mail.core.task.guards import Replace as Replace
    from mail.core.task.guards import Ruling as Ruling
    from mail.core.task.live import LiveEvent as LiveEvent
    from mail.core.turns.context import ActionContext as ActionContext
    from mail.errors import RetryLater as RetryLater

__version__ = "1.3.0"
"""The version of this package, which its distribution `mail-serverless` has as well."""

_HOMES = homes_of(
    {
        "mail.api.actions": "MAILAction action",
        "mail.api.agents": "Agent MAILAgent MAILAgentTemplate",
        "mail.api.answers": "Answer",
        "mail.api.facade": "Swarm",
        "mail.api.guards": "guard",
        "mail.api.runtime": "MAILRuntime",
        "mail.api.swarms": "MAILSwarm MAILSwarmTemplate",
        "mail.core.protocol": "PROTOCOL_VERSION",
        "mail.core.protocol.address": "MAILAddress",
        "mail.core.protocol.interswarm": "MAILInterswarmMessage",
        "mail.core.protocol.message": "MAILBroadcast MAILInterrupt MAILMessage MAILRequest MAILResponse",
        "mail.core.protocol.tool_schemas": "AgentToolCall",
        "mail.core.task.approvals": "Approval",
        "mail.core.task.callbacks": "LATER",
        "mail.core.task.events": "Event",
        "mail.core.task.files": "File",
        "mail.core.task.guards": "ALLOW Act AskPerson Refuse Replace Ruling",
        "mail.core.task.live": "LiveEvent",
        "mail.core.turns.context": "ActionContext",
        "mail.errors": "RetryLater",
    }
)

__all__ = list(_HOMES)
__all__ += ["__version__"]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
