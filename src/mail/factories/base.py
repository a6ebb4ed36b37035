"""Base classes of agent functions, with and without litellm, and their deprecated factories."""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from copy import copy, deepcopy
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.mail_tools import ReadMore, RemindMe
from mail.core.protocol.tool_schemas import create_mail_tools, create_supervisor_tools, declare
from mail.core.task.files import FILES
from mail.core.task.size import json_size, text_size
from mail.core.task.swarm import History, ToolChoice
from mail.core.turns.context import CURRENT_TASK, TURN
from mail.core.turns.tools import offered_tools
from mail.errors import AgentUnavailable, ConfigurationError
from mail.factories.caching import cache_key
from mail.factories.fallback import SwitchingPolicy, Target, call_in_order, read_fallback, running_breakers
from mail.factories.files import accepted_types, check_accepts, with_attachments
from mail.factories.history import WRITTEN_BY, as_read_by, without_memory
from mail.factories.model_call import call_model
from mail.factories.models import ModelRequest, context_window, is_claude, traits_of
from mail.factories.options import check_options, common_options, options_of_fallback, resolve_options
from mail.factories.ports import find_problems, port_for, preload, way_to
from mail.factories.retry import RetryPolicy, error_for
from mail.factories.tools import ToolLike, check_tools, make_tools
from mail.factories.variants import silent

if TYPE_CHECKING:
    from rich.console import Console

PROXY_VARIABLE = "LITELLM_PROXY_API_BASE"
PROXY_KEY_VARIABLE = "LITELLM_PROXY_API_KEY"

SUMMARIZE = (
    "You are the memory of an agent that works with other agents by mail. Summarize the transcript from the "
    "agent's own point of view: facts, what was agreed, who said what and in confidence to whom, open questions, "
    "and the results of its tools. Leave nothing out that it may need later. Answer with the summary alone."
)
"""The system prompt of a summary."""

USUAL_SHARE = 0.8
"""The share of a window that a context may take; a reply that needs more than the rest takes from the window."""

NO_KEY = "none"
"""Key for a proxy without one: with an empty key, litellm would send it a provider's key."""

AgentOutput = tuple[str | None, list[AgentToolCall]]


class MAILAgentFunction(ABC):
    """Base class of agent functions. The class is the factory; calling an instance runs the agent's turn.

    Attributes:
        tools: the agent's tools, including MAIL tools, in the style of `tool_format`.
        extra: parameters that only a subclass knows, such as the `user_token` of the instance.
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
        _debug_include_mail_tools: bool = True,
        **extra: Any,
    ) -> None:
        """Take the wiring, as in swarms.json; supervisors can complete tasks by default.

        Without `_debug_include_mail_tools` the agent has only its own tools, to try them without a swarm. Raises
        ValueError for invalid values.
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
        self.extra = extra
        self._has_mail_tools = _debug_include_mail_tools
        self.tools = self._make_tools(tools)

    @abstractmethod
    def __call__(self, messages: History, tool_choice: ToolChoice = "required") -> Awaitable[AgentOutput]:
        """Run one step of the agent; return its text and its tool calls."""

    def offered_tools(self) -> list[dict[str, Any]]:
        """Return the tools of this turn (`mail.core.turns.tools.offered_tools`)."""
        return offered_tools(self.tools, self.tool_format)

    def _make_tools(self, tools: Sequence[ToolLike]) -> list[dict[str, Any]]:
        made = make_tools(tools, self.tool_format)
        if self._has_mail_tools:
            targets, is_far, style = self.comm_targets, self.enable_interswarm, self.tool_format
            made += create_mail_tools(targets, is_far, style, self.exclude_tools)
            if self.supervises or self.can_complete_tasks:
                made += create_supervisor_tools(
                    targets, self.can_complete_tasks, is_far, style, exclude_tools=self.exclude_tools
                )
        check_tools(f"agent {self.name!r}", made)
        return made


