"""Versions of a swarm: its specification as data, kept once under its digest as long as tasks refer to it.

A specification says what tasks are run by: of each agent its model, system prompt, tools and options, and the limits of
the swarm. It has no code: functions bind by their names to the code that runs.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from zlib import compress, decompress, error

from mail.core.task.approvals import Approval
from mail.core.task.context import Context
from mail.core.task.swarm import ActionCore, AgentCore, AgentOutput, History, SwarmCore, ToolChoice, digest_of
from mail.errors import AgentUnavailable

ONLY_DATA = "only the specification of this version of the swarm is here, which runs nothing"


class KeptFunction:
    """The agent function of a specification, which can only be looked at."""

    def __init__(self, llm: str | None, system: str | None, tools: list[dict[str, Any]]) -> None:
        self.llm = llm
        self.system = system
        self.tools = tools

    async def __call__(self, _history: History, _choice: ToolChoice) -> AgentOutput:
        """Raise AgentUnavailable."""
        raise AgentUnavailable(ONLY_DATA)

    def offered_tools(self) -> list[dict[str, Any]]:
        """Return its tools."""
        return self.tools


def read_specification(text: str) -> SwarmCore:
    """Return the swarm of a specification (`SwarmCore.specify`), whose agents and actions can only be looked at.

    Raises ValueError, KeyError, TypeError or ConfigurationError for any other text.
    """
    found = json.loads(text)
    actions = {name: _action(settings) for name, settings in found.pop("actions").items()}
    agents = {name: _agent(settings) for name, settings in found.pop("agents").items()}
    kept_as = digest_of(text, is_draft=found.get("draft") is not None)
    return SwarmCore(agents=agents, actions=actions, kept_as=kept_as, **_known(SwarmCore, found))


def _agent(settings: dict[str, Any]) -> AgentCore:
    function, context = KeptFunction(**settings.pop("function")), settings.pop("context")
    known = _known(AgentCore, settings)
    return AgentCore(
        function=function, context=None if context is None else Context.model_validate(context), **known
    )


def _action(settings: dict[str, Any]) -> ActionCore:
    async def look(_arguments: dict[str, Any]) -> str:
        raise AgentUnavailable(ONLY_DATA)

    needs_approval = settings.pop("needs_approval") is not False  # a predicate decides
    rule = settings.pop("reviewers", None)
    return ActionCore(
        function=look,
        needs_approval=needs_approval,
        reviewers=None if rule is None else Approval.model_validate(rule, extra="ignore"),
        **_known(ActionCore, settings),
    )


_SETS = ("exclude_tools", "approve", "breakpoint_tools")


def _known(cls: type[ActionCore | AgentCore | SwarmCore], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that this version of MAIL knows."""
    names = {each.name for each in fields(cls) if each.init}
    return {
        name: frozenset(each) if name in _SETS and isinstance(each, list) else each
        for name, each in settings.items()
        if name in names and name != "guards"  # they judge nothing here
    }


def pack(specification: str) -> str:
    """Return a specification as it is stored: its agents share most of their tools, so it shrinks to a tenth."""
    return b64encode(compress(specification.encode(), 9)).decode()


def unpack(stored: str) -> str:
    """Return a specification that was stored. Raises ValueError."""
    try:
        return decompress(b64decode(stored)).decode()
    except error as problem:
        raise ValueError(str(problem)) from problem
