"""Actions in Python: a function with the name, description and parameters that agents see."""

import inspect
from collections.abc import Awaitable, Callable, Collection
from copy import copy
from dataclasses import replace
from typing import Any, Self, TypedDict, Unpack, get_origin, overload

from pydantic import BaseModel, ValidationError

from mail.actions.functions import as_action_function, as_async, as_cancel_function, typed_action
from mail.actions.signatures import Signature, signature_of
from mail.actions.timing import Finishes, read_timing
from mail.api.tracebacks import without_frames
from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.error_text import describe, did_you_mean
from mail.core.protocol.json_schema import model_of
from mail.core.protocol.tool_schemas import pydantic_model_to_tool
from mail.core.task.approvals import Approval
from mail.core.task.swarm import ActionCore, ActionFunction, CancelFunction
from mail.core.turns.context import lend_deps
from mail.errors import ConfigurationError
from mail.swarms_json.build import ConvertsToAction, build_action, terms_of
from mail.swarms_json.references import resolver
from mail.swarms_json.specs import ActionSpec, Spec
from mail.utils.parsing import read_python_string

NeedsApproval = (
    bool | Approval | Callable[[dict[str, Any]], bool] | Callable[[dict[str, Any]], Awaitable[bool]]
)


class ActionOptions(TypedDict, total=False):
    """The options of an action; see `MAILAction`."""

    idempotent: bool
    read_only: bool
    sequential: bool
    finishes: Finishes
    timeout: float | str | None
    heartbeat: float | str | None
    on_cancel: Callable[..., Any] | None
    retries: int
    needs_approval: NeedsApproval
    approval_timeout: float | None


