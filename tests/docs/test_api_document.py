"""docs/api.md: it names every endpoint with the roles that may call it, and every field; its commands are run by
`test_documented_commands`."""

import re
from collections.abc import Iterator

import httpx2
import pytest
from pydantic import TypeAdapter
from support.processes.document_samples import DOCS
from support.processes.server import ServerProcess

from mail.core.task.events import EventKind
from mail.core.task.usage import Usage
from mail.http.routes.health import Health, Root, SwarmInfo
from mail.http.routes.interswarm import PostInterswarmMessage
from mail.http.routes.message import MessageOptions, PostMessage
from mail.http.routes.server import Status, Whoami
from mail.http.routes.usage import TaskCost, UsageReport
from mail.http.task_records import QueuedMessage, TaskRecord

TEXT = (DOCS / "api.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([A-Z]+) (/\S*)` \| ([a-z, ]+) \|", TEXT, re.MULTILINE)
SHAPES = (
    PostMessage,
    MessageOptions,
    PostInterswarmMessage,
    TaskRecord,
    QueuedMessage,
    Root,
    SwarmInfo,
    Health,
    Status,
    UsageReport,
    TaskCost,
    Usage,
    Whoami,
)


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[httpx2.Client]:
    """A client with a connection per request: the server may close an idle one just when it is used again."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    with httpx2.Client(base_url=server.url, timeout=30, limits=limits) as client:
        yield client


def test_every_endpoint(client: httpx2.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    served = {
        (method.upper(), re.sub(r"\{.*\}", "{name}", path))
        for path, methods in paths.items()
        for method in methods
    }
    documented = {(method, re.sub(r"\{.*\}", "{name}", path)) for method, path, _ in ROWS}
    assert documented == served | {("GET", "/ui")}


@pytest.mark.parametrize(("method", "path", "roles"), ROWS)
def test_who_may_call_it(
    server: ServerProcess, client: httpx2.Client, method: str, path: str, roles: str
) -> None:
    """Without a body most requests are refused, but for another reason than whose they are."""
    allowed = ["admin", "user", "agent", None] if roles == "public" else roles.split(", ")
    for role in ("admin", "user", "agent", None):
        headers = {"Authorization": f"Bearer {server.tokens[role]}"} if role else {}
        status = client.request(method, path.replace("{name}", "nobody"), headers=headers).status_code
        refusal = 403 if role else 401
        assert (status == refusal) == (role not in allowed), (role, status)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_field(shape: type) -> None:
    for name in TypeAdapter(shape).json_schema()["properties"]:
        assert re.search(rf"[`\"]{name}[`\"]", TEXT), name


def test_every_event() -> None:
    section = TEXT.partition("## Streams")[2].partition("\n## ")[0]
    for kind in EventKind:
        assert f"`{kind.value}`" in section, kind


def test_every_status(client: httpx2.Client) -> None:
    documented = set(re.findall(r"^\| (\d{3}) \|", TEXT, re.MULTILINE))
    paths = client.get("/openapi.json").json()["paths"]
    told = {status for methods in paths.values() for one in methods.values() for status in one["responses"]}
    assert documented == {status for status in told if status >= "400"} | {"405"}
