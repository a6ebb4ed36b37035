"""The functions' log, as JSON lines with the task's id, and their metrics, in CloudWatch's embedded metric format."""

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.telemetry import Observer, ended_as, is_beginning
from mail.core.task.change import TaskChange
from mail.core.task.costs import add_models
from mail.core.task.leases import Claim
from mail.core.task.mailboxes import goes_out
from mail.core.turns.context import leave_task, log_fields

LEVEL_VARIABLE = "POWERTOOLS_LOG_LEVEL"

SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME", "mail")
NAMESPACE = os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "MAIL")

RAN = {
    TurnReport.Outcome.COMMITTED: "Turns",
    TurnReport.Outcome.LOST: "LostTurns",
    TurnReport.Outcome.PARKED: "ParkedTurns",
}
"""Outcomes of wake-ups that cost an agent's work, and the metrics that count them."""

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


class RequestMetrics:
    """Counts the requests that are answered with 5xx, which Lambda takes for successful invocations."""

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request if it has failed."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            write_metrics({"ServerErrors": 1})


class TaskMetrics(Observer):
    """Counts the tasks that begin, the generations that end (by status) and the dead letters, at each commit.

    It also counts the turns that are taken over from workers that are gone.
    """

    def task_changed(self, change: TaskChange) -> None:
        if is_beginning(change):
            write_metrics({"TasksBegun": 1})
        status = ended_as(change)
        if status is not None:
            write_metrics({"TasksEnded": 1}, status=status.value)
        if change.dead_letters:
            write_metrics({"DeadLetters": len(change.dead_letters)})

    def turn_taken_over(self, mailbox: str) -> None:
        write_metrics({"TakenOverTurns": 1})

    def spans_dropped(self, count: int) -> None:
        write_metrics({"DroppedSpans": count})


class TurnMetrics(TaskMetrics):
    """Measures also the turns and deliveries of a function that runs them, and the usage of models."""

    def turn_ended(self, turn: Claim, report: TurnReport, seconds: float) -> None:
        if report.outcome not in RAN:
            self.woken_for_nothing(turn.mailbox)
            return
        if goes_out(turn.mailbox):
            write_metrics({"DeliveryAttempts": 1, "DeliverySeconds": seconds})
            return
        agent = {"AgentSeconds": report.agent_seconds, "Conflicts": report.conflicts}
        of_model = {"ModelTurns": 1} if report.is_of_model else {}
        write_metrics({RAN[report.outcome]: 1, "TurnSeconds": seconds, **agent, **of_model})
        self._write_models(report)

    def turn_failed(self, turn: Claim, report: TurnReport, error: BaseException) -> None:
        self._write_models(report)

    def _write_models(self, report: TurnReport) -> None:
        """Write what the models cost, by model."""
        for model, usage in add_models({}, report.models).items():
            tokens = {
                "InputTokens": usage.input_tokens,
                "CachedTokens": usage.cached_tokens,
                "CacheWriteTokens": usage.cache_write_tokens,
                "OutputTokens": usage.output_tokens,
            }
            write_metrics({"ModelCalls": usage.calls, **tokens, "CostUsd": usage.cost}, model=model)

    def woken_for_nothing(self, mailbox: str) -> None:
        write_metrics({"IdleWakeUps": 1})


def write_metrics(metrics: Mapping[str, float], **dimension: str) -> None:
    """Write metrics in total and, if a dimension is given, also by its value."""
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [["service"], *([["service", *dimension]] if dimension else [])],
        "Metrics": [{"Name": name, "Unit": _unit(name)} for name in metrics],
    }
    about = {"Timestamp": round(time.time() * 1000), "CloudWatchMetrics": [directive]}
    sys.stdout.write(f"{json.dumps({'_aws': about, 'service': SERVICE, **dimension, **metrics})}\n")
    sys.stdout.flush()


def _unit(name: str) -> str:
    if name.endswith("Seconds"):
        return "Seconds"
    return "None" if name == "CostUsd" else "Count"
