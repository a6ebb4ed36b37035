"""Versions of a swarm: its specification as data, kept once under its digest as long as tasks refer to it.

A specification says what tasks are run by: of each agent its model, system prompt, tools and options, and the limits of
the swarm. It has no code: functions bind by their names to the code that runs.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from zlib import compress, decompress, error

from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.values import value
from mail.core.task.swarm import SwarmCore, digest_of


@value
class AgentVersion:
    """What an agent is given in its turns by one version of its swarm.

    Attributes:
        model: the name of its model; None for an agent function without one.
        system_prompt: its system prompt; None for an agent function without one.
        tools: the declarations of its tools, besides those that a turn adds.
        options: the parameters of its factory, without secrets.
        has_more_tools: whether it also gets tools of MCP servers, which only a turn looks up.
    """

    model: str | None
    system_prompt: str | None
    tools: list[dict[str, Any]]
    tool_format: ToolFormat
    options: Mapping[str, Any]
    has_more_tools: bool


@value
class SwarmVersion:
    """A version of a swarm.

    Attributes:
        name: the swarm's own name for it.
        code: what the swarm says about the version of its code; empty if it says nothing.
        entry: the entry of swarms.json that it was built from, without secrets; None if it was built in Python.
        is_loaded: whether an admin has loaded that entry over HTTP.
    """

    digest: str
    name: str
    code: str
    agents: Mapping[str, AgentVersion]
    entry: Mapping[str, Any] | None = None
    is_loaded: bool = False


def version_of(swarm: SwarmCore) -> SwarmVersion:
    """Return the version of a swarm that runs."""
    return read_specification(swarm.specify())


def read_specification(text: str) -> SwarmVersion:
    """Return the version with this specification (`SwarmCore.specify`)."""
    found = json.loads(text)
    return SwarmVersion(
        digest_of(text),
        found["version"],
        found["code"],
        {
            name: AgentVersion(
                agent["model"],
                agent["system"],
                agent["tools"],
                agent["tool_format"],
                agent["options"],
                agent["has_more_tools"],
            )
            for name, agent in found["agents"].items()
        },
        found["entry"],
        found["is_loaded"],
    )


def pack(specification: str) -> str:
    """Return a specification as it is stored: its agents share most of their tools, so it shrinks to a tenth."""
    return b64encode(compress(specification.encode(), 9)).decode()


def unpack(stored: str) -> str:
    """Return a specification that was stored. Raises ValueError."""
    try:
        return decompress(b64decode(stored)).decode()
    except error as problem:
        raise ValueError(str(problem)) from problem
