"""`GET /swarm`: who is in the swarm, for those who write to it."""

from fastapi import APIRouter, Request
from pydantic import Field

from mail.core.task.swarm import AgentCore, SwarmCore
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON
from mail.http.openapi import PROTECTED, problems
from mail.http.schemas import Answered
from mail.http.service import service_of

router = APIRouter(tags=["swarms"])


class AgentInfo(Answered):
    """What callers may know of an agent."""

    name: str
    comm_targets: list[str] = Field(description="Whom it may write to; `agent@swarm` in other swarms.")
    actions: list[str] = Field(description="The actions that it may call.")
    enable_entrypoint: bool = Field(description="Whether callers may write to it.")
    enable_interswarm: bool = Field(description="Whether it may write to other swarms.")
    can_complete_tasks: bool


class ActionInfo(Answered):
    """What callers may know of an action."""

    name: str
    description: str
    breakpoint: bool = Field(description="Whether the task pauses at it until the caller gives its result.")


class SwarmAgents(Answered):
    """The swarm as its callers see it."""

    name: str
    version: str
    description: str
    entrypoint: str = Field(description="The agent that gets messages which name none.")
    agents: list[AgentInfo]
    actions: list[ActionInfo]


@router.get(
    "/swarm", summary="Who is in the swarm", response_model=SwarmAgents, responses=problems(*PROTECTED)
)
async def get_swarm(request: Request, caller: AdminOrUser) -> JSON:
    """The agents, whom they may write to, and what they can do: no prompts and no settings."""
    service = service_of(request)
    await service.refresh()
    return JSON(describe(service.runtime.swarm))


def describe(swarm: SwarmCore) -> dict[str, object]:
    """The fields of `SwarmAgents`."""
    return {
        "name": swarm.name,
        "version": swarm.version,
        "description": swarm.description,
        "entrypoint": swarm.entrypoint,
        "agents": [_agent(name, agent) for name, agent in swarm.agents.items()],
        "actions": [
            {
                "name": action.name,
                "description": action.description,
                "breakpoint": action.name in swarm.breakpoint_tools,
            }
            for action in swarm.actions.values()
        ],
    }


def _agent(name: str, agent: AgentCore) -> dict[str, object]:
    return {
        "name": name,
        "comm_targets": list(agent.comm_targets),
        "actions": list(agent.actions),
        "enable_entrypoint": agent.enable_entrypoint,
        "enable_interswarm": agent.enable_interswarm,
        "can_complete_tasks": agent.can_complete_tasks,
    }
