"""The log of the functions, as JSON lines that name their task, and their metrics, in CloudWatch's embedded format."""

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from mail.core.context import CURRENT_TASK
from mail.core.turn_work import TurnReport

if TYPE_CHECKING:
    from aws_lambda_powertools import Metrics

LEVEL_VARIABLE = "POWERTOOLS_LOG_LEVEL"

SERVICE = os.environ.get("POWERTOOLS_SERVICE_NAME", "mail")
NAMESPACE = os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "MAIL")

RAN = (TurnReport.Outcome.COMMITTED, TurnReport.Outcome.LOST)
"""How a token ends that has cost the work of an agent."""

_formatter = LambdaPowertoolsFormatter(service=SERVICE)


class _TaskFilter(logging.Filter):
    """Says of each line which task it is about."""

    def filter(self, record: logging.LogRecord) -> bool:
        task_id = CURRENT_TASK.get()
        if task_id:
            record.task_id = task_id
        return True


def set_up() -> None:
    """Let every logger of the process write JSON lines to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_formatter)
    handler.addFilter(_TaskFilter())
    logging.root.handlers = [handler]  # the runtime has put one of its own there
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("mail").setLevel(os.environ.get(LEVEL_VARIABLE, "INFO"))


def begin_invocation(context: Any) -> None:
    """Name the invocation in every line from now on, and no task of an earlier one."""
    CURRENT_TASK.set("")
    _formatter.append_keys(function_name=context.function_name, function_request_id=context.aws_request_id)


def make_metrics() -> "Metrics":
    """Where metrics are collected; whoever adds some flushes them at the end of the invocation."""
    from aws_lambda_powertools import Metrics

    return Metrics(namespace=NAMESPACE, service=SERVICE)


def measure_turn(metrics: "Metrics", report: TurnReport, seconds: float) -> None:
    """Add what a turn was: its time and its agent's, and how often it had to be settled again."""
    if report.outcome not in RAN:
        metrics.add_metric("IdleWakeUps", "Count", 1)
        return
    metrics.add_metric("LostTurns" if report.outcome is TurnReport.Outcome.LOST else "Turns", "Count", 1)
    metrics.add_metric("TurnSeconds", "Seconds", seconds)
    metrics.add_metric("AgentSeconds", "Seconds", report.agent_seconds)
    metrics.add_metric("Conflicts", "Count", report.conflicts)


def measure_delivery(metrics: "Metrics", report: TurnReport, seconds: float) -> None:
    """Add what an attempt to hand mail over to another swarm was, whatever the swarm has said to it."""
    if report.outcome not in RAN:
        metrics.add_metric("IdleWakeUps", "Count", 1)
        return
    metrics.add_metric("DeliveryAttempts", "Count", 1)
    metrics.add_metric("DeliverySeconds", "Seconds", seconds)
