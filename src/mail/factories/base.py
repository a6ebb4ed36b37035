"""Agent functions: what they all have, those behind which litellm stands, and a factory of old."""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Sequence
from copy import copy, deepcopy
from typing import Any, Self, get_args

from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.task.client_tools import TURN_TOOLS, caller_tools
from mail.core.task.swarm import History, ToolChoice
from mail.errors import AgentUnavailable
from mail.factories.console import StreamPrinter, ignore
from mail.factories.history import remember_nothing
from mail.factories.model_call import call_model
from mail.factories.models import get_litellm, preload, traits_of
from mail.factories.request import ModelRequest
from mail.factories.retry import RetryPolicy
from mail.factories.tools import ToolLike, check_tools, mail_tools, make_tools

PROXY_VARIABLE = "LITELLM_PROXY_API_BASE"
PROXY_KEY_VARIABLE = "LITELLM_PROXY_API_KEY"

NO_KEY = "none"
"""Sent to a proxy where there is no key for it: with an empty one, litellm would send it a provider's key."""

AgentOutput = tuple[str | None, list[AgentToolCall]]


class MAILAgentFunction(ABC):
    """An agent function with its place in the swarm. Building it is the factory, calling it the agent's turn.

    Attributes:
        tools: everything that the agent may call, MAIL tools included, in the style of `tool_format`.
    """

    supervises = False
    """Whether it gets the tools of supervisors even if it can't complete tasks."""

    def __init__(
        self,
        name: str,
        comm_targets: Sequence[str],
        tools: Sequence[ToolLike] = (),
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        can_complete_tasks: bool | None = None,
        tool_format: ToolFormat = "responses",
        exclude_tools: Collection[str] | None = None,
    ) -> None:
        """Take the wiring, as swarms.json has it; supervisors can complete tasks unless they are told otherwise.

        Raises ValueError for what can't be.
        """
        if tool_format not in get_args(ToolFormat):
            raise ValueError(f"tool_format must be one of {get_args(ToolFormat)}, not {tool_format!r}")
        self.name = name
        self.comm_targets = list(comm_targets)
        self.enable_entrypoint = enable_entrypoint
        self.enable_interswarm = enable_interswarm
        self.can_complete_tasks = self.supervises if can_complete_tasks is None else can_complete_tasks
        self.tool_format: ToolFormat = tool_format
        self.exclude_tools = list(exclude_tools or ())
        self.tools = self._make_tools(tools)

    @abstractmethod
    def __call__(self, messages: History, tool_choice: ToolChoice = "required") -> Awaitable[AgentOutput]:
        """One step of the agent: from its history and the tool choice to text and tool calls."""

    def offered_tools(self) -> list[dict[str, Any]]:
        """What the agent may call in this turn: its tools and those that the caller of the task lends it.

        Where the caller demands that one of theirs is called, only these.
        """
        lent = caller_tools(self.tool_format)
        return lent if TURN_TOOLS.get().is_required else [*self.tools, *lent]

    def _make_tools(self, tools: Sequence[ToolLike]) -> list[dict[str, Any]]:
        made = make_tools(tools, self.tool_format) + mail_tools(
            self.comm_targets,
            supervises=self.supervises or self.can_complete_tasks,
            can_complete_tasks=self.can_complete_tasks,
            enable_interswarm=self.enable_interswarm,
            exclude_tools=self.exclude_tools,
            style=self.tool_format,
        )
        check_tools(f"agent {self.name!r}", made)
        return made


