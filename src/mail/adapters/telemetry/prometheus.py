"""Metrics of a server for Prometheus. Needs the extra `metrics`.

The names are those of the functions' metrics on AWS (`emf`) in Prometheus' style: `TurnSeconds` is
`mail_turn_seconds`, `Turns` is `mail_turns_total`.
"""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.telemetry import Observer, ended_as, is_beginning
from mail.core.task.change import TaskChange
from mail.core.task.leases import Claim
from mail.core.task.mailboxes import agent_of, hook_of, peer_of, polled_by

SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""The bounds of the histograms' buckets. A turn takes milliseconds, or minutes with a language model."""

MANY = 200
"""The most values of a label that callers choose; further ones are counted as OTHER."""

OTHER = "other"

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class _Names:
    """Limits the number of a label's values."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= MANY:
                return OTHER
            self._known.add(name)
        return name


WEBHOOKS = "webhooks"
"""The label of all webhooks, in place of a swarm: callers choose their URLs."""


def _destination(mailbox: str) -> str | None:
    """Return the destination of outbound mail; None for the mailbox of an agent."""
    return polled_by(mailbox) or peer_of(mailbox) if hook_of(mailbox) is None else WEBHOOKS


class PrometheusMetrics(Observer):
    """The metrics of an engine and its HTTP server.

    Args:
        depths: the lengths of queues, by name.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, depths: Mapping[str, Callable[[], float]]) -> None:
        self._registry = registry = CollectorRegistry()
        self._agent, self._swarm, self._model = _Names(), _Names(), _Names()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"mail_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"mail_{name}", text, labels, registry=registry, buckets=SECONDS)

        self._turns = counter("turns", "Ended turns of agents, by outcome.", "agent", "outcome")
        self._failed_turns = counter(
            "failed_turns", "Turns that could not be stored, and are retried.", "agent"
        )
        self._taken_over = counter(
            "taken_over_turns", "Turns and deliveries taken over from workers that are gone, or hang."
        )
        self._dropped_spans = counter("dropped_spans", "Spans of traces that could not be sent.")
        self._idle = counter("idle_wake_ups", "Wake-ups without work.")
        self._conflicts = counter(
            "conflicts", "Commits of turns that were retried after a concurrent commit."
        )
        self._turn_seconds = histogram("turn_seconds", "Duration of turns, up to their commit.", "agent")
        self._agent_seconds = histogram(
            "agent_seconds", "Duration of calls of agents, with their models.", "agent"
        )
        self._begun = counter("tasks_begun", "Tasks that have begun.")
        self._ended = counter("tasks_ended", "Ended generations of tasks, by status.", "status")
        self._dead = counter("dead_letters", "Messages that could not be processed.")
        self._attempts = counter(
            "delivery_attempts", "Attempts to deliver outbound mail, by outcome.", "swarm", "outcome"
        )
        self._failed_deliveries = counter(
            "failed_deliveries", "Deliveries that could not be stored, and are retried.", "swarm"
        )
        self._delivery_seconds = histogram("delivery_seconds", "Duration of deliveries.", "swarm")
        self._model_turns = counter("model_turns", "Committed turns that called a language model.", "agent")
        self._calls = counter("model_calls", "Calls of language models.", "agent", "model")
        self._input = counter("input_tokens", "Input tokens of models.", "agent", "model")
        self._cached = counter("cached_tokens", "Input tokens from a cache.", "agent", "model")
        self._cache_writes = counter(
            "cache_write_tokens", "Input tokens written to a cache.", "agent", "model"
        )
        self._output = counter("output_tokens", "Output tokens of models.", "agent", "model")
        self._cost = counter("cost_usd", "Cost of models, in US dollars.", "agent", "model")
        self._requests = counter("http_requests", "HTTP requests.", "method", "route", "status")
        self._request_seconds = histogram(
            "http_request_seconds", "Duration of HTTP requests.", "method", "route"
        )
        queue = Gauge("mail_queue_depth", "Mailboxes that wait for a worker.", ["queue"], registry=registry)
        for name, depth in depths.items():
            queue.labels(name).set_function(depth)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def task_changed(self, change: TaskChange) -> None:
        if is_beginning(change):
            self._begun.inc()
        status = ended_as(change)
        if status is not None:
            self._ended.labels(status.value).inc()
        self._dead.inc(len(change.dead_letters))

    def turn_ended(self, turn: Claim, report: TurnReport, seconds: float) -> None:
        self._conflicts.inc(report.conflicts)
        swarm = _destination(turn.mailbox)
        if swarm is not None:
            swarm = self._swarm(swarm)
            outcome = report.outbound.value if report.outbound else report.outcome.value
            self._attempts.labels(swarm, outcome).inc()
            self._delivery_seconds.labels(swarm).observe(seconds)
            return
        agent = self._agent(agent_of(turn.mailbox))
        self._turns.labels(agent, report.outcome.value).inc()
        self._turn_seconds.labels(agent).observe(seconds)
        self._agent_seconds.labels(agent).observe(report.agent_seconds)
        self._model_turns.labels(agent).inc(report.is_of_model)
        self._count_models(agent, report)

    def _count_models(self, agent: str, report: TurnReport) -> None:
        for model, usage in report.models.items():
            labels = (agent, self._model(model or OTHER))
            self._calls.labels(*labels).inc(usage.calls)
            self._input.labels(*labels).inc(usage.input_tokens)
            self._cached.labels(*labels).inc(usage.cached_tokens)
            self._cache_writes.labels(*labels).inc(usage.cache_write_tokens)
            self._output.labels(*labels).inc(usage.output_tokens)
            self._cost.labels(*labels).inc(usage.cost)

    def turn_failed(self, turn: Claim, report: TurnReport, error: BaseException) -> None:
        swarm = _destination(turn.mailbox)
        if swarm is None:
            agent = self._agent(agent_of(turn.mailbox))
            self._failed_turns.labels(agent).inc()
            self._count_models(agent, report)
        else:
            self._failed_deliveries.labels(self._swarm(swarm)).inc()

    def turn_taken_over(self, mailbox: str) -> None:
        self._taken_over.inc()

    def woken_for_nothing(self, mailbox: str) -> None:
        self._idle.inc()

    def spans_dropped(self, count: int) -> None:
        self._dropped_spans.inc(count)

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request; `route` is its pattern."""
        method = method if method in METHODS else OTHER
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)
