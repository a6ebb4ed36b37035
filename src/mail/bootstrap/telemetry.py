"""The metrics, traces and log of a system, as configured.

Their libraries are extras of the package, imported only where they are used.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mail.adapters.telemetry.json_log import ActivityLog
from mail.adapters.telemetry.text_log import TextLog
from mail.config import TelemetryConfig
from mail.core.engine.telemetry import NO_TRACER, Observers, Tracer
from mail.core.protocol.error_text import missing_package
from mail.core.protocol.values import value
from mail.errors import ConfigurationError
from mail.utils.parsing import read_python_string

if TYPE_CHECKING:
    from mail.adapters.telemetry.otel import OpenTelemetryTracer
    from mail.adapters.telemetry.prometheus import PrometheusMetrics

logger = logging.getLogger(__name__)


@value
class Telemetry:
    """The observers and the tracer of a runtime and its front doors."""

    metrics: "PrometheusMetrics | None" = None
    log: ActivityLog | None = None
    text_log: TextLog | None = None
    spans: "OpenTelemetryTracer | None" = None

    @property
    def observers(self) -> Observers:
        """The observers of turns and tasks."""
        return tuple(each for each in (self.metrics, self.log, self.text_log) if each is not None)

    @property
    def request_observers(self) -> "tuple[PrometheusMetrics | ActivityLog | TextLog, ...]":
        """The observers of requests."""
        text_log = self.text_log if self.text_log is not None and self.text_log.shows_details else None
        return tuple(each for each in (self.metrics, self.log, text_log) if each is not None)

    @property
    def tracer(self) -> Tracer:
        """The tracer of tasks."""
        return self.spans or NO_TRACER

    def flush(self) -> None:
        """Send the recorded spans, where the process may be frozen next. It blocks."""
        if self.spans is not None:
            self.spans.flush()

    def close(self) -> None:
        """Send the recorded spans, and stop. It blocks."""
        if self.spans is not None:
            self.spans.close()


FUNCTION_SECONDS = 2.0
"""Time limit for sending spans from a function, which its caller pays for and may wait for."""


def telemetry_of_server(
    config: TelemetryConfig, service: str, depths: Mapping[str, Callable[[], float]]
) -> Telemetry:
    """Make the telemetry of a server. Raises ConfigurationError if a library is missing."""
    metrics = _metrics(depths) if config.metrics != "off" else None
    return replace(
        telemetry_of_worker(config, service, () if metrics is None else (metrics,)), metrics=metrics
    )


def telemetry_of_worker(config: TelemetryConfig, service: str, observers: Observers) -> Telemetry:
    """Make the telemetry of a process that serves no metrics. Raises ConfigurationError if a library is missing."""
    return Telemetry(
        log=ActivityLog() if config.log_format == "json" else None,
        text_log=TextLog() if config.log_format == "text" else None,
        spans=_spans(config, service, observers) if config.traces else None,
    )


def telemetry_of_function(config: TelemetryConfig, service: str, observers: Observers) -> Telemetry:
    """Make the telemetry of a function, whose metrics go to CloudWatch, by `observers`, and whose log is always JSON.

    A function whose bundle lacks OpenTelemetry passes traces on without spans of its own.
    """
    spans = None
    if config.traces:
        try:
            spans = _spans(config, service, observers, FUNCTION_SECONDS)
        except _LibraryMissing as error:
            logger.warning("%s", error.detail)
    return Telemetry(log=ActivityLog(), spans=spans)


def _metrics(depths: Mapping[str, Callable[[], float]]) -> "PrometheusMetrics":
    try:
        from mail.adapters.telemetry.prometheus import PrometheusMetrics
    except ImportError as error:
        raise ConfigurationError(f"[server.telemetry] metrics needs {missing_package(error)}") from error
    return PrometheusMetrics(depths)


class _LibraryMissing(ConfigurationError):
    """The libraries for traces are not installed."""


def _spans(
    config: TelemetryConfig, service: str, observers: Observers, seconds: float | None = None
) -> "OpenTelemetryTracer":
    redact = read_python_string(config.redact) if config.redact else None
    if redact is not None and not callable(redact):
        raise ConfigurationError(f"[server.telemetry] redact: {config.redact!r} is not a function")

    def on_drop(count: int) -> None:
        for observer in observers:
            observer.spans_dropped(count)

    try:
        from mail.adapters.telemetry.contents import Contents
        from mail.adapters.telemetry.otel import exporting_tracer

        return exporting_tracer(service, Contents(config.content, redact), on_drop, seconds)
    except ImportError as error:
        raise _LibraryMissing(f"[server.telemetry] traces needs {missing_package(error)}") from error
