"""A receiver of traces and metrics, as OpenTelemetry's SDK sends them. Needs the extra `otel`."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.services.loopback import Handler, serve


class Receiver:
    """Takes spans and metrics by OTLP over HTTP on a loopback port.

    Attributes:
        status: of its answers; it keeps nothing that it has not accepted.
        requests: their number.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        self.metrics: list[Any] = []
        self.status = 200
        self.requests = 0
        receiver = self

        class Collector(Handler):
            def respond(self) -> None:
                body = self.body()
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.requests += 1
                if receiver.status == 200:
                    (receiver.take_metrics if self.path == "/v1/metrics" else receiver.take_spans)(body)
                self.answer(receiver.status)

        self._handler = Collector

    def take_spans(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            (service,) = (
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            )
            for scope in resource.scope_spans:
                self.spans += [(service, span) for span in scope.spans]

    def take_metrics(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            self.metrics += [metric for scope in resource.scope_metrics for metric in scope.metrics]

    @contextmanager
    def running(self) -> Iterator["Receiver"]:
        with serve(self._handler) as self.url:
            yield self

    def of(self, name: str) -> list[tuple[str, Any]]:
        return [(service, span) for service, span in self.spans if span.name == name]
