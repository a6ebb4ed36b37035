"""The operations table: each row is a method of the client, and describes the request that the method sends."""

import inspect
from typing import get_type_hints

import pytest
from fastapi.routing import APIRoute

from mail.client import MAILClient
from mail.client.operations import OPERATIONS, Operation
from mail.http.access import Admin
from mail.http.routes import load_routers

BY_ID = Operation("show", "GET", "/things/{thing_id}", repeated=("task_id",))


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_is_a_method(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(MAILClient, name))


def test_each_method_has_an_operation() -> None:
    methods = {
        name for name, _ in inspect.getmembers(MAILClient, inspect.isfunction) if not name.startswith("_")
    }
    assert methods - OPERATIONS.keys() == {
        "post_message_stream", "approve", "reject", "login", "aclose", "get_needs",
    }  # fmt: skip


def test_operations_for_admins_are_those_of_the_routes_that_admit_nobody_else() -> None:
    routes = [route for router in load_routers() for route in router.routes if isinstance(route, APIRoute)]
    gated = {
        (method, route.path)
        for route in routes
        if Admin in get_type_hints(route.endpoint, include_extras=True).values()
        for method in route.methods
    }
    operations = {(each.method, each.path): each.for_admins for each in OPERATIONS.values()}
    assert gated
    assert {each for each, for_admins in operations.items() if for_admins} == gated & operations.keys()


@pytest.mark.parametrize(("given", "path"), [("a b/c", "a%20b%2Fc"), (".", "%2E"), ("..", "%2E%2E")])
def test_parameters_in_the_path_are_quoted(given: str, path: str) -> None:
    request = BY_ID.request({"thing_id": given, "task_id": "t", "on": True, "off": False, "n": 2, "no": None})
    assert (request.url, request.body) == (f"/things/{path}", {"task_id": "t"})
    assert request.query == {"task_id": "t", "on": "true", "n": "2"}


def test_a_post_keeps_what_is_false() -> None:
    request = Operation("make", "POST", "/things").request({"run": False, "at": None})
    assert (request.query, request.body) == ({}, {"run": False})
