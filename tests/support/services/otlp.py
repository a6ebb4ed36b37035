"""A receiver of traces, as OpenTelemetry's SDK sends them. Needs the extra `otel`."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.services.loopback import Handler, serve


class Receiver:
    """Takes spans by OTLP over HTTP on a loopback port."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        receiver = self

        class Collector(Handler):
            def respond(self) -> None:
                body = self.body()
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    (service,) = (
                        each.value.string_value
                        for each in resource.resource.attributes
                        if each.key == "service.name"
                    )
                    for scope in resource.scope_spans:
                        receiver.spans += [(service, span) for span in scope.spans]
                self.answer()

        self._handler = Collector

    @contextmanager
    def running(self) -> Iterator["Receiver"]:
        with serve(self._handler) as self.url:
            yield self

    def of(self, name: str) -> list[tuple[str, Any]]:
        return [(service, span) for service, span in self.spans if span.name == name]
