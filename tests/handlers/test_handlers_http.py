"""The functions behind the HTTP API, each fed its sample event on a Lambda of our own: what they answer, and in which
shape.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from function_stage import ALICE, HTTP, Stage
from support.engines.lambda_runtime import ROOT, FunctionFailed, LambdaRuntime

from mail.core.task.files import file_id
from mail.core.task.task import TaskStatus
from mail.local_aws.deployment import read_template

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
NIGHTLY = {"name": "nightly", "cron": "0 3 * * *", "body": "2**10"}
LOADED = {"json": json.dumps({"name": "example-no-proxy"})}
DRAFT = {"agents": {"supervisor": {"system": "Be brief."}}}

DOMAIN = "a1b2c3d4e5.execute-api.us-east-1.amazonaws.com"
"""The domain of the HTTP API in sample events."""

Route = tuple[str, str, Any]

ROUTES: dict[str, list[Route]] = {
    "Root": [("GET", "/", None)],
    "Health": [("GET", "/live", None), ("GET", "/health", None), ("POST", "/health", {"status": "busy"})],
    "Whoami": [
        *(
            ("GET", "/whoami", None),
            ("GET", "/sign-in", None),
            ("POST", "/sign-in-links", {}),
            ("POST", "/sign-in", {"code": "no"}),
        ),
        *(("POST", "/tokens", {"role": "user", "id": "eve"}), ("GET", "/tokens", None)),
        *(("DELETE", "/tokens/99", None), ("GET", "/audit", None), ("POST", "/sign-out", {})),
    ],
    "Message": [
        ("POST", "/files?name=cat.png", PNG),
        ("GET", f"/files/{file_id(PNG)}", None),
        ("GET", "/files/shared/no", None),
        ("POST", "/message", {"body": "2**10", "task_id": "all", "files": [file_id(PNG)]}),
        ("POST", "/message", {"body": "2**11", "task_id": "later", "not_before": "2099-01-01T00:00:00Z"}),
        ("POST", "/task/fork", {"task_id": "all"}),
        ("POST", "/task/cancel", {"task_id": "all"}),
        ("DELETE", "/task?task_id=all", None),
        ("DELETE", "/task/timers/none?task_id=later", None),
        ("DELETE", "/task/calls/none?task_id=later", None),
        ("POST", "/callbacks/none", {"result": "done"}),
    ],
    "Status": [("GET", "/status", None)],
    "Task": [
        *(("GET", "/task?task_id=later", None), ("GET", "/task/turns?task_id=later", None)),
        *(("GET", "/task/turn?task_id=later&agent=supervisor&turn=1", None),),
        *(("GET", "/task/stream?task_id=all", None), ("GET", "/task/export?task_id=later", None)),
    ],
    "Threads": [("GET", "/threads", None), ("GET", "/threads/agent/none", None)],
    "Tasks": [
        *(("GET", "/tasks", None), ("GET", "/tasks?all=true", None), ("GET", "/usage", None)),
        *(
            ("GET", "/usage?all=true", None),
            ("GET", "/dead-letters", None),
            ("GET", "/swarms/versions", None),
        ),
        *(("GET", "/dead-letters?all=true", None), ("POST", "/dead-letters/redrive", {"all": True})),
        ("POST", "/dead-letters/discard", {"all": True}),
        ("POST", "/webhooks", {"url": "http://127.0.0.1:1/", "id": "mine"}),
        *(
            ("GET", "/webhooks", None),
            ("GET", "/webhooks?all=true", None),
            ("DELETE", "/webhooks/mine", None),
        ),
        *(("POST", "/schedules", NIGHTLY), ("GET", "/schedules", None), ("GET", "/schedules/nightly", None)),
        *(("POST", "/schedules/nightly", NIGHTLY), ("POST", "/schedules/nightly/run", {})),
        ("DELETE", "/schedules/nightly", None),
        *(("POST", "/task/shares", {"task_id": "later"}), ("GET", "/task/shares?task_id=later", None)),
        *(("DELETE", "/task/shares/none?task_id=later", None), ("GET", "/task/shared", None)),
        ("GET", "/task/comparison?task_id=later", None),
        *(("GET", "/approvals", None), ("GET", "/approvals/unknown", None)),
        ("POST", "/approvals/unknown", {"decision": "approve"}),
        *(("GET", "/approvals/unknown/token", None), ("POST", "/approvals/unknown/token", {})),
        *(("GET", "/holds", None), ("POST", "/holds", {"caller": "user:gone", "reason": "a law"})),
        ("DELETE", "/holds?caller=user:gone", None),
        *(("DELETE", "/callers/user:gone", None), ("GET", "/callers/user:gone", None)),
    ],
    "Swarms": [
        ("POST", "/swarms", {"name": "gamma", "base_url": "http://127.0.0.1:1"}),
        *(("GET", "/swarm", None), ("GET", "/swarms", None), ("GET", "/swarms/dump", None)),
        *(
            ("POST", "/swarms/check", LOADED),
            ("POST", "/swarms/load", LOADED),
            ("DELETE", "/swarms/gamma", None),
        ),
        *(("GET", "/drafts", None), ("POST", "/drafts/short", DRAFT), ("GET", "/drafts/short", None)),
        *(("POST", "/drafts/short/publish", None), ("DELETE", "/drafts/short/publish", None)),
        ("DELETE", "/drafts/short", None),
    ],
    "Mail2": [
        *(("GET", "/v2", None), ("GET", "/v2/health", None), ("GET", "/v2/auth/whoami", None)),
        ("POST", "/v2/admin/users", {"user_id": "ann", "user_password": "a-password"}),
        *(("GET", "/v2/admin/users", None), ("GET", "/v2/admin/users/ann", None)),
        ("POST", "/v2/admin/webhooks", {"url": "https://127.0.0.1/", "events": [], "secret": "s"}),
        ("POST", "/v2/admin/swarms", {"name": "team", "description": "", "keywords": []}),
        ("POST", "/v2/admin/lists", {"name": "tea", "swarm_name": "team", "owner": f"admin:root@{DOMAIN}"}),
        *(("GET", "/v2/swarms", None), ("GET", "/v2/lists", None), ("GET", "/v2/admin/webhooks", None)),
        *(("POST", "/v2/lists/tea@team/subscribe", None), ("GET", "/v2/inbox", None)),
        ("POST", "/v2/drafts", {"subject": "Tea", "body": "At four?"}),
        *(("GET", "/v2/drafts", None), ("GET", "/v2/outbox", None), ("GET", "/v2/trash", None)),
        *(("POST", "/v2/trash/clear", None), ("DELETE", "/v2/admin/users/ann", None)),
        ("DELETE", "/v2/admin/lists/tea@team", None),
    ],
    "Interswarm": [
        *(("POST", "/interswarm/forward", {}), ("POST", "/interswarm/back", {})),
        ("POST", "/interswarm/message", {"body": "2**10", "targets": ["math@gamma"], "task_id": "there"}),
    ],
}
"""What an admin asks each function for, in this order. Other tests bring mail of other swarms."""


ANSWERS = {200, 201, 202, 400, 401, 403, 404, 409, 422}
"""What functions answer that don't fail."""


