"""The functions between swarms, each on a Lambda of our own; the other swarm is a server of this process."""

import asyncio
import json
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from function_stage import Stage
from support.engines.lambda_runtime import LambdaRuntime
from support.processes.projects import entry, supervisor, write_project
from support.services.peer_server import PeerServer

from mail.core.task.files import make_reference
from mail.core.task.task import TaskKey, TaskStatus

DISCOVERS = """
from mail.factories.rules import call, complete, rule_based

@rule_based
async def make(view):
    if not view.results:
        return [call("discover_swarms", discovery_urls=[view.mail.body])]
    return [complete(view.results[-1])]
"""

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
NOTHING_FAILED: dict[str, list[Any]] = {"batchItemFailures": []}
BETA = "swarm:swarm-beta@example-no-proxy"
SIGNATURE = "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20261121/us-east-1/lambda/aws4_request, Signature=0123"


def through_url(event: dict[str, Any], *, method: str = "", path: str = "") -> dict[str, Any]:
    """A request as it comes through a function URL that wants it to be signed: the key is in a header of its own."""
    context = event["requestContext"]
    http = {
        **context["http"],
        "method": method or context["http"]["method"],
        "path": path or event["rawPath"],
    }
    headers = {
        **event["headers"],
        "host": "abc.lambda-url.us-east-1.on.aws",
        "authorization": SIGNATURE,
        "x-mail-authorization": event["headers"]["authorization"],
    }
    return {
        **event,
        "routeKey": "$default",
        "rawPath": http["path"],
        "headers": headers,
        "requestContext": {
            **context,
            "domainName": headers["host"],
            "routeKey": "$default",
            "http": http,
            "authorizer": {"iam": {"accountId": "444455556666"}},
        },
    }


def brought(stage: Stage, message_id: str, task_id: str, **changes: Any) -> dict[str, Any]:
    """The sample event, with another message for another task."""
    event = stage.event("interswarm")
    message = json.loads(event["body"])["message"]
    message |= {"message_id": message_id, **changes}
    message["payload"]["task_id"] = task_id
    event["body"] = json.dumps({"message": message})
    event["headers"]["content-length"] = str(len(event["body"]))
    return event


def registered(stage: Stage, name: str, url: str, **fields: Any) -> dict[str, Any]:
    """The event that registers a swarm."""
    body = {"name": name, "base_url": url, "volatile": False, **fields}
    return stage.request("swarms", path="/swarms", body=body)


class TestMailFromThere:
    @pytest.fixture(autouse=True)
    def beta(self, stage: Stage) -> None:
        """The swarm that sends is registered, or it could not be answered."""
        result = stage.invoke("swarms", registered(stage, "swarm-beta", "http://127.0.0.1:1"))
        assert result["statusCode"] == 200, result

    def test_a_swarm_that_could_not_be_answered_is_refused(self, stage: Stage) -> None:
        event = brought(stage, "stranger", "stranger", source_swarm="swarm-gamma")
        event["headers"]["authorization"] = f"Bearer {stage.key('agent', 'swarm-gamma')}"
        result = stage.invoke("interswarm", event)
        assert result["statusCode"] == 403
        assert "'swarm-gamma' is not registered at" in result["body"]

    def test_the_sample_begins_a_task_which_is_answered(self, stage: Stage) -> None:
        for _ in range(2):  # the same message is taken once
            result = stage.invoke("interswarm", stage.event("interswarm"))
            assert result["statusCode"] == 200, result
            assert json.loads(result["body"]) == {
                "swarm": "example-no-proxy",
                "task_id": "asked-by-beta",
                "status": "success",
                "local_runner": BETA,
            }
        stage.work_off()
        task = stage.load("asked-by-beta", BETA)
        assert task.generation.turns >= 1
        (delivery,) = stage.deliveries()
        assert json.loads(delivery["body"]) == {
            "instance": BETA,
            "task_id": "asked-by-beta",
            "mailbox": "@swarm-beta",
            "seq": json.loads(delivery["body"])["seq"],
        }
        stage.delete(delivery)

    def test_a_signed_request_carries_its_key_in_another_header(self, stage: Stage) -> None:
        event = through_url(brought(stage, "signed", "signed"))
        assert stage.invoke("interswarm", event)["statusCode"] == 200
        assert stage.load("signed", BETA).status is TaskStatus.RUNNING
        del event["headers"]["x-mail-authorization"]
        assert stage.invoke("interswarm", event)["statusCode"] == 401
        stage.work_off()
        for delivery in stage.deliveries():
            stage.delete(delivery)

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [("GET", "/", 200), ("GET", "/health", 200), ("GET", "/whoami", 404), ("GET", "/tasks", 404)],
    )
    def test_its_url_tells_other_swarms_who_this_is_and_nothing_else(
        self, stage: Stage, method: str, path: str, status: int
    ) -> None:
        event = through_url(stage.event("whoami"), method=method, path=path)
        result = stage.invoke("interswarm", event)
        assert result["statusCode"] == status, result
        if status == 200:
            assert "example-no-proxy" in result["body"]


