"""The OpenAPI document."""

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.processes.http_server import HTTPServer

from mail.http.routes.health import PostHealth
from mail.http.routes.message import PostMessage
from mail.http.routes.tasks import GetTask
from mail.testing.agents import build_swarm, complete

PUBLIC = {
    *(("/", "get"), ("/live", "get"), ("/health", "get"), ("/swarms", "get")),
    *(
        ("/sign-in", "get"),
        ("/sign-in", "post"),
        ("/callbacks/{token}", "post"),
        ("/files/shared/{link}", "get"),
        ("/task/shared", "get"),
    ),
}


@pytest.fixture
async def document(server: HTTPServer) -> dict[str, Any]:
    response = await server.client.get("/openapi.json", headers={"Authorization": ""})
    assert response.json() == server.app.openapi()
    document: dict[str, Any] = response.json()
    return document


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


async def test_every_operation_is_described(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for path, method, operation in operations(document):
        assert operation["summary"], path
        assert operation["description"], path
        assert len(operation["tags"]) == 1
        assert ("security" in operation) == ((path, method) not in PUBLIC)
        assert operation["responses"].keys() >= {"500", "503"}
        assert ("422" in operation["responses"]) == (
            path in ("/message", "/interswarm/message", "/task/fork")
        )
        for response in operation["responses"].values():
            assert response["description"] != "Successful Response", path
        if "security" in operation:
            assert operation["responses"].keys() >= {"401", "403"}
            assert operation["security"] == [{"bearer": []}]
        if "requestBody" in operation:
            assert operation["responses"].keys() >= {"400", "413"}
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


async def test_attributes_of_classes_are_described_as_properties(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert not [name for name, schema in schemas.items() if "Attributes:" in schema.get("description", "")]
    budget = schemas["Budget"]
    assert "checked before each turn" in budget["description"]
    assert budget["properties"]["tokens"]["description"] == "Tokens read and written by models."
    assert all("description" in each for each in budget["properties"].values())


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    used: set[str] = set()

    def follow(value: object) -> None:
        match value:
            case {"$ref": str(reference)}:
                name = reference.removeprefix("#/components/schemas/")
                if name not in used:
                    used.add(name)
                    follow(schemas[name])
            case dict():
                for child in value.values():
                    follow(child)
            case list():
                for child in value:
                    follow(child)

    follow(document["paths"])
    assert used == schemas.keys()
    assert used >= {model.__name__ for model in (PostMessage, PostHealth, GetTask)}
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


async def test_each_operation_with_parameters_or_a_body_documents_400(server: HTTPServer) -> None:
    """Query parameters and headers that can't be read get it, whatever the operation does."""
    document = (await server.client.get("/openapi.json")).json()
    missing = [
        f"{method.upper()} {path}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "400" not in operation["responses"]
        and (
            "requestBody" in operation
            or any(each["in"] != "path" for each in operation.get("parameters", ()))
        )
    ]
    assert not missing


async def test_debug_serves_a_page_of_the_endpoints() -> None:
    swarm = build_swarm({"supervisor": lambda _: [complete()]})
    async with HTTPServer(swarm, debug=True) as server:
        page = await server.client.get("/docs")
        assert page.status_code == 200
        assert "<code>POST /message</code> Send the swarm a message" in page.text
        assert not re.findall(r"<script|(?:src|href)=.?(?:https?:)?//", page.text), "nothing of other hosts"
        assert "default-src 'none'" in page.headers["content-security-policy"]
