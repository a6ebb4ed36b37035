"""Metrics of a server as Prometheus reads them. Needs the extra `metrics`.

Their names are those of the functions' metrics on AWS (`handlers.telemetry`) in Prometheus' style: `TurnSeconds` is
`mail_turn_seconds`, `Turns` is `mail_turns_total`.
"""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mail.core.engine.telemetry import Observer, TurnReport, ended_as, is_beginning
from mail.core.task.change import Claim, TaskChange
from mail.core.task.mailboxes import hook_of, peer_of

SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""The bounds of the histograms' buckets: a turn takes milliseconds, or the minutes of a language model."""

MANY = 200
"""How many values of a label there may be that others choose: what comes after these is counted as OTHER."""

OTHER = "other"

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class _Names:
    """Keeps the number of a label's values small, whatever others come up with."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= MANY:
                return OTHER
            self._known.add(name)
        return name


WEBHOOKS = "webhooks"
"""What stands in the place of a swarm for all webhooks: callers choose their URLs."""


def _destination(mailbox: str) -> str | None:
    """To whom what is in a mailbox is delivered; None for an agent's."""
    return peer_of(mailbox) if hook_of(mailbox) is None else WEBHOOKS


class PrometheusMetrics(Observer):
    """Counts what the engine and its HTTP server do, each instance for itself.

    `depths` are the queues whose length is told, by name.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, depths: Mapping[str, Callable[[], float]]) -> None:
        self._registry = registry = CollectorRegistry()
        self._agent, self._swarm, self._model = _Names(), _Names(), _Names()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"mail_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"mail_{name}", text, labels, registry=registry, buckets=SECONDS)

        self._turns = counter(
            "turns", "Turns of agents that are over, by how they ended.", "agent", "outcome"
        )
        self._failed_turns = counter(
            "failed_turns", "Turns that could not be stored and are run again.", "agent"
        )
        self._idle = counter("idle_wake_ups", "Wake-ups for which there was nothing to do.")
        self._conflicts = counter("conflicts", "How often a turn was settled again, as another was first.")
        self._turn_seconds = histogram("turn_seconds", "How long turns take, to their commit.", "agent")
        self._agent_seconds = histogram(
            "agent_seconds", "How long agents, and so their models, take.", "agent"
        )
        self._begun = counter("tasks_begun", "Tasks that have begun.")
        self._ended = counter("tasks_ended", "Generations of tasks that have ended, by how.", "status")
        self._dead = counter("dead_letters", "Messages that could not be processed.")
        self._attempts = counter(
            "delivery_attempts", "Mail for other swarms, by what became of it.", "swarm", "outcome"
        )
        self._failed_deliveries = counter(
            "failed_deliveries", "Deliveries that could not be stored and are made again.", "swarm"
        )
        self._delivery_seconds = histogram("delivery_seconds", "How long deliveries take.", "swarm")
        self._calls = counter("model_calls", "Calls of language models.", "agent", "model")
        self._input = counter("input_tokens", "Tokens that models have read.", "agent", "model")
        self._cached = counter("cached_tokens", "Those of them that came from a cache.", "agent", "model")
        self._output = counter("output_tokens", "Tokens that models have written.", "agent", "model")
        self._cost = counter("cost_usd", "What models were paid, in US dollars.", "agent", "model")
        self._requests = counter("http_requests", "HTTP requests.", "method", "route", "status")
        self._request_seconds = histogram("http_request_seconds", "How long they take.", "method", "route")
        queue = Gauge("mail_queue_depth", "Mailboxes that wait for a worker.", ["queue"], registry=registry)
        for name, depth in depths.items():
            queue.labels(name).set_function(depth)

    def render(self) -> bytes:
        """All of it, in Prometheus' text format."""
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
            outcome = report.delivery.value if report.delivery else report.outcome.value
            self._attempts.labels(swarm, outcome).inc()
            self._delivery_seconds.labels(swarm).observe(seconds)
            return
        agent = self._agent(turn.mailbox)
        self._turns.labels(agent, report.outcome.value).inc()
        self._turn_seconds.labels(agent).observe(seconds)
        self._agent_seconds.labels(agent).observe(report.agent_seconds)
        for model, usage in report.models.items():
            labels = (agent, self._model(model or OTHER))
            self._calls.labels(*labels).inc(usage.calls)
            self._input.labels(*labels).inc(usage.input_tokens)
            self._cached.labels(*labels).inc(usage.cached_tokens)
            self._output.labels(*labels).inc(usage.output_tokens)
            self._cost.labels(*labels).inc(usage.cost)

    def turn_failed(self, turn: Claim, error: BaseException) -> None:
        swarm = _destination(turn.mailbox)
        if swarm is None:
            self._failed_turns.labels(self._agent(turn.mailbox)).inc()
        else:
            self._failed_deliveries.labels(self._swarm(swarm)).inc()

    def woken_for_nothing(self, mailbox: str) -> None:
        self._idle.inc()

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """An HTTP request was answered; `route` is its pattern."""
        method = method if method in METHODS else OTHER
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)
