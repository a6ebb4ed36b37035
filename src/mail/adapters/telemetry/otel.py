"""Traces by OpenTelemetry, and metrics of model calls. Needs the extra `otel`.

A task is one trace: its turns, in any process, and the work of other swarms for it are children of the request that
began it. Names and attributes are those of OpenTelemetry's semantic conventions for HTTP (1.41) and generative AI
(`SCHEMA`, still in development), and `mail.*` where there are none; `gen_ai.usage.cost` is what backends read. No span
contains text of messages, unless `contents` allow it, nor the text of an error, which may quote it.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mail.adapters.telemetry.contents import Contents
from mail.core.engine.telemetry import Span, Tracer
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.traceparent import TRACEPARENT
from mail.core.task.change import Turn
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.guards import Verdict
from mail.core.task.leases import Claim
from mail.core.task.mailboxes import agent_of, goes_out
from mail.core.turns.activity import ModelCall, TurnActivity
from mail.core.turns.usage import UsageMeter

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider as SDKMeterProvider
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger(__name__)

Value = str | int | float

SCHEMA = "https://opentelemetry.io/schemas/gen-ai/1.42.0"
"""The version of the conventions for generative AI, the first in their own repository."""

SECONDS = tuple(0.01 * 2**n for n in range(14))
TOKENS = tuple(4**n for n in range(14))
"""The bounds of buckets that the conventions advise."""

PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The conventions' names of providers that have another one in the names of models."""

FAMILIES = (("claude", "anthropic"), ("gemini", "gcp.gemini"), (r"(chat)?gpt-|o\d", "openai"))
"""The providers of models that are named without one, by the beginning of the name."""

PARAMETERS = ("frequency_penalty", "max_tokens", "presence_penalty", "seed", "temperature", "top_k", "top_p")
"""The parameters of requests that the conventions know, as `gen_ai.request.*`."""

_PROPAGATOR = TraceContextTextMapPropagator()
_NOWHERE = Context()

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

FLUSH_MILLISECONDS = 3000
"""The time limit for sending recorded spans, and metrics, before a function is frozen or a server stops."""

PAUSE_SECONDS = 30.0
"""Seconds for which there is no attempt to send spans, or metrics, after one has failed."""