@contextmanager
def served(peer: PeerServer) -> Iterator[PeerServer]:
    """Let a server run on a thread of its own, as functions are waited for on this one."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(timeout=30)

    try:
        run(peer.__aenter__())
        try:
            yield peer
        finally:
            run(peer.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def asked(stage: Stage, task_id: str) -> dict[str, Any]:
    """The event by which alice asks an agent of the other swarm."""
    body = {"body": "2**10", "targets": ["math@swarm-beta"], "task_id": task_id}
    return stage.request("message", path="/interswarm/message", body=body, prefer="respond-async")


@pytest.fixture(scope="module")
def path(stage: Stage) -> dict[str, str]:
    """Says where SSM has the token of the other swarm."""
    return stage.put_secret("outbound/SWARM_AUTH_TOKEN_SWARM_BETA", "the-key-for-beta")


class TestFilesFromThere:
    @pytest.mark.parametrize("is_known", [True, pytest.param(False, marks=pytest.mark.soak)])
    def test_a_turn_fetches_them_where_the_swarm_is_registered(self, stage: Stage, is_known: bool) -> None:
        """Its role can't read the registry; what the message itself says of the place counts for nothing."""
        task_id = f"with a file, {is_known}"
        with served(PeerServer("swarm-beta")) as peer:
            assert stage.invoke("swarms", registered(stage, peer.name, peer.url))["statusCode"] == 200
            peer.requests.clear()
            peer.answers["/files/shared/the-link"] = 200, PNG
            event = brought(stage, task_id, task_id)
            message = json.loads(event["body"])["message"]
            file = make_reference(PNG + b"!" * (not is_known), "cat.png")
            at = {"swarm": "swarm-beta" if is_known else "swarm-none", "link": "the-link", "origin": peer.url}
            message["payload"]["routing_info"] = {"files": [{**file.as_json(), **at}]}
            event["body"] = json.dumps({"message": message})
            event["headers"]["content-length"] = str(len(event["body"]))
            with stage.start("interswarm") as unaware:  # another one may remember where the swarm was
                assert unaware.invoke(event)["statusCode"] == 200
            stage.work_off()
            assert [path for path in peer.paths() if "files" in path] == ["/files/shared/the-link"] * is_known
        kept = asyncio.run(stage.table.files.files_of(TaskKey(BETA, task_id)))
        assert [each.id for each in kept] == [file.id] * is_known
        for delivery in stage.deliveries():
            stage.delete(delivery)

    def test_the_url_for_signed_requests_has_the_files_of_mail(self, stage: Stage) -> None:
        event = through_url(stage.event("whoami"), method="GET", path="/files/shared/none")
        result = stage.invoke("interswarm", event)
        assert (result["statusCode"], "no file" in result["body"]) == (404, True)


