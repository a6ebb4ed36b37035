"""What functions tell of themselves: metrics in the log, with tokens and costs of real model calls, and spans."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from function_stage import Stage
from support.engines.cloudwatch import sums
from support.processes.projects import entry, supervisor, write_project
from support.services.llm_stub import LLMStub, Tokens, call, reply
from url_stage import TIMEOUT, served

from mail.core.task.task import TaskStatus

MODEL = "openai/gpt-5-mini"
COST = 600 * 0.25e-6 + 400 * 0.025e-6 + 100 * 2e-6
"""Of one call: what litellm's table says of tokens read, read from the cache, and written."""

SWARM = entry(
    "example-no-proxy",
    supervisor(
        "supervisor",
        "mail.factories:LiteLLMSupervisorFunction",
        agent_params={"llm": MODEL, "system": "Answer.", "tool_format": "completions"},
    ),
)


def ask(stage: Stage, task_id: str, **fields: Any) -> None:
    event = stage.request(
        "message", body={"body": "hi", "task_id": task_id, **fields}, prefer="respond-async"
    )
    assert stage.invoke("message", event)["statusCode"] == 202


def test_a_turn_of_a_model_is_measured(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "mail.toml").write_text('[server.swarm]\nname = "example-no-proxy"\nsource = "swarms.json"\n')
    write_project(tmp_path, SWARM)
    tokens = Tokens(input=1000, output=100, cached=400)
    with LLMStub() as stub:
        stub.script(
            reply(call("help"), tokens=tokens),
            reply(call("task_complete", finish_message="42"), tokens=tokens),
        )
        with stage.start("turn", stub.environ, root=tmp_path, timeout=60) as running:
            ask(stage, "costly")
            for record in stage.records():
                assert running.invoke({"Records": [record]}) == {"batchItemFailures": []}
                stage.delete(record)
            records = running.records
        assert stub.complaints == []
    task = stage.load("costly")
    assert task.status is TaskStatus.COMPLETED
    assert task.models.keys() == {MODEL}
    assert task.models[MODEL].cost == pytest.approx(2 * COST)
    told = sums(records)
    expected = {
        "Turns": 2,
        "ModelTurns": 2,
        "ModelCalls": 2,
        "InputTokens": 2000,
        "CachedTokens": 800,
        "OutputTokens": 200,
    }
    assert {name: told[name,] for name in expected} == expected
    assert told["CostUsd",] == pytest.approx(2 * COST)
    assert sums(records, "model")["CostUsd", MODEL] == pytest.approx(2 * COST)
    assert told["TasksEnded",] == 1
    assert sums(records, "status") == {("TasksEnded", "completed"): 1}


def test_a_task_that_begins_is_counted_where_it_begins(stage: Stage) -> None:
    before = len(stage.running("message").records)
    ask(stage, "begun")
    assert sums(stage.running("message").records[before:]) == {("TasksBegun",): 1}
    stage.work_off()


@pytest.mark.soak
def test_an_answer_that_is_a_servers_error_is_counted(stage: Stage) -> None:
    """Lambda counts none: the invocation succeeds."""
    with stage.start("health", {"MAIL_TABLE": "missing"}) as running:
        answer = running.invoke(stage.request("health", path="/health"))
        assert answer["statusCode"] == 503
        assert sums(running.records) == {("ServerErrors",): 1}
        by_version = sums(running.records, "version")
        assert by_version == {("ServerErrors", f"{running.function.name}:$LATEST"): 1}


