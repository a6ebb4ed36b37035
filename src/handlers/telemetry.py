"""The functions' log, as JSON lines with the task's id, and their metrics, in CloudWatch's embedded metric format."""

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.telemetry import Observer, ended_as, is_beginning
from mail.core.task.change import TaskChange
from mail.core.task.costs import add_models
from mail.core.turns.context import leave_task, log_fields

if TYPE_CHECKING:
    from aws_lambda_powertools import Metrics

LEVEL_VARIABLE = "POWERTOOLS_LOG_LEVEL"

SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME", "mail")
NAMESPACE = os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "MAIL")

RAN = (TurnReport.Outcome.COMMITTED, TurnReport.Outcome.LOST)
"""Outcomes of wake-ups that cost an agent's work."""

_formatter = LambdaPowertoolsFormatter(service=SERVICE, utc=True, use_rfc3339=True)
"""Lambda filters lines by `level` only if their `timestamp` is one of RFC 3339."""

SERVER_LOGGERS = ("uvicorn", "uvicorn.access")
"""Have handlers of their own, which write plain text, in the function whose server is uvicorn."""


class _TaskFilter(logging.Filter):
    """Adds task, agent and message to each log line."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in log_fields().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def set_up() -> None:
    """Write the logs of the process to standard output as JSON lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_formatter)
    handler.addFilter(_TaskFilter())
    logging.root.handlers = [handler]  # replaces the runtime's own
    logging.root.setLevel(logging.WARNING)
    for name in SERVER_LOGGERS:
        server = logging.getLogger(name)
        server.handlers, server.propagate = [], True
        server.setLevel(logging.NOTSET)
    logging.getLogger("mail").setLevel(os.environ.get(LEVEL_VARIABLE, "INFO"))


def begin_invocation(context: Any) -> None:
    """Add the invocation to all following log lines, and drop the task of the previous invocation."""
    begin_request(context.aws_request_id, context.function_name)


def begin_request(request_id: str, function_name: str) -> None:
    """Do the same where only these two are known of the invocation."""
    leave_task()
    _formatter.append_keys(function_name=function_name, function_request_id=request_id)


def make_metrics() -> "Metrics":
    """Make a collector of metrics; its user flushes it at the end of the invocation."""
    from aws_lambda_powertools.metrics import Metrics

    return Metrics(namespace=NAMESPACE, service=SERVICE)


def measure_turn(metrics: "Metrics", report: TurnReport, seconds: float) -> None:
    """Add a turn's duration, its agent's and its number of conflicts, and write its model usage."""
    if report.outcome not in RAN:
        metrics.add_metric("IdleWakeUps", "Count", 1)
        return
    metrics.add_metric("LostTurns" if report.outcome is TurnReport.Outcome.LOST else "Turns", "Count", 1)
    metrics.add_metric("TurnSeconds", "Seconds", seconds)
    metrics.add_metric("AgentSeconds", "Seconds", report.agent_seconds)
    metrics.add_metric("Conflicts", "Count", report.conflicts)
    for model, usage in add_models({}, report.models).items():
        counts = {
            "ModelCalls": usage.calls,
            "InputTokens": usage.input_tokens,
            "CachedTokens": usage.cached_tokens,
            "OutputTokens": usage.output_tokens,
        }
        _write(counts, {"CostUsd": usage.cost}, model=model)


def measure_outbound(metrics: "Metrics", report: TurnReport, seconds: float) -> None:
    """Add the duration of a delivery to another swarm or to a webhook, successful or not."""
    if report.outcome not in RAN:
        metrics.add_metric("IdleWakeUps", "Count", 1)
        return
    metrics.add_metric("DeliveryAttempts", "Count", 1)
    metrics.add_metric("DeliverySeconds", "Seconds", seconds)


class RequestMetrics:
    """Counts the requests that are answered with 5xx, which Lambda takes for successful invocations."""

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request if it has failed."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _write({"ServerErrors": 1})


class TaskMetrics(Observer):
    """Counts the tasks that begin, the generations that end (by status) and the dead letters, at each commit.

    It also counts the turns that are taken over from workers that are gone.
    """

    def task_changed(self, change: TaskChange) -> None:
        if is_beginning(change):
            _write({"TasksBegun": 1})
        status = ended_as(change)
        if status is not None:
            _write({"TasksEnded": 1}, status=status.value)
        if change.dead_letters:
            _write({"DeadLetters": len(change.dead_letters)})

    def turn_taken_over(self, mailbox: str) -> None:
        _write({"TakenOverTurns": 1})


def _write(
    counts: Mapping[str, int], amounts: Mapping[str, float] = MappingProxyType({}), **dimension: str
) -> None:
    """Write metrics in total and, if a dimension is given, also by its value.

    Powertools supports only one set of dimensions per invocation.
    """
    units = {**dict.fromkeys(counts, "Count"), **dict.fromkeys(amounts, "None")}
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [["service"], *([["service", *dimension]] if dimension else [])],
        "Metrics": [{"Name": name, "Unit": unit} for name, unit in units.items()],
    }
    about = {"Timestamp": round(time.time() * 1000), "CloudWatchMetrics": [directive]}
    line = json.dumps({"_aws": about, "service": SERVICE, **dimension, **counts, **amounts})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