class TestMailToThere:
    @pytest.fixture
    def peer(self, stage: Stage) -> Iterator[PeerServer]:
        """Another swarm, registered here."""
        with served(PeerServer("swarm-beta")) as server:
            result = stage.invoke("swarms", registered(stage, server.name, server.url))
            assert result["statusCode"] == 200, result
            assert "SWARM_AUTH_TOKEN_SWARM_BETA" in json.loads(result["body"])["notes"][0]
            server.requests.clear()
            yield server

    @pytest.fixture
    def outbound(self, stage: Stage, path: dict[str, str]) -> Iterator[LambdaRuntime]:
        """The function that delivers, with the path of the tokens."""
        with stage.start("outbound", path) as running:
            yield running

    def ask(self, stage: Stage, task_id: str) -> dict[str, Any]:
        """The token of a delivery."""
        result = stage.invoke("interswarm", asked(stage, task_id))
        assert result["statusCode"] == 202, result
        (record,) = stage.deliveries()
        return record

    def test_it_is_handed_over_once_with_the_token_of_ssm(
        self, stage: Stage, peer: PeerServer, outbound: LambdaRuntime
    ) -> None:
        record = self.ask(stage, "handed over")
        for _ in range(2):
            result = outbound.invoke({"Records": [record]})
            assert result == NOTHING_FAILED
        assert "the-key-for-beta" not in outbound.log
        metrics = [each for each in outbound.records if "_aws" in each]
        assert peer.paths() == ["/interswarm/forward"]
        (request,) = peer.requests
        assert request.headers["authorization"] == "Bearer the-key-for-beta"
        assert request.json["message"]["task_owner"] == "user:alice@example-no-proxy"
        assert sum(each.get("DeliveryAttempts", 0) for each in metrics) == 1
        assert sum(each.get("IdleWakeUps", 0) for each in metrics) == 1
        task = stage.load("handed over")
        assert "swarm:example-no-proxy@swarm-beta" in task.contributors
        stage.delete(record)

    @pytest.mark.soak
    def test_what_can_not_be_delivered_now_has_a_token_for_later(
        self, stage: Stage, peer: PeerServer, outbound: LambdaRuntime
    ) -> None:
        peer.answers["/interswarm/forward"] = 503, {"detail": "busy"}
        record = self.ask(stage, "later")
        assert outbound.invoke({"Records": [record]}) == NOTHING_FAILED
        stage.delete(record)
        assert stage.deliveries() == []
        del peer.answers["/interswarm/forward"]
        deadline = time.monotonic() + 60
        while not (again := stage.deliveries()):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert outbound.invoke({"Records": again}) == NOTHING_FAILED
        assert peer.paths() == ["/interswarm/forward"] * 2
        first, second = (request.json["message"]["message_id"] for request in peer.requests)
        assert first == second
        stage.delete(again[0])

    @pytest.mark.soak
    def test_one_that_is_no_token_comes_back(self, stage: Stage, outbound: LambdaRuntime) -> None:
        (sample,) = stage.event("outbound")["Records"]
        arn = f"arn:aws:sqs:us-east-1:000000000000:{stage.queues.outbound_url.rpartition('/')[2]}"
        bad = {**sample, "body": "no token", "eventSourceARN": arn}
        result = outbound.invoke({"Records": [bad]})
        metrics = [each for each in outbound.records if "_aws" in each]
        assert result == {"batchItemFailures": [{"itemIdentifier": sample["messageId"]}]}
        assert [each["FailedDeliveries"] for each in metrics] == [1]

    @pytest.mark.soak
    def test_a_dead_letter_tells_whoever_wrote_the_message(self, stage: Stage, peer: PeerServer) -> None:
        record = self.ask(stage, "dead delivery")
        stage.lose_worker("dead delivery", "@swarm-beta")
        assert stage.invoke("dead_letter", {"Records": [record]}) == NOTHING_FAILED
        stage.delete(record)
        assert peer.requests == []
        answer = stage.ask("task", query="task_id=dead%20delivery")
        assert "could not be delivered to swarm swarm-beta" in answer["body"]
        assert json.loads(answer["body"])["is_running"] is False

    @pytest.mark.soak
    def test_its_health_is_looked_at_and_shown(self, stage: Stage, peer: PeerServer) -> None:
        event = stage.event("peer_health")
        assert stage.invoke("peer_health", event) == {"active": 1, "silent": 0}
        peer.answers["/health"] = 503, {"detail": "busy"}
        assert stage.invoke("peer_health", event) == {"active": 0, "silent": 1}
        shown = [each for each in stage.running("peer_health").records if "SilentPeers" in each]
        assert [(each["ActivePeers"], each["SilentPeers"]) for each in shown[-2:]] == [
            (1, 0),
            (0, 1),
        ]
        result = stage.ask("swarms", path="/swarms")
        (listed,) = json.loads(result["body"])["swarms"]
        assert (listed["swarm_name"], listed["is_active"]) == ("swarm-beta", False)

    def test_it_can_be_forgotten(self, stage: Stage, peer: PeerServer) -> None:
        event = stage.request("swarms", method="DELETE", path="/swarms/swarm-beta")
        assert stage.invoke("swarms", event)["statusCode"] == 200
        assert stage.invoke("swarms", event)["statusCode"] == 404
        assert stage.invoke("peer_health", stage.event("peer_health")) == {"active": 0, "silent": 0}


def test_the_sample_token_wakes_nobody_who_has_no_mail(stage: Stage) -> None:
    assert stage.invoke("outbound", stage.event("outbound")) == NOTHING_FAILED


def test_agents_discover_swarms_with_the_role_of_turns(stage: Stage, tmp_path: Path) -> None:
    """The entry has no access; it is seen by the functions that know other swarms, and forgotten as any."""
    (tmp_path / "mail.toml").write_text('[server.swarm]\nname = "example-no-proxy"\nsource = "swarms.json"\n')
    agent = supervisor("supervisor", "own_agent:make", enable_interswarm=True)
    swarm = entry("example-no-proxy", agent, enable_interswarm=True)
    root = write_project(tmp_path, swarm, own_agent=DISCOVERS)
    with (
        served(PeerServer("swarm-delta", info={"public": True})) as delta,
        stage.start("turn", root=root) as running,
    ):
        for task_id, told in (
            ("discovers", "registered: swarm-delta"),
            ("knows", "known already: swarm-delta"),
        ):
            event = stage.request(
                "message", body={"body": delta.url, "task_id": task_id}, prefer="respond-async"
            )
            assert stage.invoke("message", event)["statusCode"] == 202
            for record in stage.records():
                assert running.invoke({"Records": [record]}) == NOTHING_FAILED
                stage.delete(record)
            answer = stage.ask("task", query=f"task_id={task_id}")
            assert told in answer["body"]
    listed = stage.ask("swarms", path="/swarms")
    assert "swarm-delta" in {each["swarm_name"] for each in json.loads(listed["body"])["swarms"]}
    assert stage.ask("swarms", method="DELETE", path="/swarms/swarm-delta")["statusCode"] == 200
