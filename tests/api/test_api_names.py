"""Every name of the Python API that the seeds document (000, docs/api.md, docs/client.md and the guides), pinned.

What is a coroutine in MAIL 1.3.6 can be awaited, and what is a plain function there acts when it is called.
"""

import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from support.seeds import text_of
from support.services.templates import agent, template

import mail
import mail.api
from mail.api import MAILRuntime
from mail.client import MAILClient
from mail.core.task.swarm import AgentCore
from mail.net import InterswarmRouter, SwarmRegistry
from mail.testing.agents import View, complete

CONSTRUCTORS: dict[Any, str] = {
    mail.MAILAction: "name description parameters function",
    mail.MAILAgent: "name factory actions function comm_targets agent_params enable_entrypoint enable_interswarm "
    "can_complete_tasks tool_format exclude_tools",
    mail.MAILAgentTemplate: "name factory comm_targets actions agent_params enable_entrypoint enable_interswarm "
    "can_complete_tasks tool_format exclude_tools",
    mail.MAILSwarm: "name version agents actions entrypoint user_id user_role swarm_registry enable_interswarm "
    "breakpoint_tools exclude_tools task_message_limit description keywords enable_db_agent_histories "
    "print_llm_streams",
    mail.MAILSwarmTemplate: "name version agents actions entrypoint enable_interswarm breakpoint_tools exclude_tools "
    "task_message_limit description keywords public enable_db_agent_histories",
    MAILRuntime: "agents actions user_id user_role swarm_name entrypoint swarm_registry enable_interswarm "
    "breakpoint_tools exclude_tools enable_db_agent_histories print_llm_streams",
    SwarmRegistry: "local_swarm_name local_base_url persistence_file local_swarm_description local_swarm_keywords "
    "local_swarm_public",
    InterswarmRouter: "swarm_registry local_swarm_name",
}
"""In the order of the seeds; what else there is can only be given by its name."""

REGISTRY = "register_swarm start_health_checks stop_health_checks discover_swarms"
REGISTRY_AT_ONCE = (
    "register_local_swarm unregister_swarm get_swarm_endpoint get_resolved_auth_token get_all_endpoints "
    "get_active_endpoints get_persistent_endpoints save_persistent_endpoints load_persistent_endpoints "
    "cleanup_volatile_endpoints _get_auth_token_ref _resolve_auth_token_ref migrate_auth_tokens_to_env_refs "
    "validate_environment_variables to_dict"
)
ROUTER = "start stop is_running route_message _route_to_local_agent _route_to_remote_swarm"
ROUTER_AT_ONCE = (
    "register_message_handler _create_local_message _create_remote_message _system_router_message"
)
CLIENT = (
    "aclose ping get_whoami get_status get_health post_message post_message_stream get_tasks get_task get_swarms "
    "register_swarm dump_swarm load_swarm_from_json post_interswarm_message post_interswarm_response "
    "send_interswarm_message debug_post_responses"
)