@pytest.fixture
def traced_url(stage: Stage, tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """The streaming function, as `layers/run.sh` starts it, and the receiver of its spans."""
    pytest.importorskip("opentelemetry.sdk", reason="pip install 'mail-serverless[otel]'")
    from support.services.otlp import Receiver

    with Receiver().running() as receiver:
        traces = {
            "MAIL_TRACES": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_BSP_SCHEDULE_DELAY": "3600000",  # nothing is sent but by a flush
        }
        with served(stage, "stream", tmp_path / "log", **traces) as url:
            yield url, receiver


@pytest.mark.soak
def test_the_streaming_function_has_sent_its_spans_when_a_response_ends(
    stage: Stage, traced_url: tuple[str, Any]
) -> None:
    url, receiver = traced_url
    headers = {"authorization": stage.event("stream")["headers"]["authorization"]}
    assert httpx2.get(f"{url}/whoami", headers=headers, timeout=TIMEOUT).status_code == 200
    assert receiver.of("GET /whoami")
    worker = threading.Thread(target=stage.work_off)
    body = {"body": "what is 2**10", "task_id": "traced", "stream": True}
    with httpx2.stream("POST", f"{url}/message", json=body, headers=headers, timeout=TIMEOUT) as response:
        lines = response.iter_lines()
        assert next(lines)
        worker.start()
        assert "event: task_complete" in list(lines)
    worker.join()
    ((_, span),) = receiver.of("POST /message")
    assert stage.load("traced").traceparent.split("-")[1] == span.trace_id.hex()


@pytest.mark.soak
def test_a_turns_model_call_is_traced_before_its_invocation_ends(stage: Stage, tmp_path: Path) -> None:
    """While the receiver is down, spans are dropped and counted, without a request for each invocation."""
    pytest.importorskip("opentelemetry.sdk", reason="pip install 'mail-serverless[otel]'")
    from support.services.otlp import Receiver

    telemetry = '[server.telemetry]\ntraces = true\ncontent = "messages"\n'
    swarm = '[server.swarm]\nname = "example-no-proxy"\nsource = "swarms.json"\n'
    (tmp_path / "mail.toml").write_text(swarm + telemetry)
    write_project(tmp_path, SWARM)
    with LLMStub() as stub, Receiver().running() as receiver:
        stub.script(*[reply(call("task_complete", finish_message="42"))] * 3)
        traces = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
        with stage.start("turn", {**stub.environ, **traces}, root=tmp_path, timeout=60) as running:
            for number, status in enumerate((200, 500, 200)):
                receiver.status = status
                ask(stage, f"traced-{number}")
                for record in stage.records():
                    assert running.invoke({"Records": [record]}) == {"batchItemFailures": []}
                    stage.delete(record)
            ((_, span),) = receiver.of("chat gpt-5-mini")
            assert "42" in str(span)
            assert receiver.requests == 2
            assert sums(running.records)["DroppedSpans",] >= 4


def about(records: list[dict[str, Any]], task_id: str) -> list[dict[str, Any]]:
    """The lines that `aws logs tail --filter-pattern '{ $.task_id = "…" }'` finds."""
    found = [record for record in records if record.get("task_id") == task_id]
    for record in found:
        moment = datetime.fromisoformat(record["timestamp"])
        assert moment.utcoffset() == timedelta(0)
        assert "T" in record["timestamp"]
        assert record["level"] == "INFO"
        assert record["function_request_id"]
    return found


def test_a_healthy_task_is_in_the_log(stage: Stage) -> None:
    ask(stage, "logged")
    stage.work_off()
    begun, request = about(stage.running("message").records, "logged")
    assert begun["message"] == "task begun"
    assert (request["route"], request["status"]) == ("/message", 202)
    assert request["seconds"] > 0
    *turns, end, last = about(stage.running("turn").records, "logged")
    assert end["message"] == "task completed"
    for turn in (*turns, last):
        assert turn["outcome"] == "committed"
        assert turn["agent"]
        assert turn["message_id"]
        assert turn["seconds"] > 0
    assert len(turns) + 1 == stage.load("logged").generation.turns


@pytest.mark.soak
def test_no_level_of_the_log_drops_a_metric(stage: Stage) -> None:
    with stage.start("turn", {"POWERTOOLS_LOG_LEVEL": "ERROR"}) as running:
        ask(stage, "silent")
        for record in stage.records():
            assert running.invoke({"Records": [record]}) == {"batchItemFailures": []}
            stage.delete(record)
        records = running.records
    stage.work_off()
    assert about(records, "silent") == []
    assert sums(records)["Turns",] >= 1