def answer(result: dict[str, Any]) -> Any:
    """The JSON that an answer holds."""
    assert result["headers"]["content-type"] == "application/json"
    return json.loads(result["body"])


def well_shaped(result: dict[str, Any]) -> bool:
    """Whether it is an answer of payload format 2.0."""
    return (
        result.keys() <= {"statusCode", "headers", "cookies", "body", "isBase64Encoded"}
        and isinstance(result["statusCode"], int)
        and isinstance(result["body"], str)
        and all(isinstance(value, str) for value in result["headers"].values())
        and result["isBase64Encoded"] is False
    )


@pytest.mark.soak(on=("health", "status"))
@pytest.mark.parametrize("name", [name for name in HTTP if name not in ("message", "task", "interswarm")])
def test_a_sample_event_is_answered(stage: Stage, name: str) -> None:
    result = stage.invoke(name, stage.event(name))
    assert well_shaped(result), result
    assert result["statusCode"] == 200, result


def test_root_serves_what_no_other_function_does(stage: Stage) -> None:
    paths = answer(stage.ask("root", path="/openapi.json"))["paths"]
    assert {"/message", "/task", "/health"} <= paths.keys()
    assert stage.ask("root", path="/nowhere")["statusCode"] == 404
    assert stage.ask("root", path="/message")["statusCode"] == 405


def test_whoami_knows_the_key(stage: Stage) -> None:
    assert answer(stage.invoke("whoami", stage.event("whoami"))) == {"id": "alice", "role": "user"}