METHODS: dict[Any, dict[str, str]] = {
    SwarmRegistry: dict.fromkeys(REGISTRY.split(), "await") | dict.fromkeys(REGISTRY_AT_ONCE.split(), ""),
    InterswarmRouter: dict.fromkeys(ROUTER.split(), "await") | dict.fromkeys(ROUTER_AT_ONCE.split(), ""),
    MAILClient: dict.fromkeys(CLIENT.split(), "await"),
    mail.MAILAction: {
        "from_pydantic_model": "model function name description",
        "from_swarm_json": "json_str",
        "to_tool_dict": "style",
        "to_pydantic_model": "for_tools",
        "to_core": "",
        "_validate": "",
        "_build_action_function": "function",
    },
    mail.MAILAgent: {
        "__call__": "await messages tool_choice",
        "_to_template": "names",
        "to_core": "",
        "_validate": "",
    },
    mail.MAILAgentTemplate: {
        "instantiate": "instance_params",
        "from_swarm_json": "json_str actions_by_name",
        "from_example": "name comm_targets",
        "_top_level_params": "",
        "_validate": "",
    },
    mail.MAILSwarm: {
        "post_message": "await body subject",
        "post_message_stream": "await body subject",
        "post_message_and_run": "await body subject",
        "submit_message": "await message",
        "submit_message_stream": "await message",
        "submit_message_nowait": "await message",
        "run_continuous": "await action_override",
        "shutdown": "await",
        "start_interswarm": "await",
        "stop_interswarm": "await",
        "is_interswarm_running": "await",
        "handle_interswarm_response": "await response_message",
        "route_interswarm_message": "await message",
        "get_pending_requests": "",
        "update_from_adjacency_matrix": "adj",
        "get_subswarm": "names name_suffix entrypoint",
        "build_message": "subject body targets sender_type type task_id",
        "await_queue_empty": "await",
        "manual_step": "await task_id target response_targets response_type payload dynamic_ctx_ratio _llm _system",
        "_validate": "",
    },
    mail.MAILSwarmTemplate: {
        "instantiate": "instance_params user_id user_role base_url registry_file print_llm_streams",
        "get_subswarm": "names name_suffix entrypoint",
        "update_from_adjacency_matrix": "adj",
        "from_swarm_json": "json_str",
        "from_swarm_json_file": "swarm_name json_filepath",
        "start_server": "port host launch_ui ui_port open_browser",
        "_build_adjacency_matrix": "",
        "_validate": "",
    },
    MAILRuntime: {
        "start_interswarm": "await",
        "stop_interswarm": "await",
        "is_interswarm_running": "await",
        "handle_interswarm_response": "await response_message",
        "_handle_local_message": "await message",
        "run": "await",
        "run_continuous": "await action_override",
        "submit": "await message",
        "submit_and_wait": "await message timeout",
        "submit_and_stream": "message timeout",
        "shutdown": "await",
        "_graceful_shutdown": "await",
        "get_events_by_task_id": "task_id",
    },
}
"""The first parameters of each; `await` stands before those of what can be awaited."""


