"""Every name of the Python API that the seeds document (000, docs/api.md and the guides), pinned."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

import mail
import mail.api
from mail.api import MAILRuntime
from mail.core.task.swarm import AgentCore

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
}
"""In the order of the seeds; what else there is can only be given by its name."""

METHODS: dict[Any, dict[str, str]] = {
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
        "__call__": "messages tool_choice",
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
        "post_message": "body subject",
        "post_message_stream": "body subject",
        "post_message_and_run": "body subject",
        "submit_message": "message",
        "submit_message_stream": "message",
        "submit_message_nowait": "message",
        "run_continuous": "action_override",
        "shutdown": "",
        "start_interswarm": "",
        "stop_interswarm": "",
        "is_interswarm_running": "",
        "handle_interswarm_response": "response_message",
        "route_interswarm_message": "message",
        "get_pending_requests": "",
        "update_from_adjacency_matrix": "adj",
        "get_subswarm": "names name_suffix entrypoint",
        "build_message": "subject body targets sender_type type task_id",
        "await_queue_empty": "",
        "manual_step": "task_id target response_targets response_type payload dynamic_ctx_ratio _llm _system",
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
        "start_interswarm": "",
        "stop_interswarm": "",
        "is_interswarm_running": "",
        "handle_interswarm_response": "response_message",
        "_handle_local_message": "message",
        "run": "",
        "run_continuous": "action_override",
        "submit": "message",
        "submit_and_wait": "message timeout",
        "submit_and_stream": "message timeout",
        "shutdown": "",
        "_graceful_shutdown": "",
        "get_events_by_task_id": "task_id",
    },
}


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
    documented = METHODS[kind][name].split()
    assert parameters(getattr(kind, name))[: len(documented)] == documented


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


def loaded(statement: str) -> set[str]:
    """Which of the heavy modules a statement loads in a fresh interpreter."""
    heavy = ("fastapi", "httpx2", "litellm", "rich", "sqlite3", "sse_starlette", "starlette", "uvicorn")
    code = f"import sys; {statement}; print(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.full
@pytest.mark.parametrize(
    "statement",
    [
        "from mail import MAILAction, action",
        "from mail import MAILAgentTemplate, MAILSwarmTemplate",
        "from mail import MAILSwarm",
        "from mail.core.runtime import MAILRuntime",
        "from mail.examples.weather_dummy.template import TEMPLATE",
        "from mail.factories import LiteLLMSupervisorFunction",
    ],
)
def test_defining_a_swarm_loads_nothing_heavy(statement: str) -> None:
    assert loaded(statement) == set()
