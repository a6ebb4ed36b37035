"""Traces: one for each task, over queues, agents, actions and swarms; nothing that anybody wrote is in them."""

from collections.abc import AsyncIterator, Iterator
from math import inf
from typing import Any

import pytest
from support.processes.http_server import HTTPServer
from support.services.federation import Federation

from mail.bootstrap.telemetry import Telemetry, telemetry_of_server
from mail.config import TelemetryConfig
from mail.core.protocol.traceparent import read_traceparent, same_trace
from mail.core.task.task import TaskKey
from mail.core.task.usage import Usage, report_usage
from mail.core.turns.context import model_call
from mail.errors import ConfigurationError
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait
from mail.testing.rig import Rig

pytest.importorskip("opentelemetry.sdk", reason="pip install 'mail-serverless[otel]'")
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mail.adapters.telemetry.otel import OpenTelemetryTracer

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MODEL = "openai/gpt-5-mini"
SECRET = "the-password-is-swordfish"


class Spans:
    """What a tracer has recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OpenTelemetryTracer(provider)

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    @property
    def traces(self) -> set[int]:
        return {span.context.trace_id for span in self.all if span.context}


@pytest.fixture
def spans() -> Iterator[Spans]:
    recorded = Spans()
    yield recorded
    recorded.tracer.close()


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert parent.context is not None
    return child.parent is not None and child.parent.span_id == parent.context.span_id


def supervise(view: View) -> list[Call]:
    report_usage(Usage(calls=1, input_tokens=100, cached_tokens=40, output_tokens=7, cost=0.25), MODEL)
    if view.mail.sender == "worker":
        return [complete(f"{SECRET} found")]
    return [request("worker", SECRET), wait()]


def work(view: View) -> list[Call]:
    if view.mail.sender_type == "system":
        return [respond("supervisor", SECRET)]
    return [call("look_up", word=SECRET)]


async def look_up(_arguments: dict[str, Any]) -> str:
    return SECRET


async def fail(_arguments: dict[str, Any]) -> str:
    raise LookupError(SECRET)


@pytest.fixture
async def server(spans: Spans) -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": supervise, "worker": work}, actions={"look_up": look_up})
    async with HTTPServer(swarm, tracer=spans.tracer) as server:
        server.rig.runtime.tracer = spans.tracer
        yield server


class TestOneTask:
    async def test_is_one_trace(self, server: HTTPServer, spans: Spans) -> None:
        await server.ask(body=SECRET)
        await server.rig.workers.idle()
        assert len(spans.traces) == 1
        (post,) = spans.named("POST /message")
        assert post.kind is SpanKind.SERVER
        assert post.parent is None
        assert facts(post) == {
            "http.request.method": "POST",
            "http.route": "/message",
            "http.response.status_code": 200,
        }
        turns = spans.named("turn supervisor") + spans.named("turn worker")
        assert len(turns) == 4
        for turn in turns:
            assert turn.kind is SpanKind.CONSUMER
            assert is_child(turn, post)
            assert facts(turn)["mail.turn.outcome"] == "committed"

    async def test_agents_and_actions_are_inside_of_their_turns(
        self, server: HTTPServer, spans: Spans
    ) -> None:
        await server.ask(task_id="t")
        await server.rig.workers.idle()
        turns = {span.context.span_id: span for span in spans.all if span.context}
        calls = spans.named("invoke_agent supervisor")
        assert len(calls) == 2
        for each in calls:
            assert each.parent is not None
            assert turns[each.parent.span_id].name == "turn supervisor"
            assert facts(each) == {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "supervisor",
                "gen_ai.conversation.id": "t",
                "gen_ai.request.model": "gpt-5-mini",
                "gen_ai.provider.name": "openai",
                "gen_ai.usage.input_tokens": 100,
                "gen_ai.usage.output_tokens": 7,
                "gen_ai.usage.cache_read.input_tokens": 40,
                "gen_ai.usage.cost": 0.25,
            }
        (action,) = spans.named("execute_tool look_up")
        assert action.parent is not None
        assert turns[action.parent.span_id].name == "turn worker"
        assert facts(action)["gen_ai.operation.name"] == "execute_tool"
        assert facts(action)["gen_ai.tool.name"] == "look_up"
        assert facts(action)["gen_ai.tool.call.id"]

    async def test_goes_on_in_the_trace_of_its_caller(self, server: HTTPServer, spans: Spans) -> None:
        await server.ask(task_id="t", headers={"traceparent": GIVEN})
        await server.rig.workers.idle()
        assert spans.traces == {int(GIVEN.split("-")[1], 16)}
        (post,) = spans.named("POST /message")
        assert post.parent is not None
        assert post.parent.span_id == int(GIVEN.split("-")[2], 16)
        task = await server.rig.store.load(TaskKey(str(server.rig.user), "t"))
        assert task is not None
        assert same_trace(task.traceparent, GIVEN)

    async def test_keeps_its_trace_when_somebody_writes_to_it_again(
        self, server: HTTPServer, spans: Spans
    ) -> None:
        await server.ask(task_id="t")
        await server.ask(task_id="t")
        await server.rig.workers.idle()
        first, second = spans.named("POST /message")
        assert first.context is not None
        assert second.context is not None
        assert len(spans.traces) == 2
        assert [link.context.trace_id for link in second.links] == [first.context.trace_id]
        turns = spans.named("turn supervisor")
        assert {turn.context.trace_id for turn in turns if turn.context} == {first.context.trace_id}

    async def test_survives_a_restart(self, spans: Spans, tmp_path: Any) -> None:
        swarm = build_swarm({"supervisor": supervise, "worker": work}, actions={"look_up": look_up})
        async with Rig(swarm, path=tmp_path / "mail.db") as rig:
            rig.runtime.tracer = spans.tracer
            await rig.workers.stop()
            submitted = await rig.submit()
            await rig.restart()
            rig.runtime.tracer = spans.tracer
            await rig.outcome(submitted)
            await rig.workers.idle()
        assert len(spans.traces) == 1
        assert spans.named("begin task")


async def test_what_fails_says_of_which_type_and_no_more(spans: Spans) -> None:
    def act(view: View) -> list[Call]:
        if view.mail.sender_type == "system":
            raise RuntimeError(SECRET)
        return [call("fail")]

    async with Rig(build_swarm({"supervisor": act}, actions={"fail": fail})) as rig:
        rig.runtime.tracer = spans.tracer
        await rig.ask()
        await rig.workers.idle()
    (action,) = spans.named("execute_tool fail")
    broken = [span for span in spans.named("invoke_agent supervisor") if not span.status.is_ok]
    for span, kind in ((action, "LookupError"), (broken[0], "RuntimeError")):
        assert span.status.status_code is StatusCode.ERROR
        assert facts(span)["error.type"] == kind


async def test_nothing_that_anybody_wrote_is_in_a_span(server: HTTPServer, spans: Spans) -> None:
    await server.ask(body=SECRET, subject=SECRET)
    await server.client.get("/task", params={"task_id": SECRET})
    await server.rig.workers.idle()
    everything = "".join(span.to_json() for span in spans.all)
    assert "execute_tool" in everything
    assert SECRET not in everything
    for key in server.keys.values():
        assert key not in everything


async def test_other_swarms_are_in_the_same_trace(spans: Spans) -> None:
    def ask(view: View) -> list[Call]:
        if view.mail.sender.endswith("@b"):
            return [complete("answered")]
        return [request("boss@b"), wait()] if view.mail.sender_type != "system" else [wait()]

    def answer(view: View) -> list[Call]:
        return [complete("from b")]

    targets = {"comm_targets": ["boss@b"], "enable_interswarm": True}
    here = build_swarm({"boss": ask}, name="a")
    from dataclasses import replace

    here = replace(here, agents={"boss": replace(here.agents["boss"], **targets)})
    there = build_swarm({"boss": answer}, name="b")
    elsewhere = Spans()
    async with Federation(here, there) as federation:
        federation["a"].runtime.tracer = spans.tracer
        federation["b"].runtime.tracer = elsewhere.tracer
        assert (await federation["a"].ask()).answer == "answered"
        await federation.settle()
    assert elsewhere.named("turn boss")
    assert spans.traces == elsewhere.traces
    (root,) = spans.named("begin task")
    assert root.context is not None
    assert spans.traces == {root.context.trace_id}
    delivery = spans.named("deliver b")[0]
    assert delivery.kind is SpanKind.CLIENT
    assert is_child(elsewhere.named("turn boss")[0], delivery)


async def test_requests_for_what_is_not_there(server: HTTPServer, spans: Spans) -> None:
    await server.client.request("BREW", f"/{SECRET}")
    (span,) = spans.named("HTTP")
    assert facts(span) == {"http.request.method": "_OTHER", "http.response.status_code": 404}


class TestWithoutATracer:
    """What others trace is passed on all the same."""

    async def test_the_trace_is_kept_and_sent_on(self) -> None:
        swarm = build_swarm({"supervisor": lambda _view: [complete("done")]})
        sent = []

        from support.services.federation import Swallow

        class Noting(Swallow):
            async def deliver(self, message: Any, *, back: bool, **_: object) -> str | None:
                sent.append(message)
                return None

        async with HTTPServer(swarm) as server:
            server.rig.runtime.peers = Noting()
            body = {"user_token": "", "body": "x", "targets": ["boss@b"], "task_id": "t"}
            headers = {"traceparent": GIVEN, "Prefer": "respond-async"}
            await server.client.post("/interswarm/message", json=body, headers=headers)
            await server.rig.workers.idle()
            task = await server.rig.store.load(TaskKey(str(server.rig.user), "t"))
        assert task is not None
        assert task.traceparent == GIVEN
        assert [message.payload.routing_info["traceparent"] for message in sent] == [GIVEN]

    @pytest.mark.parametrize(
        "header",
        [
            "",
            "nonsense",
            GIVEN.upper(),
            GIVEN + "-more",
            GIVEN.replace("00-", "ff-", 1),
            f"00-{'0' * 32}-b7ad6b7169203331-01",
            f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        ],
    )
    async def test_what_is_no_traceparent_is_dropped(self, header: str) -> None:
        assert read_traceparent(header) == ""
        async with HTTPServer(build_swarm({"supervisor": lambda _view: [complete("done")]})) as server:
            await server.ask(task_id="t", headers={"traceparent": header})
            task = await server.rig.store.load(TaskKey(str(server.rig.user), "t"))
            assert task is not None
            assert task.traceparent == ""


class TestSending:
    """Spans go to a receiver of OTLP, as a server sends them."""

    @pytest.fixture
    def receiver(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        from support.services.otlp import Receiver

        with Receiver().running() as receiver:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
            monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")  # nothing is sent but by a flush
            yield receiver

    async def trace(self, telemetry: Telemetry, times: int = 1) -> None:
        async with Rig(build_swarm({"supervisor": think})) as rig:
            rig.runtime.tracer = telemetry.tracer
            for _ in range(times):
                await rig.ask()
                await rig.workers.idle()
                telemetry.flush()

    async def test_spans_and_metrics(self, receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Metrics are sent only if the standard variable asks for them."""
        for asks in (False, True):
            if asks:
                monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
            telemetry = telemetry_of_server(TelemetryConfig(traces=True), "office", {})
            await self.trace(telemetry)
            telemetry.close()
            assert bool(receiver.metrics) is asks
        assert receiver.signatures == []
        (_, span), _ = receiver.of("chat house-model")
        given = {each.key: each.value for each in span.attributes}
        assert given["gen_ai.usage.output_tokens"].int_value == 7
        names = {metric.name for metric in receiver.metrics}
        assert names == {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"}

    async def test_x_ray_gets_signed_requests(self, receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """A proxy on loopback stands in the way to X-Ray."""
        pytest.importorskip("botocore", reason="pip install 'mail-serverless[aws]'")
        from support.services.otlp import SECRET_KEY

        address = "http://xray.eu-central-1.amazonaws.com/v1/traces"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address)
        monkeypatch.setenv("HTTP_PROXY", receiver.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
        telemetry = telemetry_of_server(TelemetryConfig(traces=True), "office", {})
        await self.trace(telemetry)
        telemetry.close()
        assert receiver.of("chat house-model")
        assert receiver.signatures
        assert all(receiver.signatures)

    def test_x_ray_without_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("botocore", reason="pip install 'mail-serverless[aws]'")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "missing")
        monkeypatch.setenv("AWS_CONFIG_FILE", "missing")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        address = "https://xray.eu-central-1.amazonaws.com/v1/traces"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address)
        with pytest.raises(ConfigurationError, match="AWS credentials"):
            telemetry_of_server(TelemetryConfig(traces=True), "office", {})

    async def test_a_receiver_that_is_down_is_left_alone(self, receiver: Any) -> None:
        """What can't be sent is dropped and counted; the next attempt comes later."""
        pytest.importorskip("prometheus_client", reason="pip install 'mail-serverless[metrics]'")
        receiver.status = 500
        telemetry = telemetry_of_server(TelemetryConfig(traces=True, metrics="admin"), "office", {})
        await self.trace(telemetry)
        attempts = receiver.requests  # one, or what the exporter's version repeats within its time limit
        await self.trace(telemetry, times=2)
        telemetry.close()
        assert receiver.requests == attempts >= 1
        assert telemetry.metrics is not None
        assert b"mail_dropped_spans_total 12.0" in telemetry.metrics.render()

    async def test_metrics_are_not_sent_to_a_receiver_that_is_down(
        self, receiver: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first attempt to send metrics is the last one for a while, also when the process stops."""
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
        receiver.status = 500
        telemetry = telemetry_of_server(TelemetryConfig(traces=True), "office", {})
        await self.trace(telemetry)
        attempts = receiver.paths["/v1/metrics"]
        await self.trace(telemetry, times=2)
        telemetry.close()
        assert receiver.paths["/v1/metrics"] == attempts >= 1

    async def test_sums_reach_a_receiver_that_is_up_again(
        self, receiver: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
        receiver.status = 500
        telemetry = telemetry_of_server(TelemetryConfig(traces=True), "office", {})
        await self.trace(telemetry)
        receiver.status = 200
        await self.trace(telemetry)
        assert receiver.metrics == []
        monkeypatch.setattr("mail.adapters.telemetry.otel.monotonic", lambda: inf)
        telemetry.close()
        calls = next(each for each in receiver.metrics if each.name == "gen_ai.client.operation.duration")
        assert (
            sum(point.count for point in calls.histogram.data_points) == 2
        )  # one while it was down, one after

    @pytest.mark.parametrize(
        ("redact", "problem"),
        [("python::json:nothing", "nothing"), ("python::json:__name__", "is not a function")],
    )
    def test_a_redactor_that_is_none(self, redact: str, problem: str) -> None:
        with pytest.raises(ConfigurationError, match=problem):
            telemetry_of_server(TelemetryConfig(traces=True, redact=redact), "office", {})


def think(view: View) -> list[Call]:
    with model_call("house-model") as thought:
        thought.report(Usage(calls=1, input_tokens=100, output_tokens=7))
    return [complete("done")]


def test_opentelemetry_is_not_imported_unless_it_is_wanted() -> None:
    import subprocess
    import sys

    code = "import sys, mail.server, mail.bootstrap; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    unwanted = (
        "opentelemetry.sdk",
        "opentelemetry.exporter",
        "prometheus_client",
        "mail.adapters.telemetry.otel",
        "mail.adapters.telemetry.prometheus",
        "mail.http.telemetry",
    )
    assert "mail.bootstrap.telemetry" in loaded
    assert not [name for name in loaded.split() if name.startswith(unwanted)]
