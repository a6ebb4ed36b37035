"""A receiver of traces and metrics, as OpenTelemetry's SDK sends them. Needs the extra `otel`."""

import gzip
import hmac
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.services.loopback import Handler, serve

SECRET_KEY = "wJalrXUtnFEMI"


def is_signed(url: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether a request to X-Ray is signed with `SECRET_KEY`, by the rules of Signature Version 4."""
    given = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=\w+/(\w+)/([\w-]+)/xray/aws4_request, SignedHeaders=(\S+), Signature=(\w+)",
        headers["authorization"],
    )
    if given is None:
        return False
    day, region, names, signature = given.groups()
    signed = "".join(f"{name}:{headers[name]}\n" for name in names.split(";"))
    lines = ("POST", urlsplit(url).path, "", signed, names, sha256(body).hexdigest())
    scope = f"{day}/{region}/xray/aws4_request"
    text = (
        f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{sha256('\n'.join(lines).encode()).hexdigest()}"
    )
    key = f"AWS4{SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex() == signature


class Receiver:
    """Takes spans and metrics by OTLP over HTTP on a loopback port.

    Attributes:
        status: of its answers; it keeps nothing that it has not accepted.
        requests: their number.
        paths: their number by path.
        signatures: of its requests, whether AWS would take the signature; only of those that have one.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        self.metrics: list[Any] = []
        self.status = 200
        self.requests = 0
        self.paths: Counter[str] = Counter()
        self.signatures: list[bool] = []
        receiver = self

        class Collector(Handler):
            def respond(self) -> None:
                body = self.body()
                if "authorization" in self.headers:
                    receiver.signatures.append(is_signed(self.path, self.headers, body))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.requests += 1
                receiver.paths[self.path] += 1
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
