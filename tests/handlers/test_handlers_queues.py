"""The functions that queues and the clock call, each fed its sample event on a Lambda of our own."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from function_stage import ALICE, Stage
from support.engines.lambda_runtime import FunctionFailed, LambdaRuntime
from support.processes.projects import entry, supervisor, write_project

from handlers.wiring import RECEIVES
from mail.adapters.aws.queue import decode_wake_up, encode_wake_up
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.message import Tier
from mail.core.task.ports import WakeUp, look_at
from mail.core.task.schedules import Overlap, Schedule, owner_of_schedules
from mail.core.task.task import TaskKey, TaskStatus
from mail.testing.agents import build_swarm, turns
from mail.testing.clock import FakeClock

NOTHING_FAILED: dict[str, list[Any]] = {"batchItemFailures": []}
BURST = 2

SWARM = entry("example-no-proxy", supervisor("supervisor", "own_agent:make"))

AGENT = """
import asyncio
import os
import time
from pathlib import Path

from mail.factories.rules import complete, rule_based

begun = Path(__file__).with_name("begun")

@rule_based
async def make(_view):
    {body}
    return [complete(answer)]
"""

BLOCKS_ONCE = """
    answer = "at last"
    if not begun.exists():
        begun.touch()
        time.sleep(600)
"""

IMPATIENT = """
import mail.bootstrap

mail.bootstrap.SECRETS_SECONDS = 1.0
from handlers.turn import handler
"""
"""The handler of turns, which doesn't wait for its secrets for half of an invocation."""

TELLS_SECRET = """
    answer = os.environ["SWARM_SECRET"]
"""


def bundle(folder: Path, agent: str) -> Path:
    """A folder like `swarm/`, with an agent of its own."""
    (folder / "mail.toml").write_text('[server.swarm]\nname = "example-no-proxy"\nsource = "swarms.json"\n')
    return write_project(folder, SWARM, own_agent=AGENT.format(body=agent.strip()))


STUDIO = """
from pathlib import Path

from mail import LATER
from mail.core.turns.context import current_context
from mail.factories.rules import call, complete, rule_based


async def render(_arguments):
    Path(__file__).with_name("callback").write_text(current_context().callback.url)
    return LATER


@rule_based
async def make(view):
    return [complete(view.mail.body) if view.mail.sender_type == "system" else call("render")]
"""

RENDER = {
    "name": "render",
    "description": "Render a film.",
    "parameters": {"type": "object", "properties": {}},
    "function": "python::own_agent:render",
    "finishes": "later",
    "timeout": "1h",
}


class Forgetful:
    """A `TurnQueue` that loses every token."""

    async def publish(self, tokens: Sequence[WakeUp]) -> None:
        pass


def ask(stage: Stage, task_id: str, body: str = "what is 2**10") -> None:
    """Begin a task, whose token is then in a queue."""
    sent = stage.ask("message", body={"body": body, "task_id": task_id}, prefer="respond-async")
    assert sent["statusCode"] == 202


HIDDEN = 300
"""Seconds for which a queue hides a message that is to come back earlier."""


def take(stage: Stage, hidden: int = 30) -> dict[str, Any]:
    """The only message that is in a queue, as an event source brings it."""
    return next(stage.records(hidden))