def test_a_browser_signs_in_by_a_link_and_out_again(stage: Stage) -> None:
    def post(path: str, key: str = "", **body: str) -> dict[str, Any]:
        result: dict[str, Any] = stage.ask("whoami", path=path, body=body, key=key)
        return result

    link = answer(post("/sign-in-links", stage.key("user", "alice")))
    session = answer(post("/sign-in", code=link["code"]))
    assert (session["role"], session["id"]) == ("user", "alice")
    assert post("/sign-in", code=link["code"])["statusCode"] == 401
    assert post("/sign-in-links", session["token"])["statusCode"] == 403
    assert answer(post("/sign-out", session["token"]))["revoked"] is True
    made = answer(post("/tokens", stage.key("admin", "root"), role="user", id="eve"))
    listed = answer(stage.ask("whoami", path="/tokens", key=stage.key("admin", "root")))["tokens"]
    found = {token["number"]: token["id"] for token in listed}
    assert found[made["number"]] == "eve"
    assert sorted(found.values()) == ["alice", "eve", "root"]


@pytest.mark.soak(on="interswarm")
@pytest.mark.parametrize(
    "name", ["whoami", "status", "message", "tasks", "task", "threads", "swarms", "interswarm"]
)
def test_nobody_gets_in_without_a_key(stage: Stage, name: str) -> None:
    event = stage.event(name)
    del event["headers"]["authorization"]
    result = stage.invoke(name, event)
    assert well_shaped(result)
    assert result["statusCode"] == 401
    assert "detail" in answer(result)


@contextmanager
def with_little_time(stage: Stage, name: str, event: dict[str, Any]) -> Iterator[LambdaRuntime]:
    """A function that has answered an event, with the first time limit that its cold start on this machine keeps."""
    timeout = 8
    while True:
        with stage.start(name, timeout=timeout) as running:
            try:
                running.invoke(event)
            except FunctionFailed as failure:
                if failure.type != "Sandbox.Timedout":
                    raise
                timeout *= 2
                continue
            yield running
            return


@pytest.mark.soak
def test_a_message_that_nobody_answers_in_time_is_accepted(stage: Stage) -> None:
    """The function would be ended at its time limit; it says where to look before."""
    with with_little_time(stage, "message", stage.request("message", body={})) as running:
        result = running.invoke(stage.event("message"))
    assert well_shaped(result)
    assert result["statusCode"] == 202
    assert result["headers"]["location"] == "/task?task_id=first"
    assert answer(result)["task_id"] == "first"
    assert stage.load("first").status is TaskStatus.RUNNING
    assert stage.work_off() >= 5
    assert stage.load("first").status is TaskStatus.COMPLETED


def test_a_message_is_answered_when_turns_are_run_meanwhile(stage: Stage) -> None:
    stage.invoke("turn", stage.event("turn"))
    body = {"body": "weather in Oslo and 2**10", "task_id": "answered", "show_events": True}
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(stage.ask, "message", body=body)
        while not waiting.done():
            stage.work_off()
    result = waiting.result()
    assert result["statusCode"] == 200, result
    said = answer(result)
    assert "1024" in said["response"]
    assert said["events"]


@pytest.mark.soak
def test_an_answer_that_a_function_cannot_send_says_how_to_get_less(stage: Stage) -> None:
    body = {"body": "x" * 1_600_000, "task_id": "large"}
    assert stage.ask("message", body=body, prefer="respond-async")["statusCode"] == 202
    refused = stage.ask("task", query="task_id=large")
    assert refused["statusCode"] == 413
    assert "fields=summary" in answer(refused)["detail"]
    assert answer(stage.ask("task", query="task_id=large&fields=summary"))["stored_bytes"] > 1_600_000


def test_a_swarm_that_is_loaded_is_what_other_functions_run(stage: Stage) -> None:
    swarm = answer(stage.invoke("swarms", stage.event("swarms")))["swarm"]
    body = {"json": json.dumps({**swarm, "version": "9.9.9"})}
    load = stage.request("swarms", path="/swarms/load", body=body)
    headers = {**load["headers"], "authorization": f"Bearer {stage.key('user', 'alice')}"}
    assert stage.invoke("swarms", {**load, "headers": headers})["statusCode"] == 403
    assert stage.invoke("swarms", load)["statusCode"] == 200
    with stage.start("swarms") as other:
        assert answer(other.invoke(stage.event("swarms")))["swarm"]["version"] == "9.9.9"
    with stage.start("turn") as turns:
        assert turns.invoke(stage.event("turn")) == {"batchItemFailures": []}
        assert any("is the one that was loaded on" in record.get("message", "") for record in turns.records)


