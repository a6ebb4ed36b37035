"""`/metrics`: what is counted, and who may read it."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.engines.cloudwatch import sums
from support.processes.http_server import HTTPServer
from support.services.federation import Swallow

from mail.core.engine.leased_turn import OutboundResult, TurnReport
from mail.core.task.change import Turn
from mail.core.task.draft import Draft
from mail.core.task.mailboxes import peer_mailbox
from mail.core.task.task import TaskKey, Transition
from mail.core.task.usage import Usage, report_usage
from mail.errors import PeerRefused, StoreUnavailable
from mail.testing.agents import Call, View, build_swarm, complete, request, respond, wait
from mail.testing.changes import ANN, SWARM, Mail, Maker

pytest.importorskip("prometheus_client", reason="pip install 'mail-serverless[metrics]'")
from prometheus_client.parser import text_string_to_metric_families

from mail.adapters.telemetry import emf
from mail.adapters.telemetry.prometheus import MANY, OTHER, PrometheusMetrics, _Names

MODEL = "openai/gpt-5-mini"


def supervise(view: View) -> list[Call]:
    one = Usage(
        calls=1, input_tokens=100, cached_tokens=40, cache_write_tokens=50, output_tokens=7, cost=0.25
    )
    report_usage(one, MODEL)
    if view.mail.sender == "worker":
        return [complete("secret answer")]
    if "fail" in view.mail.body:
        raise RuntimeError("boom")
    if "abroad" in view.mail.body:
        return [request("ann@nowhere")]
    return [request("worker"), wait()]


def work(view: View) -> list[Call]:
    return [respond(view.mail.sender)] if view.mail.sender_type != "system" else [wait()]


class Metered:
    """A server with metrics, and what a scrape of it says."""

    def __init__(self, server: HTTPServer) -> None:
        self.server = server

    async def scrape(self) -> dict[str, float]:
        answer = await self.server.client.get("/metrics", headers=self.server.headers("admin"))
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")
        families = text_string_to_metric_families(answer.text)
        return {
            sample.name + "".join(f"/{value}" for _, value in sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }


@pytest.fixture
async def metered() -> AsyncIterator[Metered]:
    metrics = PrometheusMetrics({"turns": lambda: 3})
    swarm = build_swarm({"supervisor": supervise, "worker": work})
    async with HTTPServer(swarm, metrics=metrics, observers=(metrics,)) as server:
        server.rig.runtime.observers = (metrics,)
        yield Metered(server)


async def test_turns_tasks_and_requests(metered: Metered) -> None:
    await metered.server.ask()
    await metered.server.ask()
    await metered.server.client.get("/task", params={"task_id": "a secret"})
    await metered.server.client.get("/a/path/of/somebodys")
    found = await metered.scrape()
    assert found["mail_turns_total/supervisor/committed"] == 4
    assert found["mail_turns_total/worker/committed"] == 2
    assert found["mail_turn_seconds_count/supervisor"] == 4
    assert found["mail_agent_seconds_count/worker"] == 2
    assert found["mail_agent_seconds_sum/worker"] <= found["mail_turn_seconds_sum/worker"]
    assert found["mail_tasks_begun_total"] == 2
    assert found["mail_tasks_ended_total/completed"] == 2
    assert found["mail_http_requests_total/POST//message/200"] == 2
    assert found["mail_http_requests_total/GET//task/404"] == 1
    assert found["mail_http_requests_total/GET/unmatched/404"] == 1
    assert found["mail_http_request_seconds_count/POST//message"] == 2
    assert found["mail_queue_depth/turns"] == 3
    assert not [name for name in found if "secret" in name or "somebody" in name]


async def test_what_models_were_paid(metered: Metered) -> None:
    await metered.server.ask()
    failed = TurnReport(TurnReport.Outcome.FAILED, models={MODEL: Usage(calls=5)})
    metered.server.rig.runtime.observers[0].turn_failed(turn_of("worker"), failed, StoreUnavailable())
    found = await metered.scrape()
    assert found["mail_model_turns_total/supervisor"] == 2
    assert found["mail_model_turns_total/worker"] == 0
    assert found[f"mail_model_calls_total/worker/{MODEL}"] == 5
    assert found[f"mail_model_calls_total/supervisor/{MODEL}"] == 2
    assert found[f"mail_input_tokens_total/supervisor/{MODEL}"] == 200
    assert found[f"mail_cached_tokens_total/supervisor/{MODEL}"] == 80
    assert found[f"mail_cache_write_tokens_total/supervisor/{MODEL}"] == 100
    assert found[f"mail_output_tokens_total/supervisor/{MODEL}"] == 14
    assert found[f"mail_cost_usd_total/supervisor/{MODEL}"] == 0.5


async def test_failures(metered: Metered) -> None:
    await metered.server.post(body="fail")
    found = await metered.scrape()
    assert found["mail_tasks_ended_total/failed"] == 1
    assert found["mail_dead_letters_total"] == 1


async def test_deliveries(metered: Metered) -> None:
    class Refusing(Swallow):
        async def deliver(self, message: Any, *, back: bool, **_: object) -> str | None:
            raise PeerRefused("not known here")

    metered.server.rig.runtime.peers = Refusing()
    await metered.server.client.post(
        "/interswarm/message", json={"user_token": "", "body": "x", "targets": ["a@b"]}
    )
    found = await metered.scrape()
    assert found["mail_delivery_attempts_total/returned/b"] == 1
    assert found["mail_delivery_seconds_count/b"] == 1
    assert found["mail_dead_letters_total"] == 1
    assert not [name for name in found if name.startswith("mail_turns_total/@")]


class TestWhoMayRead:
    async def test_admins(self, metered: Metered) -> None:
        client, server = metered.server.client, metered.server
        assert (await client.get("/metrics")).status_code == 403
        assert (await client.get("/metrics", headers={"Authorization": ""})).status_code == 401
        assert (await client.get("/metrics", headers=server.headers("admin"))).status_code == 200

    async def test_everybody(self) -> None:
        metrics = PrometheusMetrics({})
        swarm = build_swarm({"supervisor": supervise})
        async with HTTPServer(swarm, metrics=metrics, metrics_are_public=True) as server:
            answer = await server.client.get("/metrics", headers={"Authorization": ""})
            assert answer.status_code == 200

    async def test_nobody(self) -> None:
        async with HTTPServer(build_swarm({"supervisor": supervise})) as server:
            assert (await server.client.get("/metrics")).status_code == 403
            answer = await server.client.get("/metrics", headers=server.headers("admin"))
            assert answer.status_code == 404
            assert "keeps no metrics" in answer.json()["detail"]


def test_labels_that_others_choose_are_few() -> None:
    names = _Names()
    assert [names(f"n{n}") for n in range(MANY)] == [f"n{n}" for n in range(MANY)]
    assert names("one more") == OTHER
    assert names("n0") == "n0"


def written(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What the functions of AWS have written in CloudWatch's embedded format."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def turn_of(mailbox: str) -> Turn:
    make = Maker()
    begun = make.begin(TaskKey(ANN, "t"), Mail(mailbox))
    return Turn(begun.task, begun.deliveries[0], make.lease(), portions=[], checkpoint=None)


def test_the_functions_on_aws_call_them_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    usage = Usage(calls=1, input_tokens=1, output_tokens=1)
    for outcome in (TurnReport.Outcome.COMMITTED, TurnReport.Outcome.LOST, TurnReport.Outcome.HANDED_BACK):
        report = TurnReport(outcome, models={"m": usage}, usage=usage, outbound=OutboundResult.DELIVERED)
        for mailbox in ("alpha", peer_mailbox("beta")):
            emf.TurnMetrics().turn_ended(turn_of(mailbox), report, 1.0)
    maker = Maker()
    begun = maker.begin(TaskKey(ANN, "t"))
    for change in (begun, maker.change(begun.task, transition=Transition.COMPLETE)):
        emf.TaskMetrics().task_changed(change)
    names = {name for (name,) in sums(written(capsys))} - {"LostTurns"}
    page = PrometheusMetrics({"turns": lambda: 0}).render().decode()
    ours = set(re.findall(r"^# TYPE mail_(\w+?)(?:_total)? ", page, re.MULTILINE))
    theirs = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names}
    assert theirs <= ours
    assert {"tasks_begun", "tasks_ended", "cost_usd"} <= theirs
    assert len(theirs) >= 12


async def test_the_functions_on_aws_count_tasks_as_we_do(
    metered: Metered, capsys: pytest.CaptureFixture[str]
) -> None:
    metered.server.rig.runtime.observers = (*metered.server.rig.runtime.observers, emf.TaskMetrics())
    await metered.server.ask()
    await metered.server.ask()
    await metered.server.post(body="fail")
    records = written(capsys)
    assert sums(records) == {("TasksBegun",): 3, ("TasksEnded",): 3, ("DeadLetters",): 1}
    assert sums(records, "status") == {("TasksEnded", "completed"): 2, ("TasksEnded", "failed"): 1}
    found = await metered.scrape()
    assert found["mail_tasks_begun_total"] == 3
    assert (found["mail_tasks_ended_total/completed"], found["mail_tasks_ended_total/failed"]) == (2, 1)


def test_the_functions_on_aws_tell_models_apart(capsys: pytest.CaptureFixture[str]) -> None:
    one = Usage(calls=1, input_tokens=10, cached_tokens=4, cache_write_tokens=3, output_tokens=2, cost=0.5)
    meter, turn = emf.TurnMetrics(), turn_of("alpha")
    # not stored, so that the turn is repeated
    meter.turn_failed(turn, TurnReport(TurnReport.Outcome.FAILED, models={"": one}), StoreUnavailable())
    again = TurnReport(TurnReport.Outcome.COMMITTED, models={"a": one + one}, usage=one + one)
    meter.turn_ended(turn, again, 1.0)
    records = written(capsys)
    assert sums(records) == {
        ("Turns",): 1, ("ModelTurns",): 1, ("TurnSeconds",): 1.0, ("AgentSeconds",): 0, ("Conflicts",): 0,
        ("ModelCalls",): 3, ("InputTokens",): 30, ("CachedTokens",): 12, ("CacheWriteTokens",): 9,
        ("OutputTokens",): 6, ("CostUsd",): 1.5,
    }  # fmt: skip
    by_model = sums(records, "model")
    assert {key: by_model[key] for key in (("CostUsd", "a"), ("CostUsd", "other"), ("ModelCalls", "a"))} == {
        ("CostUsd", "a"): 1.0, ("CostUsd", "other"): 0.5, ("ModelCalls", "a"): 2,
    }  # fmt: skip


def test_a_function_tells_of_a_dead_letter_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    make = Maker()
    begun = make.begin(TaskKey(ANN, "t"))
    draft = Draft(begun.task, SWARM, make.clock)
    for _ in range(2):
        draft.dead_letter("alpha", "it died", 5, message=None, message_seq=1)
    meter = emf.TaskMetrics()
    meter.task_changed(begun)
    assert ("DeadLetters",) not in sums(written(capsys))
    meter.task_changed(draft.seal())
    told = json.loads(capsys.readouterr().out)
    assert told["DeadLetters"] == 2


def test_the_document_names_them_all() -> None:
    text = (Path(__file__).parents[2] / "docs" / "observability.md").read_text(encoding="utf-8")
    page = PrometheusMetrics({"turns": lambda: 0}).render().decode()
    served = set(re.findall(r"^# TYPE (mail_\w+) (?:counter|gauge|histogram)", page, re.MULTILINE))
    documented = set(re.findall(r"`(mail_\w+)`", text))
    assert {name for name in served if not name.endswith("_created")} == documented


async def test_turns_of_dead_workers_are_counted_by_who_takes_over(metered: Metered) -> None:
    rig = metered.server.rig
    await rig.workers.stop()
    submitted = await rig.submit()
    await rig.runtime.turns.lease(submitted.key, "supervisor", -1.0)  # and its worker dies
    await rig.runtime.sweep()
    await rig.runtime.run_turn(submitted.key, "supervisor")
    assert (await metered.scrape())["mail_taken_over_turns_total"] == 1
