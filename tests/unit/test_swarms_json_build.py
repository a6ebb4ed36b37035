"""From an entry of swarms.json to a swarm that runs."""

import asyncio
import logging
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mail.actions.functions import as_async
from mail.core.task.context import Context
from mail.core.task.skills import Skill
from mail.core.task.swarm import ActionCore, AgentOutput, History, SwarmCore, ToolChoice
from mail.errors import ConfigurationError, ToolCallFault
from mail.mcp.servers import MCPServer
from mail.stdlib.guards import no_secrets
from mail.swarms_json import build_swarm, load_swarm, validate_swarm_from_swarms_json
from mail.swarms_json.load import PACKAGED_SOURCE
from mail.swarms_json.references import resolve_references, resolver
from mail.swarms_json.specs import BUILT_IN_PYTHON, AgentSpec
from mail.utils.parsing import read_python_string, target_address_is_interswarm

HERE = __name__
PROMPT = "You are a test."


class Factory:
    """Remembers what it was called with."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    async def __call__(self, _messages: Any, _tool_choice: Any = "required") -> Any:
        return None, []


def picky_factory(*, name: str) -> Any:
    return name


GLOBALS = {"password": "hunter2"}


def no_factory(**_given: Any) -> Any:
    return None


async def look_up(arguments: dict[str, Any]) -> str:
    return f"async {arguments}"


def look_up_slowly(arguments: dict[str, Any]) -> str:
    return f"sync {arguments}"


class Decorated:
    """What `@action` makes of a function, as far as this package cares."""

    def to_core(self) -> ActionCore:
        return ActionCore("decorated", look_up, idempotent=True)


decorated = Decorated()
ready_made = ActionCore("ready_made", look_up)


def build(
    *,
    actions: list[dict[str, Any]] | None = None,
    chief: dict[str, Any] | None = None,
    servers_limit: int = 15,
    **changes: Any,
) -> SwarmCore:
    entry = {
        "name": "news",
        "version": "1",
        "entrypoint": "chief",
        "agents": [
            {
                "name": "chief",
                "factory": f"python::{HERE}:Factory",
                "enable_entrypoint": True,
                "can_complete_tasks": True,
                **(chief or {}),
            }
        ],
        "actions": [{"name": "look_up", "function": f"python::{HERE}:look_up"}]
        if actions is None
        else actions,
    }
    return build_swarm(validate_swarm_from_swarms_json(entry | changes), task_message_limit=servers_limit)


def given(swarm: SwarmCore) -> dict[str, Any]:
    """What the factory of `chief` was called with."""
    factory = swarm.agents["chief"].function
    assert isinstance(factory, Factory)
    return factory.given


class TestAgents:
    def test_factory_gets_wiring_and_params(self) -> None:
        swarm = build(
            chief={
                "comm_targets": ["chief"],
                "actions": ["look_up"],
                "exclude_tools": ["help"],
                "tool_format": "completions",
                "agent_params": {"llm": "x/y", "system": f"python::{HERE}:PROMPT"},
            },
            exclude_tools=["ignore_broadcast"],
        )
        assert given(swarm) == {
            "name": "chief",
            "comm_targets": ["chief"],
            "tools": [swarm.actions["look_up"].to_tool_dict("completions")],
            "user_token": "",
            "enable_entrypoint": True,
            "enable_interswarm": False,
            "can_complete_tasks": True,
            "tool_format": "completions",
            "exclude_tools": ["help", "ignore_broadcast"],
            "llm": "x/y",
            "system": PROMPT,
        }
        assert swarm.agents["chief"].exclude_tools == {"help", "ignore_broadcast"}

    def test_wiring_goes_before_params(self, caplog: pytest.LogCaptureFixture) -> None:
        params = {"tool_format": "completions", "user_token": "mine"}
        with caplog.at_level(logging.WARNING):
            swarm = build(chief={"agent_params": params})
        assert given(swarm)["tool_format"] == swarm.agents["chief"].tool_format == "responses"
        assert given(swarm)["user_token"] == "mine"
        assert "'tool_format' in agent_params is ignored" in caplog.text

    def test_user_token(self) -> None:
        entry = load_swarm("example-no-proxy", PACKAGED_SOURCE)
        chief = entry.agents[0].model_copy(update={"factory": f"{HERE}:Factory"})
        entry = entry.model_copy(update={"agents": [chief, *entry.agents[1:]]})
        function = build_swarm(entry, user_token="secret").agents["supervisor"].function
        assert isinstance(function, Factory)
        assert function.given["user_token"] == "secret"

    @pytest.mark.parametrize(
        ("factory", "complaint"),
        [
            ("picky_factory", "rejected its parameters: .*unexpected keyword"),
            ("no_factory", "returned no function"),
            ("GLOBALS", "its factory 'dict' rejected its parameters: 'dict' object is not callable$"),
            ("PROMPT", "rejected its parameters: .*not callable"),
            ("Factry", "Did you mean 'Factory'"),
        ],
    )
    def test_wrong_factories(self, factory: str, complaint: str) -> None:
        with pytest.raises(ConfigurationError, match=complaint):
            build(chief={"factory": f"python::{HERE}:{factory}"})


class TestSwarm:
    def test_fields(self) -> None:
        swarm = build(description="d", keywords=["k"], public=True, breakpoint_tools=["look_up"])
        assert (swarm.description, swarm.keywords, swarm.public) == ("d", ("k",), True)
        assert swarm.breakpoint_tools == {"look_up"}

    def test_message_limit(self) -> None:
        assert build().task_message_limit == 15
        assert build(servers_limit=7).task_message_limit == 7
        assert build(servers_limit=7, task_message_limit=3).task_message_limit == 3

    def test_imported_actions(self) -> None:
        swarm = build(
            chief={"actions": ["decorated", "ready_made"]},
            action_imports=[f"python::{HERE}:decorated", f"python::{HERE}:ready_made"],
        )
        assert swarm.actions["decorated"].idempotent
        assert swarm.actions["ready_made"] is ready_made

    def test_agents_action_that_was_not_imported_after_all(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"'redy_made' is not an action .*Did you mean 'ready_made'"
        ):
            build(chief={"actions": ["redy_made"]}, action_imports=[f"python::{HERE}:ready_made"])

    def test_import_that_is_no_action(self) -> None:
        with pytest.raises(ConfigurationError, match=r"is not an action"):
            build(action_imports=[f"python::{HERE}:look_up"])


class TestActions:
    async def test_functions(self) -> None:
        swarm = build(
            actions=[
                {"name": "one", "function": f"python::{HERE}:look_up", "idempotent": True},
                {"name": "two", "function": f"{HERE}:look_up_slowly"},
                {"name": "three", "function": f"python::{HERE}:decorated"},
            ]
        )
        run = {name: await action.function({"a": 1}) for name, action in swarm.actions.items()}
        assert run == {"one": "async {'a': 1}", "two": "sync {'a': 1}", "three": "async {'a': 1}"}
        assert [action.idempotent for action in swarm.actions.values()] == [True, False, True]

    async def test_a_function_is_run_as_what_it_is(self) -> None:
        assert as_async(look_up) is look_up
        assert await as_async(partial(look_up_slowly))({}) == "sync {}"
        assert await as_async(lambda arguments: look_up({**arguments, "b": 2}))({}) == "async {'b': 2}"

    async def test_a_blocking_function_blocks_nobody(self) -> None:
        loop = asyncio.get_running_loop()
        reached = asyncio.Event()

        def wait_for_the_loop(_arguments: dict[str, Any]) -> str:
            asyncio.run_coroutine_threadsafe(set_event(), loop).result(timeout=10)
            return "done"

        async def set_event() -> None:
            reached.set()

        assert await as_async(wait_for_the_loop)({}) == "done"
        assert reached.is_set()

    async def test_breakpoint_tool_needs_no_function(self) -> None:
        swarm = build(actions=[{"name": "ask"}], breakpoint_tools=["ask"])
        with pytest.raises(ToolCallFault, match=r"the user gives the result"):
            await swarm.actions["ask"].function({})

    def test_other_tools_need_one(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"action 'ask': name its function, or list it in breakpoint"
        ):
            build(actions=[{"name": "ask"}])

    def test_function_that_is_none(self) -> None:
        with pytest.raises(ConfigurationError, match=r"is not a function"):
            build(actions=[{"name": "ask", "function": f"python::{HERE}:PROMPT"}])


class TestReferences:
    def test_at_any_depth(self) -> None:
        value = {"a": [f"python::{HERE}:PROMPT", {"b": f"python::{HERE}:PROMPT"}], "c": 1, "d": "python: x"}
        assert resolve_references(value, resolver()) == {
            "a": [PROMPT, {"b": PROMPT}],
            "c": 1,
            "d": "python: x",
        }

    def test_dotted_attribute(self) -> None:
        assert read_python_string("pathlib:Path.home") == Path.home

    @pytest.mark.parametrize(
        "string", ["", "json", "json:", ":dumps", "json:dumps:x", "json:1", "js on:x", "../x:y", "a..b:c"]
    )
    def test_malformed(self, string: str) -> None:
        with pytest.raises(ConfigurationError, match=r"not of the form 'package.module:attribute'"):
            read_python_string(string)

    def test_leading_nowhere(self) -> None:
        with pytest.raises(ConfigurationError, match=r"can't be imported"):
            read_python_string("no_such_module:x")
        with pytest.raises(ConfigurationError, match=r"Did you mean 'dumps'"):
            read_python_string("json:dump_s")

    @pytest.mark.parametrize(
        "string",
        [
            "os:system",
            "mailer:x",
            "mail.examples_of_evil:x",
            "mail.config.models:os",
            "mail.config.models:os.system",
        ],
    )
    def test_allow_list_keeps_out(self, string: str) -> None:
        with pytest.raises(ConfigurationError, match=r"may not be imported"):
            read_python_string(string, allowed_prefixes=["mail.examples", "mail.config", "mail_x"])

    def test_allow_list_keeps_out_what_was_imported_from_elsewhere(self) -> None:
        with pytest.raises(ConfigurationError, match=r"may not be imported"):
            read_python_string(
                "mail.examples.weather_dummy.actions:sha256", allowed_prefixes=["mail.examples"]
            )

    def test_allow_list_lets_in(self) -> None:
        reference = "mail.examples.weather_dummy.actions:get_weather_forecast"
        assert callable(read_python_string(reference, allowed_prefixes=["mail.examples"]))
        assert read_python_string(f"{HERE}:PROMPT", allowed_prefixes=[HERE]) == PROMPT
        assert read_python_string(f"{HERE}:decorated", allowed_prefixes=[HERE]) is decorated

    @pytest.mark.parametrize(
        "string",
        [
            "mail.examples.weather_dummy.actions:get_weather_forecast.__globals__",
            "mail.examples.weather_dummy.actions:__builtins__",
            "mail.examples.weather_dummy.actions:__spec__.loader",
            "mail.examples.weather_dummy.actions:__doc__",
            "mail.examples.mafia.__main__:x",
        ],
    )
    def test_allow_list_keeps_out_special_names(self, string: str) -> None:
        with pytest.raises(ConfigurationError, match=r"__\w+__ is a special name of Python"):
            read_python_string(string, allowed_prefixes=["mail.examples"])
        assert "mail.examples.mafia.__main__" not in sys.modules

    def test_forbidden_modules_are_not_imported(self) -> None:
        with pytest.raises(ConfigurationError):
            read_python_string("antigravity:x", allowed_prefixes=["mail"])
        assert "antigravity" not in sys.modules

    def test_allow_list_holds_for_a_whole_swarm(self) -> None:
        entry = load_swarm("example-no-proxy", PACKAGED_SOURCE)
        assert build_swarm(entry, allowed_prefixes=["mail.examples"]).name == "example-no-proxy"
        with pytest.raises(ConfigurationError, match=r"may not be imported"):
            build_swarm(entry, allowed_prefixes=["mail.stdlib"])


@pytest.mark.parametrize(("address", "is_interswarm"), [("a", False), ("a@b", True), ("all", False)])
def test_target_address_is_interswarm(address: str, is_interswarm: bool) -> None:
    assert target_address_is_interswarm(address) is is_interswarm


def test_configuration_and_default_swarm_import_nothing_heavy() -> None:
    code = (
        "import sys; from mail.config import load_config; from mail.swarms_json import build_swarm, load_swarm;"
        "build_swarm(load_swarm('example-no-proxy'));"
        "print([m for m in ('httpx2', 'fastapi', 'rich', 'click', 'sqlite3', 'litellm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "[]"


class Point(BaseModel):
    x: int


def test_answers_have_the_schema_of_a_type_or_the_given_one() -> None:
    by_type = build(output_type=f"python::{HERE}:Point")
    assert by_type.output_schema == Point.model_json_schema()
    assert by_type.output_check is not None
    schema = {"type": "array"}
    assert build(output_schema=schema).output_schema == schema
    assert build().output_schema is None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"output_type": f"python::{HERE}:GLOBALS", "output_schema": {}}, "not both"),
        ({"output_schema": {"type": "strin"}}, "at #/type"),
        ({"output_type": f"python::{HERE}:PROMPT"}, "has no JSON Schema"),
    ],
)
def test_an_output_schema_that_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        build(**given)


def test_an_agent_is_as_strict_as_it_says_or_as_the_swarm() -> None:
    assert not build().agents["chief"].strict_tools
    assert build(strict_tools=True).agents["chief"].strict_tools
    assert not build(strict_tools=True, chief={"strict_tools": False}).agents["chief"].strict_tools


class _Model:
    llm = "openai/gpt-5-mini"

    async def __call__(self, _history: History, _choice: ToolChoice) -> AgentOutput:
        raise NotImplementedError


def test_an_agent_that_runs_has_every_setting_of_its_spec() -> None:
    given = AgentSpec(
        name="chief",
        factory=f"python::{HERE}:Factory",
        comm_targets=["aide"],
        actions=["look_up"],
        agent_params={"system": "s"},
        enable_entrypoint=True,
        enable_interswarm=True,
        can_complete_tasks=True,
        tool_format="completions",
        exclude_tools=["help"],
        mcp={"desk": MCPServer(url="https://example.com/mcp")},
        sequential=True,
        strict_tools=True,
        approve=["look_up"],
        description="leads",
        context=Context(at=0.7),
        reminders=True,
        copies=2,
        guards=[no_secrets()],
        skills=[Skill("refunds", "Use it.", "skills/refunds", "d", {"SKILL.md": "Pay."})],
    )
    for key, setting in AgentSpec.model_fields.items():
        assert given[key] != setting.get_default(call_default_factory=True), f"set {key} above"
    core = given.to_core(_Model())
    assert core.mcp_servers == ("desk",)
    assert AgentSpec.of_core("chief", core) == given.but(factory=BUILT_IN_PYTHON, agent_params={}, mcp={})