@pytest.fixture(scope="module")
def done(stage: Stage) -> str:
    """A task that has been answered."""
    body = {"body": "what is 2**10", "task_id": "done"}
    result = stage.ask("message", body=body, prefer="respond-async")
    assert result["statusCode"] == 202
    stage.work_off()
    return "done"


def test_an_answered_task_can_be_read_as_a_stream_in_one_piece(stage: Stage, done: str) -> None:
    event = stage.request("task", path="/task/stream", query=f"task_id={done}")
    result = stage.invoke("task", event)
    assert well_shaped(result)
    assert result["headers"]["content-type"].startswith("text/event-stream")
    assert "event: task_complete" in result["body"]
    assert "1024" in result["body"]


@pytest.mark.soak
def test_a_stream_of_a_task_that_goes_on_ends_before_its_function(stage: Stage) -> None:
    body = {"body": "what is 2**10", "task_id": "going on"}
    stage.ask("message", body=body, prefer="respond-async")
    with with_little_time(stage, "task", stage.event("task")) as running:
        result = running.invoke(stage.request("task", path="/task/stream", query="task_id=going%20on"))
    assert result["statusCode"] == 200
    assert "event: task_complete" not in result["body"]
    assert "id: 1" in result["body"]
    assert stage.work_off() >= 1
    assert stage.load("going on", ALICE).status is TaskStatus.COMPLETED


def test_a_file_is_uploaded_sent_and_fetched(stage: Stage) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
    image = {"content-type": "image/png"}
    stored = stage.ask("message", path="/files", query="name=cat.png", body=picture, **image)
    assert stored["statusCode"] == 201, stored
    file = answer(stored)
    body = {"body": "weather in Oslo", "files": [file["id"]], "task_id": "with-a-file"}
    sent = stage.ask("message", body=body, prefer="respond-async")
    assert sent["statusCode"] == 202, sent
    stage.work_off()
    assert stage.load("with-a-file").status is TaskStatus.COMPLETED
    fetch = stage.request("message", method="GET", path=f"/files/{file['id']}")
    fetched = stage.invoke("message", fetch)
    assert (fetched["statusCode"], fetched["headers"]["content-type"]) == (200, "image/png")
    assert b64decode(fetched["body"]) == picture
    deleted = stage.ask("message", method="DELETE", path="/task", query="task_id=with-a-file")
    assert deleted["statusCode"] == 200
    assert stage.invoke("message", fetch)["statusCode"] == 404


def ask(stage: Stage, name: str, method: str, path: str, body: Any) -> Any:
    """The answer of a function to an admin."""
    path, _, query = path.partition("?")
    given = {"path": path, "query": query, "key": stage.key("admin", "root"), "prefer": "respond-async"}
    event = stage.request(name.lower(), method=method, body=b"" if body is None else body, **given)
    return stage.invoke(name.lower(), event)


def test_the_routes_here_are_those_of_the_template() -> None:
    resources = read_template(ROOT / "template.yaml")["Resources"]
    found = {}
    for name, resource in resources.items():
        events = resource["Properties"].get("Events", {}) if resource["Type"].endswith("::Function") else {}
        routes = [each["Properties"] for each in events.values() if each["Type"] == "HttpApi"]
        if routes:
            found[name.removesuffix("Function")] = {
                (each["Method"], each["Path"]) for each in routes if "Path" in each
            }
    for name, wanted in found.items():
        missing = {
            f"{method} {path}"
            for method, path in wanted
            if not any(method in (asked, "ANY") and _fits(path, given) for asked, given, _ in ROUTES[name])
        }
        assert missing == set(), name
    assert found.keys() == ROUTES.keys()


def _fits(path: str, given: str) -> bool:
    path = path.replace("{thread_id+}", "{kind}/{id}").replace("{path+}", "{box}")  # they have several parts
    parts, others = path.split("/"), given.partition("?")[0].split("/")
    return len(parts) == len(others) and all(
        part.startswith("{") or part == other for part, other in zip(parts, others, strict=True)
    )


@pytest.mark.parametrize("name", ROUTES)
def test_each_route_may_do_what_it_does(stage: Stage, name: str) -> None:
    """`nothing_is_refused` looks at what IAM was asked."""
    if stage.code != "source":
        pytest.skip("the same roles")
    for method, path, body in ROUTES[name]:
        result = ask(stage, name, method, path, body)
        assert result["statusCode"] in ANSWERS, (method, path, result)
    stage.work_off()
