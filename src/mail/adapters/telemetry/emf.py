"""Metrics in CloudWatch's embedded metric format: JSON lines in the log of a function or a worker on AWS."""

import json
import os
import sys
import time
from collections.abc import Mapping
from http import HTTPStatus

from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.telemetry import Observer, ended_as, is_beginning
from mail.core.task.change import TaskChange
from mail.core.task.costs import add_models
from mail.core.task.leases import Claim
from mail.core.task.mailboxes import is_sent

RAN = {
    TurnReport.Outcome.COMMITTED: "Turns",
    TurnReport.Outcome.LOST: "LostTurns",
    TurnReport.Outcome.PARKED: "ParkedTurns",
}
"""Outcomes of wake-ups that cost an agent's work, and the metrics that count them."""


def service_name() -> str:
    """Return the dimension of all metrics: the name of the stack."""
    return os.environ.get("POWERTOOLS_SERVICE_NAME", "mail")


class RequestMetrics:
    """Counts the requests that are answered with 5xx, which Lambda takes for successful invocations."""

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request if it has failed."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            write_failure("ServerErrors")


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
        if is_sent(turn.mailbox):
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


def write_failure(metric: str) -> None:
    """Count a failure, in total and by the version of the function, for the alarms that watch a gradual rollout."""
    name, version = (os.environ.get(f"AWS_LAMBDA_FUNCTION_{each}", "") for each in ("NAME", "VERSION"))
    write_metrics({metric: 1}, **({"version": f"{name}:{version}"} if name else {}))


def write_metrics(metrics: Mapping[str, float], **dimension: str) -> None:
    """Write metrics in total and, if a dimension is given, also by its value."""
    directive = {
        "Namespace": os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "MAIL"),
        "Dimensions": [["service"], *([["service", *dimension]] if dimension else [])],
        "Metrics": [{"Name": name, "Unit": _unit(name)} for name in metrics],
    }
    about = {"Timestamp": round(time.time() * 1000), "CloudWatchMetrics": [directive]}
    sys.stdout.write(f"{json.dumps({'_aws': about, 'service': service_name(), **dimension, **metrics})}\n")
    sys.stdout.flush()


def _unit(name: str) -> str:
    if name.endswith("Seconds"):
        return "Seconds"
    return "None" if name == "CostUsd" else "Count"
