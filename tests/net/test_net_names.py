"""Every name of `mail.net` that the seeds document (000, docs/api.md), pinned."""

import inspect
import subprocess
import sys

from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.task.ports import Peers
from mail.net import InterswarmRouter, SwarmRegistry
from mail.net.registry import SwarmRegistry as Registry
from mail.net.router import InterswarmRouter as Router
from mail.net.types import SwarmEndpoint, SwarmEndpointCleaned


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
