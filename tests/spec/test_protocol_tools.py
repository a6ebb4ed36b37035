"""SPEC, section 6: the declarations of the MAIL tools, in both styles."""

from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mail.core.protocol import tool_schemas as tools
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.tool_schemas import ToolFormat, declared_name
from mail.core.task.swarm import ActionCore, AgentCore
from mail.errors import ConfigurationError
from mail.testing.agents import build_swarm, output, scripted, turns, wait

STYLES: list[ToolFormat] = ["completions", "responses"]
TARGETS = ["weather", "math"]

WITH_TARGETS = {
    "send_request": tools.create_request_tool,
    "send_response": tools.create_response_tool,
    "send_interrupt": tools.create_interrupt_tool,
}
NAMED: dict[str, Callable[[ToolFormat], dict[str, Any]]] = {
    "send_broadcast": tools.create_broadcast_tool,
    "send_interswarm_broadcast": tools.create_interswarm_broadcast_tool,
    "discover_swarms": tools.create_swarm_discovery_tool,
    "acknowledge_broadcast": tools.create_acknowledge_broadcast_tool,
    "ignore_broadcast": tools.create_ignore_broadcast_tool,
    "await_message": tools.create_await_message_tool,
    "help": tools.create_help_tool,
    "task_complete": tools.create_task_complete_tool,
}


def declare(name: str, style: ToolFormat, *, enable_interswarm: bool = False) -> dict[str, Any]:
    if name in WITH_TARGETS:
        return WITH_TARGETS[name](TARGETS, enable_interswarm, style)
    return tools.declare(MAIL_TOOLS[name], style)


def function_of(declaration: dict[str, Any], style: ToolFormat) -> dict[str, Any]:
    """The part that both styles have; asserts the shape of the rest."""
    assert declaration["type"] == "function"
    if style == "completions":
        assert declaration.keys() == {"type", "function"}
        function: dict[str, Any] = declaration["function"]
    else:
        function = {name: value for name, value in declaration.items() if name not in ("type", "strict")}
    assert function.keys() == {"name", "description", "parameters"}
    return function


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", NAMED)
def test_documented_functions_declare_their_tools(name: str, style: ToolFormat) -> None:
    assert NAMED[name](style) == declare(name, style)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", MAIL_TOOLS)
def test_a_declaration_says_what_the_tool_takes(name: str, style: ToolFormat) -> None:
    function = function_of(declare(name, style), style)
    parameters = function["parameters"]
    Draft202012Validator.check_schema(parameters)
    assert function["name"] == name == declared_name(declare(name, style))
    assert function["description"]
    assert list(parameters["properties"]) == list(MAIL_TOOLS[name].arguments())
    assert all(argument["description"] for argument in parameters["properties"].values())
    required = [field for field, info in MAIL_TOOLS[name].model_fields.items() if info.is_required()]
    assert parameters.get("required", []) == required


@pytest.mark.parametrize("name", MAIL_TOOLS)
def test_both_styles_declare_the_same(name: str) -> None:
    assert function_of(declare(name, "completions"), "completions") == function_of(
        declare(name, "responses"), "responses"
    )


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", WITH_TARGETS)
def test_targets_are_a_choice_within_the_swarm_and_a_hint_beyond_it(name: str, style: ToolFormat) -> None:
    local = function_of(declare(name, style), style)["parameters"]["properties"]["target"]
    assert local["enum"] == TARGETS
    beyond = function_of(declare(name, style, enable_interswarm=True), style)
    target = beyond["parameters"]["properties"]["target"]
    assert "enum" not in target
    assert "weather, math" in target["description"]
    assert "agent@swarm" in target["description"]


@pytest.mark.parametrize("style", STYLES)
def test_agents_and_supervisors_get_their_tools(style: ToolFormat) -> None:
    def names(declarations: list[dict[str, Any]]) -> set[str]:
        return {function_of(declaration, style)["name"] for declaration in declarations}

    everybody = {"send_request", "send_response", "acknowledge_broadcast", "ignore_broadcast"}
    everybody |= {"await_message", "help"}
    assert names(tools.create_mail_tools(TARGETS, style=style)) == everybody
    assert names(tools.create_mail_tools(TARGETS, style=style, exclude_tools=["help"])) == everybody - {
        "help"
    }
    local = {"send_interrupt", "send_broadcast"}
    beyond = {"send_interswarm_broadcast", "discover_swarms"}
    done = {"task_complete"}
    assert names(tools.create_supervisor_tools(TARGETS, style=style)) == local | done
    both = tools.create_supervisor_tools(TARGETS, enable_interswarm=True, style=style)
    assert names(both) == local | beyond | done == MAIL_TOOLS.keys() - everybody - {"read_more", "remind_me"}
    subordinate = tools.create_supervisor_tools(TARGETS, can_complete_tasks=False, style=style)
    assert names(subordinate) == local


def test_a_declaration_of_another_style_is_refused() -> None:
    with pytest.raises(ValueError, match="style must be"):
        tools.create_help_tool("xml")


async def _act(_args: dict[str, Any]) -> str:
    return "done"


@pytest.mark.parametrize("name", MAIL_TOOLS)
def test_no_action_may_take_the_name_of_a_mail_tool(name: str) -> None:
    supervisor = AgentCore(scripted(turns()), enable_entrypoint=True, can_complete_tasks=True)
    with pytest.raises(ConfigurationError, match=name):
        build_swarm({"supervisor": supervisor}, actions={name: ActionCore(name, _act)})


@pytest.mark.parametrize("style", STYLES)
def test_a_call_gets_its_result_in_the_style_it_was_made_in(style: ToolFormat) -> None:
    [call] = output([wait()], tool_format=style)
    assert call.tool_format == style
    result = call.create_response_msg("SUCCESS: waiting")
    if style == "completions":
        assert result == {"role": "tool", "tool_call_id": call.tool_call_id, "content": "SUCCESS: waiting"}
    else:
        assert result == {
            "type": "function_call_output",
            "call_id": call.tool_call_id,
            "output": "SUCCESS: waiting",
        }
