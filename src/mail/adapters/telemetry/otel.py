"""Traces by OpenTelemetry. Needs the extra `otel`.

A task is one trace: its turns, in any process, and the work of other swarms for it are children of the request that
began it. Names and attributes are those of OpenTelemetry's semantic conventions for HTTP and generative AI (version
1.41; the latter are still in development), and `mail.*` where there are none. No span contains text of messages, nor
the text of an error, which may quote it.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mail.core.engine.telemetry import Span, Tracer
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.traceparent import TRACEPARENT
from mail.core.task.change import Turn
from mail.core.task.leases import Claim
from mail.core.task.mailboxes import goes_out
from mail.core.turns.usage import UsageMeter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

Value = str | int | float

_PROPAGATOR = TraceContextTextMapPropagator()
_NOWHERE = Context()

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

FLUSH_MILLISECONDS = 3000
"""The time limit for sending recorded spans, before a function is frozen or a server stops."""


class _Span:
    """An OpenTelemetry span as `mail.core.engine.telemetry.Span`."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def note(self, name: str, value: Value) -> None:
        self._span.set_attribute(name, value)


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
    """Makes spans by a provider that it owns; nothing global is set."""

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._is_open = True
        self._tracer = provider.get_tracer("mail", schema_url="https://opentelemetry.io/schemas/1.41.0")

    def flush(self) -> None:
        """Send the recorded spans."""
        self._provider.force_flush(FLUSH_MILLISECONDS)

    def close(self) -> None:
        """Send the recorded spans, and stop. Calling it again does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        self._provider.force_flush(FLUSH_MILLISECONDS)
        self._provider.shutdown()

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
        name = f"turn {turn.mailbox}"
        return self._span(name, SpanKind.CONSUMER, _about(turn), _context(turn.task.traceparent))

    @contextmanager
    def agent_call(self, turn: Turn, meter: UsageMeter) -> Iterator[Span]:
        before = dict(meter.models)
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": turn.mailbox,
            "gen_ai.conversation.id": turn.task.task_id,
        }
        with self._span(f"invoke_agent {turn.mailbox}", SpanKind.INTERNAL, attributes) as span:
            try:
                yield span
            finally:
                _note_usage(span, before, meter)

    def action(self, call: AgentToolCall) -> AbstractContextManager[Span]:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool_name,
            "gen_ai.tool.call.id": call.tool_call_id,
            "gen_ai.tool.type": "function",
        }
        return self._span(f"execute_tool {call.tool_name}", SpanKind.INTERNAL, attributes)

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


def _note_usage(span: Span, before: Mapping[str, object], meter: UsageMeter) -> None:
    """Add the usage of this call: the models whose usage has changed; the rest is of an earlier run of the turn."""
    fresh = {model: usage for model, usage in meter.models.items() if usage is not before.get(model)}
    if not fresh:
        return
    model = next(reversed(fresh))
    if model:
        span.note("gen_ai.request.model", model)
        provider, slash, _ = model.partition("/")
        if slash:
            span.note("gen_ai.provider.name", provider)
    span.note("gen_ai.usage.input_tokens", sum(usage.input_tokens for usage in fresh.values()))
    span.note("gen_ai.usage.output_tokens", sum(usage.output_tokens for usage in fresh.values()))
    cached = sum(usage.cached_tokens for usage in fresh.values())
    if cached:
        span.note("gen_ai.usage.cache_read.input_tokens", cached)
    span.note("mail.usage.cost", sum(usage.cost for usage in fresh.values()))


def exporting_tracer(service: str) -> OpenTelemetryTracer:
    """Return a tracer that sends its spans by OTLP over HTTP, configured by the standard `OTEL_*` variables.

    `service` is the default of `OTEL_SERVICE_NAME`.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource({SERVICE_NAME: service}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetryTracer(provider)