class LiteLLMAgentFunction(MAILAgentFunction):
    """An agent run by a language model, of any provider that litellm supports."""

    retry_policy = RetryPolicy()
    """The retry policy for model calls."""

    def __init__(
        self,
        name: str,
        comm_targets: Sequence[str],
        tools: Sequence[ToolLike] = (),
        llm: str | Sequence[str] = "",
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
        cache: Literal["auto", "off"] = "auto",
        fallback: object = (),
        reminders: bool = False,
        accepts: Sequence[str] | None = None,
        _debug_include_mail_tools: bool = True,
        **extra: Any,
    ) -> None:
        """Take the wiring, the settings of the model, and any option of litellm's calls, such as `temperature`.

        A subclass with its own constructor may pass more. Raises ConfigurationError for an unknown option.

        Args:
            llm: the model, by its name in litellm: `openai/gpt-5-mini`. Of several, the first one that can be used.
            system: the system prompt.
            user_token: the key for the proxy, by default LITELLM_PROXY_API_KEY; providers' own keys are in the
                environment, and never sent to the proxy.
            reasoning_effort: `low`, `medium`, `high`, …
            thinking_budget: maximum number of tokens for Claude's thinking; overrides `reasoning_effort`.
            max_tokens: maximum number of tokens of a reply, thinking included.
            memory: whether the model gets the history; otherwise only the newest entry.
            use_proxy: whether to call the litellm proxy at LITELLM_PROXY_API_BASE.
            stream_tokens: whether to stream replies.
            print_llm_streams: whether to print streamed replies to the console.
            default_tool_choice: replaces the engine's choice `required`, for example by `auto`.
            cache: `auto` to let the provider cache what the next call repeats, `off` to ask for nothing.
            fallback: models for times when the first one can't be used (`mail.factories.fallback.read_fallback`).
            reminders: whether it has the tool `remind_me`.
            accepts: the media types of files that the model gets, such as `image/*`; by default those of its entry in
                the table of models.
            extra: options of the call, as litellm names them. A value `${NAME}` is read from that environment variable.
        """
        llm, self.fallback = read_fallback(f"agent {name!r}", llm, fallback, tool_format=tool_format)
        if type(self).__init__ is LiteLLMAgentFunction.__init__:
            self.options = extra
            check_model_options(f"agent {name!r}", llm, tool_format, extra)
        else:
            self.options = common_options(extra, llm, tool_format)
        if use_proxy and not {"api_base", "base_url", "api_key"}.isdisjoint(self.options):
            raise ConfigurationError(
                f"agent {name!r}: use_proxy sets api_base and api_key; give only one of them"
            )
        super().__init__(
            name=name,
            comm_targets=comm_targets,
            tools=tools,
            enable_entrypoint=enable_entrypoint,
            enable_interswarm=enable_interswarm,
            can_complete_tasks=can_complete_tasks,
            tool_format=tool_format,
            exclude_tools=exclude_tools,
            _debug_include_mail_tools=_debug_include_mail_tools,
            **extra,
        )
        if _debug_include_mail_tools:
            if ReadMore.tool_name not in self.exclude_tools:
                self.tools.append(declare(ReadMore, tool_format))
            if reminders and RemindMe.tool_name not in self.exclude_tools:
                self.tools.append(declare(RemindMe, tool_format))
            check_tools(f"agent {name!r}", self.tools)
        if not llm:
            raise ValueError(f"agent {name!r} needs the name of its model, llm")
        if cache not in ("auto", "off"):
            raise ConfigurationError(f"agent {name!r}: cache must be 'auto' or 'off', not {cache!r}")
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
        self.cache = cache
        self.accepts = check_accepts(f"agent {name!r}", accepts)

    def __call__(self, messages: History, tool_choice: ToolChoice = "required") -> Awaitable[AgentOutput]:
        """Run one step of the agent; `messages` stay unchanged. Raises AgentUnavailable with a text for agents."""
        is_free = tool_choice == "required" and not TURN.get().tools.is_required
        if is_free and self.default_tool_choice is not None:
            tool_choice = self.default_tool_choice
        return self._run(messages, tool_choice)

    def but(self, *, llm: str | None = None, system: str | None = None) -> Self:
        """Return a copy of the agent with another model or system prompt, for single calls, which cache nothing."""
        changed = copy(self)
        changed.cache = "off"
        changed.fallback = None if llm else self.fallback
        changed.llm = llm or self.llm
        changed.system = self.system if system is None else system
        return changed

    def redraft(
        self, *, llm: str | None, system: str | None, options: Mapping[str, Any], tools: list[dict[str, Any]]
    ) -> Self:
        """Return a copy with these tools, and another model, system prompt or options, for a draft of the swarm.

        A prompt keeps what the present one says about MAIL. Another model has no fallback. Raises ConfigurationError
        for an option that the model's API doesn't have.
        """
        from mail.factories.prompts import keep_how_to

        changed = copy(self)
        changed.tools = tools
        changed.system = self.system if system is None else keep_how_to(system, self.system)
        if llm is not None:
            changed.llm, changed.fallback = llm, None
        of_calls = dict(options)
        for name in options.keys() & {"max_tokens", "memory", "reasoning_effort", "thinking_budget"}:
            setattr(changed, name, of_calls.pop(name))
        changed.options = {**self.options, **of_calls}
        check_model_options(f"agent {self.name!r}", changed.llm, self.tool_format, changed.options)
        return changed

    async def window(self) -> int | None:
        """Return how many tokens the model can read in a call, less what a long reply takes; None if not known."""
        held = (
            None if self.fallback is None else self.fallback.held(TURN.get().switch, running_breakers().now())
        )
        window = context_window(self.llm if held is None else held.llm)
        return window and min(window, int((window - (self.max_tokens or 0)) / USUAL_SHARE))

    @property
    def fixed_size(self) -> int:
        """The bytes that the model gets in every call besides the history."""
        return text_size(self.system) + json_size(self.offered_tools())

    async def summarize(self, text: str, model: str | None) -> str:
        """Return the model's summary of a transcript, as the agent will read it; empty if it writes none."""
        asked = self.but(llm=model, system=SUMMARIZE)
        asked.tools = []
        said, calls = await silent(asked)([{"role": "user", "content": text}], "none")
        texts = [str(call.tool_args["content"]) for call in calls if "content" in call.tool_args]
        return said or "\n\n".join(texts)

    def preload(self) -> None:
        """Import what calls the model in advance, in a process that will run this agent. Never raises."""
        preload(self.llm, is_proxy=self.use_proxy)

    def problems(self) -> list[str]:
        """Return what would make the first call of the model fail, with the remedies; may import litellm."""
        proxy = PROXY_VARIABLE if self.use_proxy else None
        agents = [self] if self.fallback is None else [self._calling(each) for each in self.fallback.targets]
        found = [
            find_problems(each.llm, proxy, options=each.options, has_key=each._has_own_access)
            for each in agents
        ]
        return list(dict.fromkeys(problem for problems in found for problem in problems))

    def _calling(self, target: Target, seconds: float | None = None) -> Self:
        """Return a copy of the agent that calls one of its models, for so many seconds at most in one attempt."""
        changed = copy(self)
        changed.llm = target.llm
        if target.llm != self.llm:
            changed.options = options_of_fallback(
                self.options, self.llm, target.llm, self.tool_format, target.options
            )
        if seconds is not None:
            longest = changed.options.get("timeout", seconds)
            changed.options = {**changed.options, "timeout": min(longest, seconds)}
        return changed

    @property
    def ways(self) -> dict[str, str]:
        """The way to each of its models, by the extra that installs it: `litellm`, `openai` or `bedrock`."""
        names = [self.llm] if self.fallback is None else [each.llm for each in self.fallback.targets]
        return {name: way_to(name, is_proxy=self.use_proxy) for name in names}

    @property
    def _has_own_access(self) -> bool:
        """Whether the options say where the model is or with which key to call it."""
        return not {"api_key", "api_base", "base_url"}.isdisjoint(self.options)

    async def _run(self, messages: History, tool_choice: ToolChoice) -> AgentOutput:
        if self.fallback is None:
            return await self._call(messages, tool_choice, self.retry_policy)
        return await call_in_order(
            self.name,
            self.fallback,
            self.retry_policy,
            lambda target, policy, seconds: self._calling(target, seconds)._call(
                messages, tool_choice, policy
            ),
        )

    async def _call(
        self, messages: History, tool_choice: ToolChoice, policy: RetryPolicy | SwitchingPolicy
    ) -> AgentOutput:
        is_usual = not self.use_proxy and not self._has_own_access and "extra_headers" not in self.options
        if is_usual and (failure := port_for(self.llm).find_missing_key(self.llm)):
            raise error_for(failure, self.llm, 1)
        if any(FILES in entry for entry in messages):
            messages = await with_attachments(messages, self.accepts or accepted_types(self.llm))
        request = self.request(messages, tool_choice)
        if not (self.stream_tokens and self.print_llm_streams) or TURN.get().is_private:
            return await call_model(request, policy, ignore)
        printer = StreamPrinter(self.name)
        try:
            return await call_model(request, policy, printer)
        finally:
            printer.end()

    def request(self, messages: History, tool_choice: ToolChoice = "required") -> ModelRequest:
        """Return the request to the model.

        Raises AgentUnavailable if the proxy's address or an environment variable is missing.
        """
        history = messages if self.memory else without_memory(messages)
        turn = TURN.get()
        first = self.llm if self.fallback is None else self.fallback.first.llm
        if self.fallback is not None or any(WRITTEN_BY in entry for entry in history):
            history = as_read_by(
                history, first, lambda llm: llm == self.llm or (is_claude(llm) and is_claude(self.llm))
            )
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
            notes=turn.provided.problems,
            signature="" if self.llm == first else self.llm,
            cache_key=cache_key(turn.caller, CURRENT_TASK.get(), self.name) if self.cache == "auto" else None,
            api_base=self._proxy() if self.use_proxy else None,
            api_key=self._proxy_key() if self.use_proxy else None,
            options=resolve_options(f"agent {self.name!r}", self.options) if self.options else {},
        )

    def _proxy(self) -> str:
        base = os.environ.get(PROXY_VARIABLE)
        if not base:
            raise AgentUnavailable(f"agent {self.name!r} uses a proxy: set {PROXY_VARIABLE} to its address")
        return base

    def _proxy_key(self) -> str:
        return self.user_token or os.environ.get(PROXY_KEY_VARIABLE) or NO_KEY