class Setting[T]:
    """An attribute that is a setting of its object: a field of its `_spec`; a change is checked."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value: T = getattr(instance._spec, self._name)
        return value

    def __set__(self, instance: Any, value: T) -> None:
        spec, change = instance._spec, {self._name: value}
        instance._spec = spec.but(**change) if isinstance(spec, Spec) else replace(spec, **change)


class MAILAction:
    """A tool that agents may call: a function with a name, a description and a schema of its arguments.

    Args:
        parameters: the JSON Schema of the arguments, an object.
        function: a function or coroutine function that takes the arguments as a dictionary (or as a pydantic
            model, if it is annotated with one) and returns text; or its import string, `package.module:name`.
        idempotent: whether it may be repeated when a crash leaves its outcome unknown, and when it fails.
        read_only: whether it changes nothing and costs nothing. Such an action may be repeated, too, and runs in
            every fork.
        sequential: whether it runs alone: after the calls before it in its turn, and before those after it.
        timeout: seconds that one attempt may take; None for no limit but the turn's. Then a coroutine is cancelled; a
            plain function runs on in its thread, and its result is lost. The agent reads that the action timed out.
        finishes: `later` if it may return `LATER` when its work has begun: then the result comes to its `ctx.callback`
            (`ActionContext.callback`), within the `timeout`, such as `3d`, which it must have.
        heartbeat: seconds, or text such as `10m`, without a report on such a call after which it has failed.
        on_cancel: a function that ends the work of such a call when its task ends before. It is called at least once,
            with the arguments of the call that it names, or a dictionary of all, and an `ActionContext` whose
            `idempotency_key` is that of the call.
        retries: the number of further attempts after one that has failed or timed out, with growing delays; at most
            10, and only for an action that is `idempotent` or `read_only`.
        needs_approval: whether a person must approve a call before it runs: each, or those for which a function of
            the arguments, a dictionary, returns True. The function may be a coroutine function. An `Approval` says who
            decides in place of the task's owner.
        approval_timeout: seconds after which an undecided call counts as rejected, unless the `Approval` says
            otherwise; None for never.
        model: checks the arguments in place of `parameters`, and fills in its defaults.

    Attributes:
        function: the function that the engine runs: async, with validation of its arguments.

    Raises ConfigurationError for invalid settings.
    """

    name = Setting[str]()
    description = Setting[str]()
    parameters = Setting[dict[str, Any]]()
    function = Setting[ActionFunction]()
    idempotent = Setting[bool]()
    read_only = Setting[bool]()
    sequential = Setting[bool]()
    timeout = Setting[float | None]()
    finish_within = Setting[float | None]()
    heartbeat = Setting[float | None]()
    on_cancel = Setting[CancelFunction | None]()
    retries = Setting[int]()
    needs_approval = Setting[NeedsApproval]()
    approval_timeout = Setting[float | None]()
    reviewers = Setting[Approval | None]()

    _model: type[BaseModel] | None = None
    _typed: Callable[..., Any] | None = None
    _deps: Any = Any

    @without_frames
    def __init__(
        self,
        name: str,
        description: str,
        parameters: dict[str, Any],
        function: str | Callable[..., Any],
        *,
        model: type[BaseModel] | None = None,
        **options: Unpack[ActionOptions],
    ) -> None:
        self._model, self._typed = model, None
        self._spec = _read(name, _not_built, description, parameters, model, options)
        self._validate()
        self.function = self._build_action_function(function)

    @classmethod
    def from_pydantic_model(
        cls,
        model: type[BaseModel],
        function: str | Callable[..., Any] | None = None,
        name: str | None = None,
        description: str | None = None,
        *,
        function_str: str | None = None,
        style: ToolFormat = "responses",
        **options: Unpack[ActionOptions],
    ) -> Self:
        """Return an action whose arguments are the fields of a model.

        The name defaults to the model's, the description to its docstring. `function_str` is an alias of `function`
        for import strings.
        """
        found = function if function is not None else function_str
        if found is None:
            raise ConfigurationError(f"action {name or model.__name__!r}: name its function")
        tool = pydantic_model_to_tool(model, name, description, style)
        declared = tool.get("function", tool)
        return cls(
            declared["name"],
            declared["description"],
            declared["parameters"],
            found,
            model=model,
            **options,
        )

    @classmethod
    def from_swarm_json(
        cls, json_str: str = "", *, json_dump: str = "", allowed_prefixes: Collection[str] | None = None
    ) -> Self:
        """Return the action that an entry of `actions` in swarms.json describes.

        With `allowed_prefixes` its function must come from one of these modules. `json_dump` is an alias of
        `json_str`. Raises ConfigurationError.
        """
        try:
            entry = ActionSpec.model_validate_json(json_str or json_dump)
        except ValidationError as error:
            raise ConfigurationError(f"action: {describe(error, ActionSpec)}") from None
        return cls.from_core(build_action(entry, resolver(allowed_prefixes)))

    @classmethod
    def from_core(cls, core: ActionCore) -> Self:
        """Return the action of `core`, whose function already checks its arguments."""
        action = cls.__new__(cls)
        action._spec = core
        action._validate()
        return action

    @classmethod
    def from_typed_function(
        cls,
        function: Callable[..., Any],
        name: str,
        description: str | None = None,
        *,
        signature: Signature | None = None,
        **options: Unpack[ActionOptions],
    ) -> Self:
        """Return an action whose arguments are the parameters of a function, by their type hints and defaults.

        The docstring of the function is the default description, and describes the arguments. Raises
        ConfigurationError.
        """
        signature = signature or signature_of(function)
        run, parameters, arguments = typed_action(name, function, signature)
        text = description or arguments.description
        if not text:
            raise _undescribed(name)
        action = cls.from_core(_read(name, run, text, parameters, arguments.model, options))
        action._typed, action._deps = function, signature.deps
        return action

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the action as a call by an agent would, given a dictionary of its arguments or their model.

        The action of a function with typed parameters also takes the arguments of that function, and then is a call of
        it: neither checked nor converted.
        """
        match arguments:
            case (dict() as given,) if not named:
                return self.function(given)
            case (BaseModel() as model,) if self._typed is None and not named:
                return self.function(model.model_dump(mode="json", by_alias=True))
        if self._typed is None:
            raise TypeError(f"action {self.name!r} takes one dictionary of arguments, or their model")
        return self._typed(*arguments, **named)

    def with_deps(self, deps: Any) -> Self:
        """Return the action for a swarm with these dependencies, which its `ActionContext` has.

        Raises ConfigurationError if they have another type than the function asks for.
        """
        wanted = get_origin(self._deps) or self._deps
        if wanted is not Any and inspect.isclass(wanted) and not isinstance(deps, wanted):
            raise ConfigurationError(
                f"action {self.name!r} needs dependencies of type {wanted.__name__}, "
                f"not {type(deps).__name__}: give them to the swarm as deps"
            )
        action = copy(self)

        def lend[T](
            run: Callable[[dict[str, Any]], Awaitable[T]],
        ) -> Callable[[dict[str, Any]], Awaitable[T]]:
            async def call(arguments: dict[str, Any]) -> T:
                lend_deps(deps)
                return await run(arguments)

            return call

        action.function = lend(self.function)
        if self.on_cancel is not None:
            action.on_cancel = lend(self.on_cancel)
        return action

    def to_core(self) -> ActionCore:
        """Return the action in the form that the engine runs."""
        approval = self.needs_approval
        if isinstance(approval, Approval):
            return replace(self._spec, **terms_of(approval, approval.when))
        return replace(self._spec, needs_approval=as_async(approval) if callable(approval) else approval)

    def to_tool_dict(self, style: ToolFormat = "responses") -> dict[str, Any]:
        """Return the declaration of the action as a tool, in the style of either API."""
        return self.to_core().to_tool_dict(style)

    def to_pydantic_model(self, for_tools: bool = False) -> type[BaseModel]:
        """Return a pydantic model of the arguments.

        It is the model that the action was made from, if any. With `for_tools` it also has the action's name and
        description, so that `pydantic_model_to_tool` returns the action's declaration.
        """
        if for_tools:
            return model_of(self.name, self.parameters, description=self.description)
        return self._model or model_of(self.name, self.parameters)

    def _validate(self) -> None:
        """Raise ConfigurationError for an action without a name, or an approval that is neither yes, no nor code."""
        if not self.name:
            raise ConfigurationError("an action needs a name")
        if not isinstance(self.needs_approval, bool | Approval) and not callable(self.needs_approval):
            raise ConfigurationError(
                f"action {self.name!r}: needs_approval must be True, False, a function or an Approval, not "
                f"{self.needs_approval!r}"
            )

    def _build_action_function(self, function: str | Callable[..., Any]) -> ActionFunction:
        """Return the function that the engine runs. Raises ConfigurationError if there is none."""
        if isinstance(function, str):
            function = read_python_string(function)
        if isinstance(function, ConvertsToAction):
            model_of(self.name, self.parameters)  # raises as below
            core = function.to_core()
            if self.needs_approval is False:
                self.needs_approval, self.approval_timeout = core.needs_approval, core.approval_timeout
                self.reviewers = core.reviewers
            return core.function
        if not callable(function):
            raise ConfigurationError(f"action {self.name!r}: {function!r} is not a function")
        self._deps = signature_of(function).deps
        return as_action_function(self.name, function, self.parameters, self._model)

    def __repr__(self) -> str:
        return f"MAILAction({self.name!r})"


