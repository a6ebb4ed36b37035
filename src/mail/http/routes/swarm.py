"""The swarm that the server runs: look at it, dump it, or replace it."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from pydantic import Field

from mail.core.task.audit import Act
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError, Forbidden, SwarmFixed, SwarmInvalid
from mail.http.access import Admin, AdminOrUser
from mail.http.audit import audited, refuse_session
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.service import service_of
from mail.swarms_json.current import CurrentSwarm
from mail.swarms_json.secrets import without_secrets


class AgentInfo(Answered):
    """An agent as callers see it."""

    name: str
    description: str = Field(description="What it does; empty if the swarm doesn't say.")
    comm_targets: list[str] = Field(
        description="The agents that it may write to; `agent@swarm` in other swarms."
    )
    actions: list[str] = Field(description="The actions that it may call.")
    mcp_tools: list[str] = Field(
        description="The tools of its MCP servers, as far as this process has listed them."
    )
    enable_entrypoint: bool = Field(description="Whether callers may write to it.")
    enable_interswarm: bool = Field(description="Whether it may write to other swarms.")
    can_complete_tasks: bool
    copies: int = Field(
        description="How many requests it works on at once, each with a history of its own; 0 for one after the other."
    )
    model: str | None = Field(
        description="Its language model, by its name in litellm; null if it has none, or if its function doesn't "
        "name it."
    )
    mcp_servers: list[str] = Field(
        description="The MCP servers whose tools it may call as well, by the names that the swarm gives them."
    )
    exclude_tools: list[str] = Field(description="The MAIL tools that it may not call.")
    system_prompt: str | None = Field(
        default=None,
        description="With `prompts`: its system prompt, without what looks like a secret; null if it has none, or if "
        "its function doesn't show it.",
    )


class ActionInfo(Answered):
    """An action as callers see it."""

    name: str
    description: str
    parameters: dict[str, Any] | None = Field(
        description="The JSON Schema of its arguments, without what looks like a secret, if its calls may need "
        "approval; else null."
    )
    breakpoint: bool = Field(
        description="Whether the task pauses at it until the caller provides its result."
    )
    needs_approval: bool = Field(
        description="Whether a person must approve its calls, or some of them, before they run."
    )


class SwarmAgents(Answered):
    """The swarm as its callers see it."""

    name: str
    version: str
    description: str
    entrypoint: str = Field(description="The agent that gets messages without an entrypoint.")
    agents: list[AgentInfo]
    actions: list[ActionInfo]


class SwarmDump(Answered):
    """The swarm, which has been written to the log."""

    status: Literal["dumped"]
    swarm_name: str
    swarm: dict[str, Any] = Field(
        description="An entry of swarms.json, without values that look like secrets."
    )


class PostSwarmsLoad(Given):
    """A swarm to run."""

    swarm: str = Field(alias="json", description="The swarm, as the JSON text of an entry of swarms.json.")


class SwarmProblem(Answered):
    """What is wrong with a swarm."""

    path: str = Field(description="Where, such as `agents.0.name`; empty if that is not known.")
    problem: str


class SwarmChecked(Answered):
    """Whether a swarm could be loaded."""

    valid: bool
    problems: list[SwarmProblem]
    agents: list[str] = Field(description="The names of its agents, if it is valid.")


class SwarmLoaded(Answered):
    """The swarm runs from now on."""

    status: Literal["success"]
    swarm_name: str


router = make_router("swarms")
_load_body = JSONBody(PostSwarmsLoad)


@router.get("/swarm", summary="Describe the swarm", **answers(SwarmAgents, 400))
async def get_swarm(
    request: Request,
    caller: AdminOrUser,
    prompts: Annotated[
        bool, Query(description="Whether to include system prompts. Only for admins.")
    ] = False,
) -> JSON:
    """Return the agents with their models, tools and recipients, without other settings."""
    if prompts and caller.role != "admin":
        raise Forbidden("only admins can see system prompts; leave out `prompts`")
    service = service_of(request)
    await service.refresh()
    return JSON(_describe(service.runtime.swarm, system_prompts=prompts))


def _describe(swarm: SwarmCore, *, system_prompts: bool) -> dict[str, object]:
    return {
        "name": swarm.name,
        "version": swarm.version,
        "description": swarm.description,
        "entrypoint": swarm.entrypoint,
        "agents": [
            {
                "name": name,
                "description": agent.description,
                "comm_targets": list(agent.comm_targets),
                "actions": list(agent.actions),
                "mcp_tools": [] if agent.tool_source is None else list(agent.tool_source.known().actions),
                "enable_entrypoint": agent.enable_entrypoint,
                "enable_interswarm": agent.enable_interswarm,
                "can_complete_tasks": agent.can_complete_tasks,
                "copies": agent.copies,
                "model": agent.model,
                "mcp_servers": list(agent.mcp_servers),
                "exclude_tools": sorted(agent.exclude_tools),
                **(without_secrets({"system_prompt": agent.system_prompt}) if system_prompts else {}),
            }
            for name, agent in swarm.agents.items()
        ],
        "actions": [
            {
                "name": action.name,
                "description": action.description,
                "parameters": None
                if action.needs_approval is False
                else without_secrets({"parameters": action.parameters})["parameters"],
                "breakpoint": action.name in swarm.breakpoint_tools,
                "needs_approval": action.needs_approval is not False,
            }
            for action in swarm.actions.values()
        ],
    }


@router.get("/swarms/dump", summary="Write the swarm to the log", **answers(SwarmDump, 404))
async def dump_swarm(request: Request, caller: Admin) -> JSON:
    """Log the running swarm, without values that look like secrets, and return it. Only for admins."""
    served = served_swarm(request)
    await served.refresh()
    async with audited(request, caller, Act.DUMP_SWARM, served.entry.name):
        swarm = served.dump()
    return JSON({"status": "dumped", "swarm_name": served.entry.name, "swarm": swarm})


@router.post("/swarms/check", summary="Check a swarm", **answers(SwarmChecked, 404))
async def check_swarm(
    request: Request, caller: Admin, body: Annotated[PostSwarmsLoad, Depends(_load_body)]
) -> JSON:
    """Return what would keep `POST /swarms/load` from loading a swarm; this changes nothing. Only for admins.

    The modules that the swarm refers to are imported, as for loading. Models and keys are not checked: `mail check`
    does that.
    """
    try:
        entry, _ = await served_swarm(request).check(body.swarm)
    except SwarmInvalid as error:
        found = [{"path": path, "problem": problem} for path, problem in error.problems]
    except ConfigurationError as error:
        found = [{"path": "", "problem": error.detail}]
    else:
        return JSON({"valid": True, "problems": [], "agents": [agent.name for agent in entry.agents]})
    return JSON({"valid": False, "problems": found, "agents": []})


@router.post("/swarms/load", summary="Replace the running swarm", **answers(SwarmLoaded, 404))
async def load_swarm(
    request: Request, caller: Admin, body: Annotated[PostSwarmsLoad, Depends(_load_body)]
) -> JSON:
    """Replace the swarm with another version; running tasks do what its `on_update` says. Only for admins.

    It may refer to modules that the server's settings allow, and to public URLs. A browser's session can't load one.
    """
    async with audited(request, caller, Act.LOAD_SWARM) as line:
        refuse_session(caller, "mail client, and in it: swarm-load-from-json @FILE")
        entry = await served_swarm(request).load(body.swarm)
        line.on = f"{entry.name} {entry.version}".strip()
    return JSON({"status": "success", "swarm_name": entry.name})


def served_swarm(request: Request) -> CurrentSwarm:
    """Return the swarm that can be dumped and replaced. Raises SwarmFixed if there is none."""
    served = service_of(request).served
    if served is None:
        raise SwarmFixed
    return served