class _Span(Span):
    """An OpenTelemetry span as one of the engine."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def note(self, name: str, value: Value) -> None:
        self._span.set_attribute(name, value)


class _Action(_Span):
    """The span of an action."""

    def __init__(self, span: trace.Span, contents: Contents) -> None:
        super().__init__(span)
        self._contents = contents

    def note_result(self, text: str) -> None:
        self._span.set_attributes(self._contents.of_action(result=text))


class _Request(_Span):
    """The span of an HTTP request, which gets its name when its route is known."""

    def __init__(self, span: trace.Span, method: str) -> None:
        super().__init__(span)
        self._method = method

    def note(self, name: str, value: Value) -> None:
        super().note(name, value)
        if name == "http.route":
            self._span.update_name(f"{self._method} {value}")
        elif name == "http.response.status_code" and int(value) >= 500:
            self._span.set_status(Status(StatusCode.ERROR))


class OpenTelemetryTracer(Tracer):
    """Makes spans, and metrics of model calls, by providers that it owns; nothing global is set."""

    def __init__(
        self,
        provider: "TracerProvider",
        meters: "SDKMeterProvider | None" = None,
        contents: Contents | None = None,
    ) -> None:
        self._provider = provider
        self._meters = meters
        self._contents = contents or Contents()
        self._is_open = True
        self._tracer = provider.get_tracer("mail", schema_url=SCHEMA)
        meter_provider: MeterProvider = meters or NoOpMeterProvider()
        meter = meter_provider.get_meter("mail", schema_url=SCHEMA)
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of model calls.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens that model calls read and write.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )

    def flush(self) -> None:
        """Send what is recorded."""
        self._provider.force_flush(FLUSH_MILLISECONDS)
        if self._meters is not None:
            self._meters.force_flush(FLUSH_MILLISECONDS)

    def close(self) -> None:
        """Send what is recorded, and stop. Calling it again does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        self.flush()
        self._provider.shutdown()
        if self._meters is not None:
            self._meters.shutdown()

    @contextmanager
    def request(self, method: str, traceparent: str) -> Iterator[Span]:
        is_known = method in METHODS
        attributes = {"http.request.method": method if is_known else "_OTHER"}
        name = method if is_known else "HTTP"
        with self._span(name, SpanKind.SERVER, attributes, _context(traceparent)):
            yield _Request(trace.get_current_span(), name)

    def turn(self, turn: Claim) -> AbstractContextManager[Span]:
        if goes_out(turn.mailbox) or not isinstance(turn, Turn):
            return super().turn(turn)  # its span is that of the delivery
        name = f"turn {agent_of(turn.mailbox)}"
        return self._span(name, SpanKind.CONSUMER, _about(turn), _context(turn.task.traceparent))

    @contextmanager
    def agent_call(self, turn: Turn, meter: UsageMeter, activity: TurnActivity) -> Iterator[Span]:
        before, done = meter.spent, len(activity.spans)
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent_of(turn.mailbox),
            "gen_ai.conversation.id": turn.task.task_id,
        }
        with self._span(f"invoke_agent {agent_of(turn.mailbox)}", SpanKind.INTERNAL, attributes) as span:
            try:
                yield span
            finally:
                calls = [each for each in activity.spans[done:] if isinstance(each, ModelCall)]
                # the usage of a call is in its own span, and would count twice here
                reported = sum((call.usage or NO_USAGE for call in calls), NO_USAGE)
                model = calls[-1].name if calls else next(reversed(meter.models), "")
                for name, value in (*_about_model(model), *_about_usage(meter.spent - before - reported)):
                    span.note(name, value)

    @contextmanager
    def model_call(self, call: ModelCall) -> Iterator[None]:
        about: dict[str, Value] = {"gen_ai.operation.name": "chat", **dict(_about_model(call.name))}
        model = about.get("gen_ai.request.model", "")
        task = {"gen_ai.conversation.id": call.task_id}
        with self._span(f"chat {model}".strip(), SpanKind.CLIENT, {**about, **task}):
            try:
                yield
            except BaseException as error:
                about["error.type"] = type(error).__name__
                raise
            finally:
                span = trace.get_current_span()
                if span.is_recording():
                    span.set_attributes({**dict(_about_call(call)), **self._texts(call)})
                self._durations.record(call.seconds or 0.0, about)
                if call.usage is not None:
                    self._tokens.record(call.usage.input_tokens, {**about, "gen_ai.token.type": "input"})
                    self._tokens.record(call.usage.output_tokens, {**about, "gen_ai.token.type": "output"})

    def _texts(self, call: ModelCall) -> dict[str, str]:
        try:
            return dict(self._contents.of_call(call))
        except Exception as error:  # noqa: BLE001  # of a history that another program has written
            logger.warning("the texts of a model call can't be recorded: %s", type(error).__name__)
            return {}

    @contextmanager
    def action(self, call: AgentToolCall) -> Iterator[Span]:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool_name,
            "gen_ai.tool.call.id": call.tool_call_id,
            "gen_ai.tool.type": "function",
            **self._contents.of_action(arguments=call.tool_args),
        }
        with self._span(f"execute_tool {call.tool_name}", SpanKind.INTERNAL, attributes):
            yield _Action(trace.get_current_span(), self._contents)

    def verdict(self, verdict: Verdict) -> None:
        about = {"name": verdict.guard, "on": verdict.on, "outcome": verdict.outcome.value}
        facts = {f"mail.guard.{name}": fact for name, fact in about.items()}
        trace.get_current_span().add_event("mail.guard", {**facts, "mail.guard.failed": verdict.failed})

    def delivery(self, turn: Turn, swarm: str) -> AbstractContextManager[Span]:
        attributes = {**_about(turn), "mail.peer": swarm}
        return self._span(f"deliver {swarm}", SpanKind.CLIENT, attributes, _context(turn.task.traceparent))

    def position(self) -> str:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get(TRACEPARENT, "")

    def beginning(self) -> str:
        with self._tracer.start_as_current_span("begin task"):
            return self.position()

    def joins(self, traceparent: str) -> None:
        there = trace.get_current_span(_context(traceparent)).get_span_context()
        here = trace.get_current_span()
        if there.is_valid and there.trace_id != here.get_span_context().trace_id:
            here.add_link(there)

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: Mapping[str, Value], context: Context | None = None
    ) -> Iterator[Span]:
        """Open a span; `context` is that of its parent, None for the current span."""
        with self._tracer.start_as_current_span(
            name, context, kind, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield _Span(span)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                raise


def _context(traceparent: str) -> Context:
    """Return the context of a `traceparent`; an empty one, and not the current span, if there is none."""
    return _PROPAGATOR.extract({TRACEPARENT: traceparent}, _NOWHERE) if traceparent else _NOWHERE


def _about(turn: Turn) -> dict[str, Value]:
    return {
        "gen_ai.conversation.id": turn.task.task_id,
        "mail.task.id": turn.task.task_id,
        "mail.mailbox": turn.mailbox,
        "mail.message.id": turn.entry.message.id,
        "mail.message.type": turn.entry.message.msg_type,
    }


def _about_model(llm: str) -> Iterator[tuple[str, Value]]:
    """Yield the attributes that name a model, given its name for agents, and its provider, if that is known."""
    if not llm:
        return
    llm = llm.removeprefix("sdk/")
    provider, slash, model = llm.partition("/")
    if not slash:
        model, provider = llm, next((name for start, name in FAMILIES if re.match(start, llm)), "")
    yield "gen_ai.request.model", model
    if provider:
        yield "gen_ai.provider.name", PROVIDERS.get(provider, provider)


def _about_usage(usage: Usage) -> Iterator[tuple[str, Value]]:
    if not usage:
        return
    yield "gen_ai.usage.input_tokens", usage.input_tokens
    yield "gen_ai.usage.output_tokens", usage.output_tokens
    if usage.cached_tokens:
        yield "gen_ai.usage.cache_read.input_tokens", usage.cached_tokens
    if usage.cache_write_tokens:
        yield "gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens
    if usage.reasoning_tokens:
        yield "gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens
    if usage.calls > usage.unpriced_calls:
        yield "gen_ai.usage.cost", usage.cost


def _about_call(call: ModelCall) -> Iterator[tuple[str, Any]]:
    yield from _about_usage(call.usage or NO_USAGE)
    given = {} if call.exchange is None else call.exchange.parameters
    for name in PARAMETERS:
        if (value := given.get(name)) is not None:
            yield f"gen_ai.request.{name}", value
    if stop := given.get("stop"):
        yield "gen_ai.request.stop_sequences", [stop] if isinstance(stop, str) else stop
    if given.get("stream"):
        yield "gen_ai.request.stream", True
        if call.first_chunk is not None:
            yield "gen_ai.response.time_to_first_chunk", call.first_chunk
    if call.replied:
        yield "gen_ai.response.model", call.replied
    if call.finish:
        yield "gen_ai.response.finish_reasons", [call.finish]
    if call.attempts > 1:
        yield "mail.attempts", call.attempts


def exporting_tracer(
    service: str, contents: Contents, on_drop: Callable[[int], None], seconds: float | None = None
) -> OpenTelemetryTracer:
    """Return a tracer that sends what it records by OTLP over HTTP, configured by the standard `OTEL_*` variables.

    Requests to X-Ray are signed. Raises ConfigurationError if there are no credentials for that.

    Args:
        service: the default of `OTEL_SERVICE_NAME`.
        on_drop: called with the number of spans that could not be sent, in any thread.
        seconds: the time limit of an attempt to send spans, and metrics; None for `OTEL_EXPORTER_OTLP_TIMEOUT`.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from mail.adapters.telemetry.xray import region_of_receiver, signing_session

    region = region_of_receiver()
    session = signing_session(region) if region else None
    resource = Resource({SERVICE_NAME: service}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = _pausing(OTLPSpanExporter(timeout=seconds, session=session), on_drop)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetryTracer(provider, _exporting_meters(resource, seconds), contents)


def _exporting_meters(resource: Any, seconds: float | None) -> "SDKMeterProvider | None":
    """Return what sends metrics by OTLP if `OTEL_METRICS_EXPORTER` asks for it: many receivers of traces take none."""
    if os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() != "otlp":
        return None
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider as SDKMeterProvider
    from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader

    receiver = _Receiver("metrics")

    class Pausing(OTLPMetricExporter):  # a subclass, as a reader asks its exporter for the temporality
        def export(self, *args: Any, **kwargs: Any) -> MetricExportResult:
            success = MetricExportResult.SUCCESS
            is_sent = receiver.takes(lambda: super(Pausing, self).export(*args, **kwargs) is success)
            return success if is_sent else MetricExportResult.FAILURE

    reader = PeriodicExportingMetricReader(Pausing(timeout=seconds))
    return SDKMeterProvider([reader], resource, shutdown_on_exit=False)


def _pausing(exporter: "SpanExporter", on_drop: Callable[[int], None]) -> "SpanExporter":
    """Wrap an exporter: while its receiver is down, spans are dropped without waiting for it."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    receiver = _Receiver("spans")

    class Pausing(SpanExporter):
        def export(self, spans: "Sequence[ReadableSpan]") -> "SpanExportResult":
            if receiver.takes(lambda: exporter.export(spans) is SpanExportResult.SUCCESS):
                return SpanExportResult.SUCCESS
            on_drop(len(spans))
            return SpanExportResult.FAILURE

        def shutdown(self) -> None:
            exporter.shutdown()

    return Pausing()


class _Receiver:
    """A receiver of spans or of metrics, which is left alone for a while after an attempt has failed."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._resumes = 0.0

    def takes(self, send: Callable[[], bool]) -> bool:
        """Send something, unless an attempt has just failed, and return whether that succeeded."""
        if monotonic() < self._resumes:
            return False
        is_sent = send()
        if not is_sent:
            self._resumes = monotonic() + PAUSE_SECONDS
            logger.warning("%s can't be sent; the next attempt is in %.0f s", self._what, PAUSE_SECONDS)
        return is_sent