class LiteLLMAgentFunction(MAILAgentFunction):
    """An agent whose turns a language model takes, of any provider that litellm knows."""

    retry_policy = RetryPolicy()
    """When a call that failed is made again."""

    def __init__(
        self,
        name: str,
        comm_targets: Sequence[str],
        tools: Sequence[ToolLike] = (),
        llm: str = "",
        system: str = "",
        user_token: str = "",
        enable_entrypoint: bool = False,
        enable_interswarm: bool = False,
        can_complete_tasks: bool | None = None,
        tool_format: ToolFormat = "responses",
        exclude_tools: Collection[str] | None = None,
        reasoning_effort: str | None = None,
        thinking_budget: int | None = None,
        max_tokens: int | None = None,
        memory: bool = True,
        use_proxy: bool = False,
        stream_tokens: bool = False,
        print_llm_streams: bool = True,
        default_tool_choice: ToolChoice | None = None,
    ) -> None:
        """Take the wiring, and how to call the model.

        Args:
            llm: the model, as litellm names it: `openai/gpt-5-mini`.
            system: its instructions.
            user_token: the key for the proxy, else LITELLM_PROXY_API_KEY; providers' own keys are in the
                environment, and never sent to the proxy.
            reasoning_effort: how much it should reason: `low`, `medium`, `high`, …
            thinking_budget: tokens that Claude may think for; goes before `reasoning_effort`.
            max_tokens: tokens that it may write, thinking included.
            memory: whether it is sent its history; else only what has come now.
            use_proxy: whether calls go to the litellm proxy at LITELLM_PROXY_API_BASE.
            stream_tokens: whether replies come piece by piece.
            print_llm_streams: whether such pieces are printed to the console.
            default_tool_choice: what is asked for where the engine asks for any tool: `auto`, for instance.
        """
        super().__init__(
            name=name,
            comm_targets=comm_targets,
            tools=tools,
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=can_complete_tasks,
            tool_format=tool_format,
            exclude_tools=exclude_tools,
        )
        if not llm:
            raise ValueError(f"agent {name!r} needs the name of its model, llm")
        self.llm = llm
        self.system = system
        self.user_token = user_token
        self.reasoning_effort = reasoning_effort
        self.thinking_budget = thinking_budget
        self.max_tokens = max_tokens
        self.memory = memory
        self.use_proxy = use_proxy
        self.stream_tokens = stream_tokens
        self.print_llm_streams = print_llm_streams
        self.default_tool_choice = default_tool_choice

    def __call__(self, messages: History, tool_choice: ToolChoice = "required") -> Awaitable[AgentOutput]:
        """One step of the agent; `messages` are left as they are. Raises AgentUnavailable, fit to be told."""
        is_free = tool_choice == "required" and not TURN_TOOLS.get().is_required
        if is_free and self.default_tool_choice is not None:
            tool_choice = self.default_tool_choice
        return self._run(messages, tool_choice)

    def but(self, *, llm: str | None = None, system: str | None = None) -> Self:
        """The same agent with another model or other instructions."""
        other = copy(self)
        other.llm = llm or self.llm
        other.system = self.system if system is None else system
        return other

    @staticmethod
    def preload() -> None:
        """Import litellm now, for a process that will run this agent and has time before it does. Never raises."""
        preload()

    async def _run(self, messages: History, tool_choice: ToolChoice) -> AgentOutput:
        await get_litellm()  # it tells the model's traits
        request = self.request(messages, tool_choice)
        if not (self.stream_tokens and self.print_llm_streams):
            return await call_model(request, self.retry_policy, ignore)
        printer = StreamPrinter(self.name)
        try:
            return await call_model(request, self.retry_policy, printer)
        finally:
            printer.end()

    def request(self, messages: History, tool_choice: ToolChoice = "required") -> ModelRequest:
        """What the model is asked. Raises AgentUnavailable where the proxy's address is missing."""
        history = messages if self.memory else remember_nothing(messages)
        return ModelRequest(
            llm=self.llm,
            traits=traits_of(self.llm),
            history=deepcopy(history),
            system=self.system,
            tools=self.offered_tools(),
            tool_choice=tool_choice,
            tool_format=self.tool_format,
            reasoning_effort=self.reasoning_effort,
            thinking_budget=self.thinking_budget,
            max_tokens=self.max_tokens,
            streams=self.stream_tokens,
            api_base=self._proxy() if self.use_proxy else None,
            api_key=self._proxy_key() if self.use_proxy else None,
        )

    def _proxy(self) -> str:
        base = os.environ.get(PROXY_VARIABLE)
        if not base:
            raise AgentUnavailable(f"agent {self.name!r} uses a proxy: set {PROXY_VARIABLE} to its address")
        return base

    def _proxy_key(self) -> str:
        return self.user_token or os.environ.get(PROXY_KEY_VARIABLE) or NO_KEY


def base_agent_factory(*arguments: Any, **parameters: Any) -> LiteLLMAgentFunction:
    """Deprecated: a `LiteLLMAgentFunction` with the same parameters."""
    warnings.warn(
        "base_agent_factory is deprecated; use LiteLLMAgentFunction, LiteLLMActionAgentFunction or "
        "LiteLLMSupervisorFunction",
        DeprecationWarning,
        stacklevel=2,
    )
    return LiteLLMAgentFunction(*arguments, **parameters)
