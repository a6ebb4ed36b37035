"""What is a coroutine in MAIL 1.3.6 can be awaited, and what is a plain function there acts when it is called.

The tables list the functions of the class reference (seed 000, docs/api.md) and of the client's (docs/client.md).
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
from mail.client import MAILClient
from mail.core.runtime import MAILRuntime
from mail.net import InterswarmRouter, SwarmRegistry
from mail.testing.agents import View, complete

COROUTINES: dict[Any, str] = {
    mail.MAILSwarm: "post_message post_message_stream post_message_and_run submit_message submit_message_stream "
    "submit_message_nowait run_continuous shutdown start_interswarm stop_interswarm is_interswarm_running "
    "handle_interswarm_response route_interswarm_message await_queue_empty manual_step",
    MAILRuntime: "start_interswarm stop_interswarm is_interswarm_running handle_interswarm_response "
    "_handle_local_message run run_continuous submit submit_and_wait shutdown _graceful_shutdown",
    SwarmRegistry: "register_swarm start_health_checks stop_health_checks discover_swarms",
    InterswarmRouter: "start stop is_running route_message _route_to_local_agent _route_to_remote_swarm",
    MAILClient: "aclose ping get_whoami get_status get_health post_message post_message_stream get_tasks get_task "
    "get_swarms register_swarm dump_swarm load_swarm_from_json post_interswarm_message post_interswarm_response "
    "send_interswarm_message debug_post_responses",
}

PLAIN: dict[Any, str] = {
    mail.MAILAction: "from_pydantic_model from_swarm_json to_tool_dict to_pydantic_model _validate",
    mail.MAILAgent: "_to_template to_core _validate",
    mail.MAILAgentTemplate: "instantiate from_swarm_json from_example _top_level_params _validate",
    mail.MAILSwarm: "get_pending_requests update_from_adjacency_matrix get_subswarm build_message _validate",
    mail.MAILSwarmTemplate: "instantiate get_subswarm update_from_adjacency_matrix from_swarm_json "
    "from_swarm_json_file start_server _build_adjacency_matrix _validate",
    MAILRuntime: "submit_and_stream get_events_by_task_id",  # an async generator: iterated over, not awaited
    SwarmRegistry: "register_local_swarm unregister_swarm get_swarm_endpoint get_resolved_auth_token "
    "get_all_endpoints get_active_endpoints get_persistent_endpoints save_persistent_endpoints "
    "load_persistent_endpoints cleanup_volatile_endpoints _get_auth_token_ref _resolve_auth_token_ref "
    "migrate_auth_tokens_to_env_refs validate_environment_variables to_dict",
    InterswarmRouter: "register_message_handler _create_local_message _create_remote_message _system_router_message",
}


def listed(table: dict[Any, str]) -> list[Any]:
    return [
        pytest.param(kind, name, id=f"{kind.__name__}.{name}")
        for kind, names in table.items()
        for name in names.split()
    ]


def can_be_awaited(function: Any) -> bool:
    returns = inspect.signature(function).return_annotation
    return inspect.iscoroutinefunction(function) or hasattr(returns, "__await__")


@pytest.mark.parametrize(("kind", "name"), listed(COROUTINES))
def test_coroutines_can_be_awaited(kind: Any, name: str) -> None:
    assert can_be_awaited(getattr(kind, name))


@pytest.mark.parametrize(("kind", "name"), listed(PLAIN))
def test_plain_functions_act_when_called(kind: Any, name: str) -> None:
    assert not inspect.iscoroutinefunction(getattr(kind, name))


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
    for kind in {*COROUTINES, *PLAIN} - {MAILClient}:
        section = re.search(rf"\n#### `{kind.__name__}` \(.*?\n(.*?)(?=\n####? )", text, re.DOTALL)
        assert section is not None
        methods = section[1].partition("**Key methods**")[2]
        named = {name for name in re.findall(r"`(\w+)\(", methods) if hasattr(kind, name)}
        known = set(f"{COROUTINES.get(kind, '')} {PLAIN.get(kind, '')}".split())
        assert named - known - {"__call__", "_build_action_function"} == set()


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
