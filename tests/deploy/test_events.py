"""The sample events: one per function, each of the shape in which AWS sends it."""

import json
import re
from typing import Any

import pytest
from deploy_tools import ROOT

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


def test_no_event_holds_a_key() -> None:
    for path in EVENTS:
        assert not re.search(r"Bearer mail_\w+_(?!PUT-)", path.read_text(encoding="utf-8")), path.name
