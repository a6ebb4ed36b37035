"""Who is told what a system does: its metrics, traces and log, as far as the configuration wants them.

Their libraries are extras of the package, and nothing of them is imported where they are not wanted.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mail.config import TelemetryConfig
from mail.core.engine.telemetry import NO_TRACER, Tracer
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.adapters.telemetry.activity import ActivityLog
    from mail.adapters.telemetry.otel import OpenTelemetryTracer
    from mail.adapters.telemetry.prometheus import PrometheusMetrics

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """What a runtime and its front doors are handed."""

    metrics: "PrometheusMetrics | None" = None
    log: "ActivityLog | None" = None
    spans: "OpenTelemetryTracer | None" = None

    @property
    def observers(self) -> "tuple[PrometheusMetrics | ActivityLog, ...]":
        """Who is told of turns, tasks and requests."""
        return tuple(each for each in (self.metrics, self.log) if each is not None)

    @property
    def tracer(self) -> Tracer:
        """Who follows tasks."""
        return self.spans or NO_TRACER

    def flush(self) -> None:
        """Send the spans that were recorded; to be called where the process may be frozen next. It blocks."""
        if self.spans is not None:
            self.spans.flush()

    def close(self) -> None:
        """Send them, and stop. It blocks."""
        if self.spans is not None:
            self.spans.close()


def watch_local(config: TelemetryConfig, service: str, depths: Mapping[str, Callable[[], float]]) -> Watched:
    """For an embedded server. Raises ConfigurationError where a library is missing."""
    return Watched(
        metrics=_metrics(depths) if config.metrics != "off" else None,
        log=_activity() if config.log_format == "json" else None,
        spans=_spans(service) if config.traces else None,
    )


def watch_aws(config: TelemetryConfig, service: str) -> Watched:
    """For a function: its metrics go to CloudWatch. One whose bundle lacks OpenTelemetry passes traces on, unseen."""
    if not config.traces:
        return Watched()
    try:
        return Watched(spans=_spans(service))
    except ConfigurationError as error:
        logger.warning("%s", error.detail)
        return Watched()


def _metrics(depths: Mapping[str, Callable[[], float]]) -> "PrometheusMetrics":
    try:
        from mail.adapters.telemetry.prometheus import PrometheusMetrics
    except ImportError as error:
        raise ConfigurationError(
            f"[server.telemetry] metrics needs {error.name}: pip install 'mail[metrics]'"
        ) from error
    return PrometheusMetrics(depths)


def _activity() -> "ActivityLog":
    from mail.adapters.telemetry.activity import ActivityLog

    return ActivityLog()


def _spans(service: str) -> "OpenTelemetryTracer":
    try:
        from mail.adapters.telemetry.otel import exporting_tracer

        return exporting_tracer(service)
    except ImportError as error:
        raise ConfigurationError(
            f"[server.telemetry] traces needs {error.name}: pip install 'mail[otel]'"
        ) from error
