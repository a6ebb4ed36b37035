"""The sample events: one per function, each of the shape in which AWS sends it."""

import json
import re
from hashlib import md5
from typing import Any

import pytest
from deploy_tools import ROOT

from mail.adapters.aws.queue import SQSQueue
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.task.mailboxes import peer_of

EVENTS = sorted((ROOT / "events").glob("*.json"))
HTTP = {
    "root",
    "health",
    "whoami",
    "status",
    "tasks",
    "task",
    "threads",
    "mail2",
    "message",
    "swarms",
    "interswarm",
    "stream",
    "protocols",
}


def read(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((ROOT / "events" / f"{name}.json").read_text(encoding="utf-8"))
    return event


def test_there_is_one_for_each_function(template: dict[str, Any]) -> None:
    resources = template["Resources"].values()
    handlers = [
        resource["Properties"]["Handler"]
        for resource in resources
        if resource["Type"] == "AWS::Serverless::Function"
    ]
    assert [path.stem for path in EVENTS] == sorted(re.split(r"[.:]", handler)[1] for handler in handlers)


@pytest.mark.parametrize("name", sorted(HTTP))
def test_a_request_is_one_of_payload_format_2(name: str) -> None:
    event = read(name)
    context = event["requestContext"]
    assert event["version"] == "2.0"
    assert event["rawPath"] == context["http"]["path"]
    assert event["headers"]["host"] == context["domainName"]
    if name in ("stream", "protocols"):
        assert context["routeKey"] == "$default"
        assert ".lambda-url." in context["domainName"]
    else:
        assert context["routeKey"] == event["routeKey"] == f"{context['http']['method']} {event['rawPath']}"
    if "body" in event:
        assert event["headers"]["content-length"] == str(len(event["body"]))
        json.loads(event["body"])


@pytest.mark.parametrize(
    ("name", "expected"), [("turn", "supervisor"), ("dead_letter", "supervisor"), ("outbound", "@swarm-beta")]
)
def test_a_queue_brings_a_token(name: str, expected: str) -> None:
    (record,) = read(name)["Records"]
    wake_up = SQSQueue.read(record["body"])
    mailbox = wake_up.mailbox
    assert (wake_up.key.task_id, mailbox, wake_up.seq) == ("first", expected, 1)
    assert record["md5OfBody"] == md5(record["body"].encode()).hexdigest()
    is_fifo = peer_of(mailbox) is None
    assert record["eventSourceARN"].endswith(".fifo") == is_fifo
    assert "ApproximateReceiveCount" in record["attributes"]
    of_fifo_only = {"MessageGroupId", "MessageDeduplicationId", "SequenceNumber"}
    assert of_fifo_only & record["attributes"].keys() == (of_fifo_only if is_fifo else set())


def test_another_swarm_brings_a_message_of_the_protocol() -> None:
    message = MAILInterswarmMessage.model_validate(json.loads(read("interswarm")["body"])["message"])
    assert message.target_swarm == "example-no-proxy"


def test_no_event_holds_a_key() -> None:
    for path in EVENTS:
        assert not re.search(r"Bearer mail_\w+_(?!PUT-)", path.read_text(encoding="utf-8")), path.name