def take_again(stage: Stage) -> dict[str, Any]:
    """The message when it comes back, earlier than its queue would bring it: that hides it for `HIDDEN` seconds."""
    deadline = time.monotonic() + HIDDEN / 3
    while (again := next(stage.records(), None)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return again


def test_the_sample_tokens_wake_nobody_who_has_no_mail(stage: Stage) -> None:
    assert stage.invoke("turn", stage.event("turn")) == NOTHING_FAILED
    assert stage.invoke("dead_letter", stage.event("dead_letter")) == NOTHING_FAILED


def test_the_sample_events_fit_together(stage: Stage) -> None:
    """The token of events/turn.json is that of the message in events/message.json."""
    assert stage.ask("message", prefer="respond-async")["statusCode"] == 202
    record = take(stage)
    (sample,) = stage.event("turn")["Records"]
    assert decode_wake_up(record["body"]) == decode_wake_up(sample["body"])
    assert record.keys() == sample.keys()
    before = stage.load("first").generation.turns
    assert stage.invoke("turn", stage.event("turn")) == NOTHING_FAILED
    assert stage.load("first").generation.turns == before + 1
    stage.delete(record)
    stage.work_off()
    assert stage.load("first").status is TaskStatus.COMPLETED


def test_a_turn_that_comes_twice_is_run_once(stage: Stage) -> None:
    ask(stage, "twice")
    record = take(stage)
    for _ in range(2):
        assert stage.invoke("turn", {"Records": [record]}) == NOTHING_FAILED
    assert stage.load("twice").generation.turns == 1
    stage.delete(record)
    stage.work_off()
    assert stage.load("twice").status is TaskStatus.COMPLETED


def test_turns_are_measured(stage: Stage) -> None:
    ask(stage, "measured")
    invocations = stage.work_off()
    records = [
        record
        for record in stage.running("turn").records
        if "TurnSeconds" in record or "IdleWakeUps" in record
    ]
    metrics = records[-invocations:]
    assert sum(record.get("Turns", 0) for record in metrics) == stage.load("measured").generation.turns
    assert {"TurnSeconds", "AgentSeconds", "Conflicts"} <= {name for record in metrics for name in record}


def test_one_bad_record_keeps_none_from_being_dealt_with(stage: Stage) -> None:
    """A batch is one record in the template, but nothing rests on it."""
    for task_id in ("one", "two"):
        ask(stage, task_id)
    good = [take(stage), take(stage)]
    bad = {**good[0], "messageId": "bad", "body": "no token"}
    bad["attributes"] = {**bad["attributes"], "MessageGroupId": "another"}
    result = stage.invoke("turn", {"Records": [good[0], bad, good[1]]})
    assert result == {"batchItemFailures": [{"itemIdentifier": "bad"}]}
    assert [stage.load(task_id).generation.turns for task_id in ("one", "two")] == [1, 1]
    errors = [record for record in stage.running("turn").records if record.get("level") == "ERROR"]
    assert any("BadRequest" in json.dumps(record) for record in errors)
    for record in good:
        stage.delete(record)
    stage.work_off()


@pytest.mark.soak
def test_what_failed_comes_back_soon(stage: Stage) -> None:
    ask(stage, "back")
    record = take(stage, HIDDEN)
    with pytest.raises(StopIteration):
        take(stage)
    spoilt = {**record, "body": "no token"}
    result = stage.invoke("turn", {"Records": [spoilt]})
    assert result == {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}
    again = take_again(stage)
    assert again["messageId"] == record["messageId"]
    assert stage.invoke("turn", {"Records": [again]}) == NOTHING_FAILED
    stage.delete(again)
    stage.work_off()
    assert stage.load("back").status is TaskStatus.COMPLETED


@pytest.mark.soak
def test_a_turn_that_blocks_is_killed_and_run_again(stage: Stage, tmp_path: Path) -> None:
    """The process can't end the turn by itself: Lambda does. Once its lease has run out, another process takes over.

    The time limit is doubled until a cold start on this machine gets as far as the agent. An invocation returns while
    the lease of one holds that was killed before that.
    """
    ask(stage, "blocked")
    record = take(stage)
    root, timeout = bundle(tmp_path, BLOCKS_ONCE), 6
    while not (root / "begun").exists():
        with stage.start("turn", root=root, timeout=timeout) as running:
            try:
                running.invoke({"Records": [record]})
            except FunctionFailed as failure:
                if failure.type != "Sandbox.Timedout":
                    raise
                timeout *= 2
    assert stage.load("blocked").generation.turns == 0
    with stage.start("turn", root=root) as running:
        deadline = time.monotonic() + HIDDEN / 3
        while stage.load("blocked").status is TaskStatus.RUNNING:
            assert time.monotonic() < deadline
            assert running.invoke({"Records": [record]}) == NOTHING_FAILED
            time.sleep(0.5)
    task = stage.load("blocked")
    assert (task.status, task.generation.turns) == (TaskStatus.COMPLETED, 1)
    stage.delete(record)
    stage.work_off()


def test_a_dead_turn_without_a_message_is_found_by_the_sweeper(stage: Stage) -> None:
    begin_long_ago(stage, "killed-at-once")
    stage.lose_worker("killed-at-once")
    assert stage.invoke("sweeper", stage.event("sweeper")) == {"wake_ups": 0, "taken_over": 1}
    assert stage.invoke("sweeper", stage.event("sweeper"))["taken_over"] == 0
    assert stage.work_off() >= 1
    assert stage.load("killed-at-once").generation.turns >= 1
    stage.work_off()
    assert stage.load("killed-at-once").status is TaskStatus.COMPLETED


def test_secrets_are_environment_variables_of_turns(stage: Stage, tmp_path: Path) -> None:
    path = stage.put_secret("SWARM_SECRET", "s3cr3t")
    ask(stage, "secret")
    with stage.start("turn", path, root=bundle(tmp_path, TELLS_SECRET)) as running:
        record = take(stage)
        assert running.invoke({"Records": [record]}) == NOTHING_FAILED
        assert "s3cr3t" not in running.log
    stage.delete(record)
    answer = stage.ask("task", query="task_id=secret")
    assert "s3cr3t" in answer["body"]


@pytest.mark.soak
def test_a_burst_that_the_parameter_store_refuses_runs_its_turns_all_the_same(stage: Stage) -> None:
    """Each try of the client is four requests."""
    path = stage.put_secret("SWARM_SECRET", "s3cr3t")
    for n in range(BURST):
        ask(stage, f"burst-{n}")
    records = [take(stage) for _ in range(BURST)]
    stage.gateway.throttle("GetParametersByPath", times=4 * BURST + 2)

    def invoke(record: dict[str, Any]) -> tuple[Any, str]:
        with stage.start("turn", path) as running:
            answer = running.invoke({"Records": [record]})
            assert len(running.inits) == 1
            return answer, running.log

    with ThreadPoolExecutor(BURST) as threads:
        answers = list(threads.map(invoke, records))
    assert stage.gateway.throttles("GetParametersByPath") == 0
    for answer, log in answers:
        assert answer == NOTHING_FAILED, log
    assert any("can't be read now" in log for _, log in answers)  # one may meet all refusals
    for n, record in enumerate(records):
        assert stage.load(f"burst-{n}").generation.turns == 1
        stage.delete(record)
    stage.work_off()


@pytest.mark.soak
def test_a_turn_whose_secrets_can_not_be_read_is_tried_again_soon(stage: Stage, tmp_path: Path) -> None:
    path = stage.put_secret("SWARM_SECRET", "s3cr3t")
    ask(stage, "refused")
    record = take(stage, HIDDEN)
    stage.gateway.throttle("GetParametersByPath", times=1000)
    root = write_project(bundle(tmp_path, TELLS_SECRET), SWARM, impatient=IMPATIENT)
    with stage.start("turn", path, root=root, handler="impatient.handler") as running:
        (failed,) = running.invoke({"Records": [record]})["batchItemFailures"]
        assert failed == {"itemIdentifier": record["messageId"]}
        stage.gateway.throttle("GetParametersByPath", times=0)
        again = take_again(stage)
        assert running.invoke({"Records": [again]}) == NOTHING_FAILED
        assert len(running.inits) == 1
    stage.delete(again)
    stage.work_off()
    assert stage.load("refused").status is TaskStatus.COMPLETED


@pytest.mark.soak
def test_a_function_without_its_table_says_which_variable_is_missing(stage: Stage) -> None:
    running = LambdaRuntime(
        stage.function("turn"),
        {name: value for name, value in stage.variables("turn").items() if name != "MAIL_TABLE"},
    )
    with running, pytest.raises(FunctionFailed, match="MAIL_TABLE"):
        running.invoke(stage.event("turn"))


@pytest.mark.soak
def test_a_turn_that_no_function_has_begun_is_no_dead_letter(stage: Stage) -> None:
    """Its deliveries were throttled, which counts as receiving it."""
    ask(stage, "throttled")
    record = take(stage)
    stage.delete(record)
    assert stage.invoke("dead_letter", {"Records": [record]}) == NOTHING_FAILED
    assert stage.load("throttled").generation.turns == 0
    assert stage.work_off() >= 1
    assert stage.load("throttled").status is TaskStatus.COMPLETED


@pytest.mark.soak
def test_the_wake_up_of_a_parked_turn_is_sent_to_the_function_that_runs_it(stage: Stage) -> None:
    ask(stage, "parked")
    record = take(stage)
    stage.delete(record)
    delayed = json.dumps({**json.loads(record["body"]), "tier": Tier.PERSON})
    assert stage.invoke("outbound", {"Records": [{**record, "body": delayed}]}) == NOTHING_FAILED
    assert stage.load("parked").generation.turns == 0
    assert stage.work_off() >= 1
    assert stage.load("parked").status is TaskStatus.COMPLETED


def test_a_dead_letter_ends_the_turn_and_whoever_asked_is_told(stage: Stage) -> None:
    ask(stage, "dead")
    record = take(stage)
    stage.lose_worker("dead")
    assert stage.invoke("dead_letter", {"Records": [record]}) == NOTHING_FAILED
    stage.delete(record)
    assert stage.load("dead").generation.turns == 1
    (said,) = [record for record in stage.running("dead_letter").records if record.get("level") == "ERROR"]
    assert "dead-lettered" in said["message"]
    assert said["task_id"] == "dead"
    stage.work_off()
    assert stage.load("dead").status is not TaskStatus.RUNNING


def test_a_dead_letter_that_is_no_token_is_thrown_away(stage: Stage) -> None:
    (sample,) = stage.event("dead_letter")["Records"]
    assert stage.invoke("dead_letter", {"Records": [{**sample, "body": "no token"}]}) == NOTHING_FAILED


def test_a_sweep_leaves_alone_what_is_being_worked_on(stage: Stage) -> None:
    ask(stage, "fresh")
    assert stage.invoke("sweeper", stage.event("sweeper")) == {"wake_ups": 0, "taken_over": 0}
    stage.work_off()


def begin_long_ago(stage: Stage, task_id: str, timeout: float | None = None) -> None:
    """Begin a task as a process did that died before it published."""
    clock = FakeClock(run=random.getrandbits(32))  # an engine remembers ids, across tables
    swarm = build_swarm({"supervisor": turns([])}, name="example-no-proxy")
    runtime = Runtime(swarm, stage.table.another(clock=clock), Forgetful(), clock)
    submission = Submission(body="what is 2**10", task_id=task_id, timeout=timeout)
    asyncio.run(runtime.submit(Principal.parse(ALICE), submission))


def test_a_sweep_wakes_mail_whose_token_was_lost(stage: Stage) -> None:
    begin_long_ago(stage, "lost")
    assert next(stage.records(), None) is None
    assert stage.invoke("sweeper", stage.event("sweeper")) == {"wake_ups": 1, "taken_over": 0}
    assert stage.work_off() >= 1
    assert stage.load("lost").status is TaskStatus.COMPLETED


@pytest.mark.soak(on="outbound")
@pytest.mark.parametrize("by", ["sweeper", "outbound"])
def test_what_is_overdue_ends(stage: Stage, by: str) -> None:
    """A sweep finds it, or has sent a message in time, which looks after one task."""
    begin_long_ago(stage, by, timeout=5)
    event = stage.event("sweeper")
    if by == "outbound":
        (sample,) = stage.event("outbound")["Records"]
        body = encode_wake_up(look_at(TaskKey(ALICE, by), 1.0))
        event = {"Records": [{**sample, "body": body}]}
    stage.invoke(by, event)
    stage.work_off()
    assert stage.load(by).status is TaskStatus.FAILED


@pytest.mark.soak
def test_the_url_of_a_callback_leads_to_the_stack(stage: Stage, tmp_path: Path) -> None:
    """The template says where; a request to the URL ends the call, without a key."""
    folder = bundle(tmp_path, TELLS_SECRET)
    agent = supervisor("supervisor", "own_agent:make", actions=["render"])
    write_project(folder, entry("example-no-proxy", agent, actions=[RENDER]), own_agent=STUDIO)
    with stage.start("turn", {"MAIL_BASE_URL": "https://stream.example/"}, root=folder) as running:
        ask(stage, "film")
        record = take(stage)
        assert running.invoke({"Records": [record]}) == NOTHING_FAILED
        stage.delete(record)
        base, path, token = (folder / "callback").read_text().rpartition("/callbacks/")
        assert (base, path) == ("https://stream.example", "/callbacks/")
        post = stage.request("message", path=path + token, body={"result": "films.example/waves"})
        del post["headers"]["authorization"]
        assert json.loads(stage.invoke("message", post)["body"])["status"] == "finished"
        record = take(stage)
        assert running.invoke({"Records": [record]}) == NOTHING_FAILED
        stage.delete(record)
    shown = stage.ask("task", query="task_id=film")
    assert "films.example/waves" in shown["body"]
    assert stage.load("film").status is TaskStatus.COMPLETED


def forget_versions(stage: Stage) -> None:
    """Delete the versions of the swarm, as if none had begun a run yet."""
    for item in stage.table.items("VERSION"):
        key = {name: item[name] for name in ("PK", "SK")}
        stage.table.client.botocore.delete_item(TableName=stage.table.table, Key=key)


@pytest.mark.soak
@pytest.mark.parametrize("by", ["sweeper", "outbound", "tasks"])
def test_who_begins_runs_keeps_the_version_that_they_begin_with(stage: Stage, by: str) -> None:
    """In a process of its own, as one keeps it once."""
    clock, name = FakeClock(run=random.getrandbits(32)), f"first-{by}"
    swarm = build_swarm({"supervisor": turns([])}, name="example-no-proxy")
    runtime = Runtime(swarm, stage.table.another(clock=clock), Forgetful(), clock)
    asyncio.run(
        runtime.schedules.save(
            Schedule(name=name, cron="0 0 1 2 *", body="2**10", caller=ALICE), "admin:root", is_new=True
        )
    )
    (sample,) = stage.event("outbound")["Records"]
    body = encode_wake_up(look_at(TaskKey(owner_of_schedules("example-no-proxy"), name), 1.0))
    post = stage.request("tasks", path=f"/schedules/{name}/run", body={})
    events = {
        "sweeper": stage.event("sweeper"),
        "outbound": {"Records": [{**sample, "body": body}]},
        "tasks": post,
    }
    forget_versions(stage)
    with stage.start(by) as running:
        running.invoke(events[by])
    (item,) = stage.table.items("VERSION")
    assert item["PK"]["S"].startswith("VERSION#")
    stage.work_off()


@pytest.mark.soak(on="outbound")
@pytest.mark.parametrize("by", ["sweeper", "outbound"])
def test_a_schedule_that_is_due_begins_its_run(stage: Stage, by: str) -> None:
    """A sweep finds it, or has sent a message in time; both have the right to begin tasks of its caller."""
    clock, name = FakeClock(run=random.getrandbits(32)), f"yearly-{by}"
    swarm = build_swarm({"supervisor": turns([])}, name="example-no-proxy")
    runtime = Runtime(swarm, stage.table.another(clock=clock), Forgetful(), clock)
    spec = Schedule(name=name, cron="0 0 1 2 *", body="what is 2**10", caller=ALICE, overlap=Overlap.CANCEL)
    asyncio.run(runtime.schedules.save(spec, "admin:root", is_new=True))
    event = stage.event("sweeper")
    if by == "outbound":
        (sample,) = stage.event("outbound")["Records"]
        body = encode_wake_up(look_at(TaskKey(owner_of_schedules("example-no-proxy"), name), 1.0))
        event = {"Records": [{**sample, "body": body}]}
    stage.invoke(by, event)
    stage.work_off()
    assert stage.load(f"{name}@2026-02-01T00:00Z").status is TaskStatus.COMPLETED
    run = json.loads(stage.ask("tasks", path=f"/schedules/{name}/run", body={})["body"])
    assert run["state"] == "running"
    shown = json.loads(stage.ask("tasks", path="/schedules")["body"])["schedules"]
    [runs] = [each["runs"] for each in shown if each["name"] == name]
    assert [each["state"] for each in runs] == ["running", "completed"]
    stage.work_off()


def test_a_dead_letter_is_listed_and_redriven(stage: Stage) -> None:
    ask(stage, "dead-twice")
    record = take(stage)
    stage.lose_worker("dead-twice")
    stage.invoke("dead_letter", {"Records": [record]})
    stage.delete(record)
    stage.work_off()
    listed = stage.ask("tasks", path="/dead-letters", query="task_id=dead-twice")
    (letter,) = json.loads(listed["body"])["dead_letters"]
    assert (letter["mailbox"], letter["attempts"]) == ("supervisor", RECEIVES)
    assert letter["task_status"] == "failed"
    told = [line for line in stage.running("dead_letter").records if "DeadLetters" in line]
    assert told
    answer = stage.ask("tasks", path="/dead-letters/redrive", body={"all": True})
    redriven = json.loads(answer["body"])["redriven"]
    assert letter["seq"] in [each["seq"] for each in redriven]
    assert stage.work_off() >= 1
    task = stage.load("dead-twice")
    assert (task.status, task.dead_letters) == (TaskStatus.COMPLETED, ())
