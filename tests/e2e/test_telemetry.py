"""Two real servers that help each other, watched: their spans at a receiver of OTLP, their metrics and their logs."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.processes.server import ServerProcess, eventually
from test_federation import QUESTION, Federation, start

pytest.importorskip("opentelemetry.sdk", reason="pip install 'mail-serverless[otel]'")
pytest.importorskip("prometheus_client", reason="pip install 'mail-serverless[metrics]'")
from support.services.otlp import Receiver

SWARMS = ("swarm-alpha", "swarm-beta")


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver().running() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def pair(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    settings = {
        "MAIL_METRICS": "admin",
        "MAIL_TRACES": "true",
        "MAIL_LOG_FORMAT": "json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("pair")
        federation = start(stack, folder, *SWARMS, settings=settings)
        answer = federation.servers["swarm-alpha"].ask(QUESTION, task_id="watched", subject="swordfish")
        assert "84" in answer
        yield federation


def test_a_task_is_one_trace_in_both(pair: Federation, receiver: Receiver) -> None:
    eventually(
        lambda: (
            {service for service, span in receiver.of("invoke_agent math")} == {"swarm-beta"}
            and receiver.of("deliver swarm-beta")
            and receiver.of("deliver swarm-alpha")
        ),
        "the spans of the task have come",
    )

    def roots() -> list[Any]:
        return [
            span
            for service, span in receiver.of("POST /message")
            if service == "swarm-alpha" and not span.parent_span_id
        ]

    eventually(roots, "so has that of the request")
    (root,) = roots()
    ours = [(service, span) for service, span in receiver.spans if span.trace_id == root.trace_id]
    assert {service for service, _ in ours} == set(SWARMS)
    names = {span.name for _, span in ours}
    assert names >= {"turn supervisor", "invoke_agent supervisor", "turn math", "invoke_agent math"}
    elsewhere = [span for service, span in receiver.spans if span.name.startswith("turn ")]
    assert {span.trace_id for span in elsewhere} == {root.trace_id}
    by_id = {span.span_id: (service, span) for service, span in ours}
    crossing = [
        span
        for service, span in ours
        if span.parent_span_id in by_id and by_id[span.parent_span_id][0] != service
    ]
    assert {by_id[span.parent_span_id][1].name for span in crossing} == {
        "deliver swarm-alpha",
        "deliver swarm-beta",
    }
    assert "swordfish" not in str(receiver.spans)


def test_metrics(pair: Federation) -> None:
    with pair.client("swarm-alpha", "admin") as client:
        page = client.get("/metrics").text
    assert 'mail_tasks_ended_total{status="completed"} 1.0' in page
    assert 'mail_delivery_attempts_total{outcome="delivered",swarm="swarm-beta"}' in page
    assert 'mail_http_requests_total{method="POST",route="/message",status="200"} 1.0' in page
    assert 'mail_queue_depth{queue="turns"} 0.0' in page
    with pair.client("swarm-alpha", "user") as client:
        assert client.get("/metrics").status_code == 403


def test_logs(pair: Federation) -> None:
    for name, server in pair.servers.items():
        lines = [json.loads(line) for line in server.errors.splitlines()]
        turns = [line for line in lines if line["message"] == "turn committed"]
        assert {line["task_id"] for line in turns} == {"watched"}, name
        assert all(line["agent"] and line["message_id"] for line in turns)
        for secret in ("swordfish", "12*(3+4)", *server.tokens.values(), *(server.env or {}).values()):
            if secret not in ("admin", "true", "json", "100"):
                assert secret not in server.errors or secret.startswith("http://"), name


def test_a_server_that_stops_sends_what_it_has(receiver: Receiver, tmp_path: Path) -> None:
    env = {
        "MAIL_TRACES": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_SERVICE_NAME": "short-lived",
        "OTEL_BSP_SCHEDULE_DELAY": "600000",
    }
    with ServerProcess(tmp_path, env=env) as server:
        server.ask("1+1")
        assert not [service for service, _ in receiver.spans if service == "short-lived"]
        assert server.stop() == 0
    names = {span.name for service, span in receiver.spans if service == "short-lived"}
    assert names >= {"POST /message", "turn supervisor"}


@pytest.mark.soak
def test_a_receiver_that_is_not_there_does_no_harm(tmp_path: Path) -> None:
    env = {"MAIL_TRACES": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    with ServerProcess(tmp_path, env=env) as server:
        assert server.ask("1+1") == "1+1 = 2."
        assert server.stop() == 0
