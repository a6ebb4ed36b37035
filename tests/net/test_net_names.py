"""Every name of `mail.net` that the seeds document (000, docs/api.md), pinned."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.task.ports import Peers
from mail.net import InterswarmRouter, SwarmRegistry
from mail.net.registry import SwarmRegistry as Registry
from mail.net.router import InterswarmRouter as Router
from mail.net.types import SwarmEndpoint, SwarmEndpointCleaned

CONSTRUCTORS: dict[Any, str] = {
    SwarmRegistry: "local_swarm_name local_base_url persistence_file local_swarm_description local_swarm_keywords "
    "local_swarm_public",
    InterswarmRouter: "swarm_registry local_swarm_name",
}

METHODS: dict[Any, str] = {
    SwarmRegistry: "register_local_swarm register_swarm unregister_swarm get_swarm_endpoint get_resolved_auth_token "
    "get_all_endpoints get_active_endpoints get_persistent_endpoints save_persistent_endpoints "
    "load_persistent_endpoints cleanup_volatile_endpoints start_health_checks stop_health_checks discover_swarms "
    "_get_auth_token_ref _resolve_auth_token_ref migrate_auth_tokens_to_env_refs validate_environment_variables "
    "to_dict",
    InterswarmRouter: "start stop is_running register_message_handler route_message _route_to_local_agent "
    "_route_to_remote_swarm _create_local_message _create_remote_message _system_router_message",
}


@pytest.mark.parametrize("kind", CONSTRUCTORS, ids=lambda kind: kind.__name__)
def test_constructors(kind: Any) -> None:
    parameters = inspect.signature(kind).parameters.values()
    given_by_place = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert given_by_place == CONSTRUCTORS[kind].split()


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_methods(kind: Any) -> None:
    for name in METHODS[kind].split():
        assert callable(getattr(kind, name)), name


def test_homes() -> None:
    assert (Registry, Router) == (SwarmRegistry, InterswarmRouter)
    assert list(SwarmEndpointCleaned.model_fields) == [
        "swarm_name",
        "base_url",
        "version",
        "last_seen",
        "is_active",
        "latency",
        "swarm_description",
        "keywords",
        "metadata",
    ]
    assert {"health_check_url", "auth_token_ref", "volatile"} <= SwarmEndpoint.model_fields.keys()


def test_a_router_is_what_the_engine_needs() -> None:
    for name, method in inspect.getmembers(Peers, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(InterswarmRouter, name)) == inspect.signature(method), name
    assert MAILInterswarmMessage.__name__ in str(inspect.signature(InterswarmRouter.deliver))


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = "import mail.net, sys; print(*{'httpx2', 'botocore', 'fastapi'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