def check_model_options(where: str, llm: str, tool_format: ToolFormat, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for an option that neither `LiteLLMAgentFunction` nor the calls of this model have."""
    if options:
        parameters = set(signature(LiteLLMAgentFunction).parameters)
        own = parameters - set(signature(MAILAgentFunction).parameters) - {"llm", "system"}
        of_calls = {name: value for name, value in options.items() if name not in own}
        check_options(where, of_calls, llm=llm, tool_format=tool_format, parameters=parameters)


# ------------------------------------------------------------------------------------- streams on the console

_STYLES = {"reasoning": "dim italic", "text": ""}


@lru_cache(maxsize=1)
def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


class StreamPrinter:
    """A printer of the pieces of one reply as lines: reasoning dim, text plain."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind: str | None = None
        self._line = ""

    def __call__(self, kind: Literal["reasoning", "text"], piece: str) -> None:
        """Add a piece, and print every complete line."""
        if kind != self._kind:
            self.end()
            self._kind = kind
        *lines, self._line = (self._line + piece).split("\n")
        for line in lines:
            self._print(line)

    def end(self) -> None:
        """Print the rest of the last line."""
        if self._line:
            self._print(self._line)
        self._line = ""

    def _print(self, line: str) -> None:
        _console().print(f"[{self._name}] {line}", style=_STYLES.get(self._kind or "", ""))


def ignore(_kind: Literal["reasoning", "text"], _piece: str) -> None:
    """Discard a piece of a reply."""


def deprecated_factory[Made: MAILAgentFunction](name: str, kind: type[Made]) -> Callable[..., Made]:
    """Return the factory that had this name in earlier versions of MAIL: the class, with a warning."""

    def factory(*arguments: Any, **parameters: Any) -> Made:
        warnings.warn(f"{name} is deprecated; use {kind.__name__}", DeprecationWarning, stacklevel=2)
        return kind(*arguments, **parameters)

    factory.__name__ = factory.__qualname__ = name
    factory.supervises = kind.supervises  # type: ignore[attr-defined]  # as of a class
    return factory


base_agent_factory = deprecated_factory("base_agent_factory", LiteLLMAgentFunction)