@overload
def action(function: Callable[..., Any], /) -> MAILAction: ...


@overload
def action(
    *,
    name: str | None = None,
    description: str | None = None,
    model: type[BaseModel] | None = None,
    parameters: dict[str, Any] | None = None,
    style: ToolFormat = "responses",
    **options: Unpack[ActionOptions],
) -> Callable[[Callable[..., Any]], MAILAction]: ...


def action(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    model: type[BaseModel] | None = None,
    parameters: dict[str, Any] | None = None,
    style: ToolFormat = "responses",
    **options: Unpack[ActionOptions],
) -> MAILAction | Callable[[Callable[..., Any]], MAILAction]:
    """Turn a function into a `MAILAction`; a decorator, to be used with parentheses or without.

    Args:
        name: defaults to the function's.
        description: defaults to the function's docstring; one of them is needed.
        model: the arguments, as fields of a pydantic model. By default they are the function's parameters, by their
            type hints, defaults and descriptions in the docstring; or the model that its only parameter is annotated
            with. A parameter annotated with `ActionContext` is left out.
        parameters: their JSON Schema, in place of `model`.
        style: the API that the schema is for.
        options: how it runs; see `MAILAction`.

    Raises ConfigurationError if the description or the arguments are missing.
    """
    frame = inspect.currentframe()
    namespace = {} if frame is None or frame.f_back is None else frame.f_back.f_locals
    del frame

    @without_frames
    def decorate(decorated: Callable[..., Any]) -> MAILAction:
        called = name or str(getattr(decorated, "__name__", ""))
        if model is not None and parameters is not None:
            raise ConfigurationError(f"action {called!r}: give it a model or parameters, not both")
        signature = signature_of(decorated, namespace)
        if model is None and parameters is None and signature.is_typed:
            return MAILAction.from_typed_function(
                decorated,
                called,
                description,
                signature=signature,
                **options,
            )
        text = description or inspect.getdoc(decorated)
        if not text:
            raise _undescribed(called)
        found = model if parameters is not None else model or signature.model
        if found is not None:
            return MAILAction.from_pydantic_model(found, decorated, called, text, style=style, **options)
        if parameters is None and signature.parameters:
            raise ConfigurationError(
                f"action {called!r}: annotate its argument with a pydantic model or another type than a dictionary, "
                "or give a model or parameters"
            )
        schema = {"type": "object", "properties": {}} if parameters is None else parameters
        return MAILAction(called, text, schema, decorated, **options)

    return decorate if function is None else decorate(function)


def _read(
    name: str,
    run: ActionFunction,
    description: str,
    parameters: dict[str, Any],
    model: type[BaseModel] | None,
    options: ActionOptions,
) -> ActionCore:
    """Return an action with these options, the approval as it is given: `to_core` makes it async.

    Raises ConfigurationError for an unknown option.
    """
    given: dict[str, Any] = {**options}
    for unknown in given.keys() - ActionOptions.__annotations__.keys():
        hint = did_you_mean(unknown, ActionOptions.__annotations__)
        raise ConfigurationError(f"action {name!r} has no option {unknown!r}{hint}")
    timing = read_timing(
        name, given.pop("finishes", "now"), given.pop("timeout", None), given.pop("heartbeat", None)
    )
    if given.get("on_cancel") is not None:
        given["on_cancel"] = as_cancel_function(name, given["on_cancel"], parameters)
    return ActionCore(name, run, description, parameters, model=model, **timing._asdict(), **given)


async def _not_built(_arguments: dict[str, Any]) -> str:
    """Stand in for the function of an action until it is built."""
    raise NotImplementedError


def _undescribed(name: str) -> ConfigurationError:
    return ConfigurationError(f"action {name!r}: give it a description or the function a docstring")