def parameters(function: Any) -> list[str]:
    """The names of those that can be given by their place."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        name
        for name, each in inspect.signature(function).parameters.items()
        if each.kind in kinds and name not in ("self", "cls")
    ]


@pytest.mark.parametrize("kind", CONSTRUCTORS, ids=lambda kind: kind.__name__)
def test_constructors(kind: Any) -> None:
    assert parameters(kind.__init__) == CONSTRUCTORS[kind].split()


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, methods in METHODS.items() for name in methods]
)
def test_methods(kind: Any, name: str) -> None:
    method, documented = getattr(kind, name), METHODS[kind][name].split()
    if documented[:1] == ["await"]:
        assert can_be_awaited(method)
        del documented[0]
    else:
        assert not inspect.iscoroutinefunction(method)
    assert parameters(method)[: len(documented)] == documented


def can_be_awaited(function: Any) -> bool:
    returns = inspect.signature(function).return_annotation
    return inspect.iscoroutinefunction(function) or hasattr(returns, "__await__")


def test_the_decorator() -> None:
    documented = ["name", "description", "model", "parameters", "style"]
    assert set(documented) <= set(inspect.signature(mail.action).parameters)


def test_attributes_of_a_runtime() -> None:
    async def agent(_history: Any, _choice: Any) -> Any:
        return None, []

    core = AgentCore(function=agent, enable_entrypoint=True, can_complete_tasks=True)
    runtime = MAILRuntime({"supervisor": core}, {}, "ann", "user")
    assert (runtime.pending_requests, runtime.events, list(runtime.response_queue)) == ({}, {}, [])


def test_names_of_the_package() -> None:
    assert sorted(mail.api.__all__) == [
        "ActionOverrideFunction",
        "MAILAction",
        "MAILAgent",
        "MAILAgentTemplate",
        "MAILRuntime",
        "MAILSwarm",
        "MAILSwarmTemplate",
        "action",
        "idempotency_key",
    ]
    for name in mail.api.__all__:
        assert getattr(mail.api, name)
    assert set(mail.api.__all__) <= set(dir(mail.api))
    with pytest.raises(AttributeError, match="no attribute 'MAILSwrm'"):
        _ = mail.api.MAILSwrm


async def test_whether_a_swarm_is_connected() -> None:
    def answer(view: View) -> list[Any]:
        return [complete("done")]

    made = template(agent("boss", answer, supervises=True), enable_interswarm=True)
    swarm = made.instantiate({}, base_url="http://localhost:1")
    for source in (swarm, swarm.runtime):
        assert not source.is_interswarm_running()
        assert await source.is_interswarm_running() is False
    await swarm.start_interswarm()
    for source in (swarm, swarm.runtime):
        assert source.is_interswarm_running() == True  # noqa: E712 - as a program may compare
        assert await source.is_interswarm_running() is True
        assert str(source.is_interswarm_running()) == "True"
    await swarm.shutdown()
    router = InterswarmRouter(SwarmRegistry("alpha", "http://localhost:1"), "alpha")
    assert await router.is_running() is False
    await router.stop()


async def test_removals_act_when_called(tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    registry = SwarmRegistry("alpha", "http://localhost:1", file)
    for name, token in {"beta": None, "gamma": None, "delta": "t0ken"}.items():
        await registry.register_swarm(name, "http://localhost:1", token)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.unregister_swarm("beta")  # type: ignore[unused-awaitable]
        assert set(registry.get_all_endpoints()) == {"gamma", "delta"}
        assert "beta" not in file.read_text()
        registry.cleanup_volatile_endpoints()  # type: ignore[unused-awaitable]
        assert set(registry.get_all_endpoints()) == {"gamma"}
    assert await registry.unregister_swarm("gamma") is True
    assert await registry.unregister_swarm("gamma") is False
    assert await registry.cleanup_volatile_endpoints() == []
    await registry.stop()


def test_removals_act_without_an_event_loop(tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    file.write_text('{"endpoints": {"beta": {"base_url": "http://localhost:1"}}}')
    registry = SwarmRegistry("alpha", "http://localhost:1", file)
    registry.unregister_swarm("beta")  # type: ignore[unused-awaitable]
    assert registry.get_all_endpoints() == {}
    assert "beta" not in file.read_text()


def test_the_tables_have_every_function_of_the_reference() -> None:
    text = text_of("000")
    if not text:
        pytest.skip("the seeds are not here")
    for kind in METHODS.keys() - {MAILClient}:
        section = re.search(rf"\n#### `{kind.__name__}` \(.*?\n(.*?)(?=\n####? )", text, re.DOTALL)
        assert section is not None
        methods = section[1].partition("**Key methods**")[2]
        named = {name for name in re.findall(r"`(\w+)\(", methods) if hasattr(kind, name)}
        assert named <= METHODS[kind].keys()


def test_what_the_samples_await_is_a_coroutine() -> None:
    text = text_of("000")
    if not text:
        pytest.skip("the seeds are not here")
    awaited = dict[str, set[str]]()
    for source, name in re.findall(r"await (?:self\.)?(client|swarm|runtime|registry|router)\.(\w+)\(", text):
        awaited.setdefault(source, set()).add(name)
    kinds = {"client": MAILClient, "swarm": mail.MAILSwarm, "runtime": MAILRuntime, "registry": SwarmRegistry}
    assert awaited.keys() >= {"client", "swarm"}
    for source, names in awaited.items():
        kind = kinds.get(source, InterswarmRouter)
        assert [
            name for name in names if hasattr(kind, name) and not can_be_awaited(getattr(kind, name))
        ] == []
