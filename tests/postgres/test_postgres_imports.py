"""`mail db-import`: what a database of MAIL 1.3.6 has is read and resumed here."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.engines.adapters import loaded
from support.engines.mail_1_3_6 import OldDatabase, answered, event, message, typical_tasks
from support.engines.postgres import borrow_database, return_database
from support.processes.http_server import QuickUvicorn

from mail import bootstrap
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap.system import LocalSystem
from mail.cli.run import run
from mail.config import ServerConfig
from mail.core.task.swarm import History
from mail.core.task.task import TaskKey
from mail.server.app import build_app
from mail.testing.agents import View, build_swarm, complete, tool_results

RESULT = {"breakpoint_tool_call_result": "you may"}


@pytest.fixture
def old(url: str) -> Iterator[OldDatabase]:
    database = OldDatabase(url)
    yield database
    database.remove()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, with the swarms of the tests in its swarms.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (tmp_path / "mail.toml").write_text('[server.swarm]\nname = "example"\n')


class Memory:
    """A swarm whose supervisor answers with the last text that it reads, and the histories that it was given."""

    def __init__(self) -> None:
        self.histories: list[History] = []

        def supervise(view: View) -> list[Any]:
            self.histories.append(view.history)
            last = view.history[-1]
            return [complete(f"read: {tool_results([last])[0] if tool_results([last]) else view.mail.body}")]

        self.swarm = build_swarm(
            {"supervisor": supervise, "weather": supervise}, breakpoint_tools=frozenset({"ask_human"})
        )

    def system(self, database: str) -> LocalSystem:
        config = ServerConfig().with_overrides(database=database, swarm_registry="registry.json")
        return bootstrap.local(config, swarm=self.swarm, environ={})

    @asynccontextmanager
    async def served(self, database: str, caller: str = "user:ann") -> AsyncIterator[httpx2.AsyncClient]:
        """A client of a server on the database, with a caller's token."""
        system = self.system(database)
        role, _, caller_id = caller.partition(":")
        async with system, QuickUvicorn(build_app(system)) as server:
            token = await issue_token(system.documents, Caller(role, caller_id))
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=30) as client:
                yield client


async def post(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/message", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def read(client: httpx2.AsyncClient, task_id: str) -> dict[str, Any]:
    answer = await client.get("/task", params={"task_id": task_id})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def db_import(*arguments: str) -> int:
    return run(["db-import", *arguments])


async def imports(*arguments: str) -> int:
    """Run the command, which has an event loop of its own."""
    return await asyncio.to_thread(db_import, *arguments)


@pytest.fixture(params=["postgres", "another postgres", "sqlite"])
def imported(request: pytest.FixtureRequest, old: OldDatabase) -> Iterator[str]:
    """The database that the typical tasks were imported into."""
    for task in typical_tasks():
        old.add(**task)
    before = old.contents()
    target = {"postgres": old.url, "sqlite": "mail.db"}.get(request.param) or borrow_database()
    assert db_import("--from", old.url, "--database", target) == 0
    assert old.contents() == before
    yield target
    if request.param == "another postgres":
        return_database(target)


class TestReading:
    @pytest.mark.soak(on="another postgres")
    async def test_the_records_are_there(self, imported: str) -> None:
        async with Memory().served(imported) as client:
            tasks = (await client.get("/tasks")).json()
            assert {task_id: task["status"] for task_id, task in tasks.items()} == {
                "trip": "completed",
                "crashed": "failed",
                "asks": "paused",
            }
            for task in tasks.values():
                assert task["start_time"] == "2025-11-03T09:30:00+00:00"
                assert (task["is_running"], task["entrypoint"]) == (False, "supervisor")
            assert tasks["trip"]["title"] == "weather in Tokyo?"
            assert tasks["crashed"]["task_contributors"] == ["user:ann@example", "swarm:example@beta"]
            assert tasks["crashed"]["remote_swarms"] == ["beta"]
            [waiting] = tasks["asks"]["pending_tool_calls"]
            assert waiting == {
                "call_id": "ask-1",
                "name": "ask_human",
                "arguments": {"question": "May I?"},
                "agent": "supervisor",
                "question_argument": "question",
            }

    @pytest.mark.soak(on="another postgres")
    async def test_the_timeline_is_that_of_then(self, imported: str) -> None:
        async with Memory().served(imported) as client:
            events = (await read(client, "trip"))["events"]
            kinds = [each["event"] for each in events]
            assert kinds == [
                "imported", "history_inherited", "history_inherited", "new_message", "tool_call", "new_message",
                "action_call", "action_complete", "new_message", "task_complete_call", "new_message",
                "task_complete",
            ]  # fmt: skip
            assert [each["id"] for each in events] == [str(seq) for seq in range(1, 13)]
            told = json.loads(events[5]["data"])
            assert told["timestamp"] == "2025-11-03T09:31:00+00:00"
            assert told["extra_data"]["full_message"]["message"]["body"] == "Tokyo, please"
            assert json.loads(events[-1]["data"])["response"] == "It will be sunny in Tokyo."

    @pytest.mark.soak(on="another postgres")
    async def test_others_tasks_stay_theirs(self, imported: str) -> None:
        async with Memory().served(imported, "admin:root") as client:
            assert [*(await client.get("/tasks")).json()] == ["asks-in-items"]


class TestResuming:
    @pytest.mark.soak(on="another postgres")
    async def test_agents_remember(self, imported: str) -> None:
        memory = Memory()

        async with memory.served(imported) as client:
            for task_id in ("trip", "crashed"):
                answer = await post(client, body="go on", task_id=task_id, resume_from="user_response")
                assert (answer["response"], answer["status"]) == ("read: go on", "completed")
        trip, crashed = memory.histories
        assert trip[1]["tool_calls"][0]["id"] == "c1"
        assert trip[5]["content"] == "SUCCESS: Task completed"
        assert len(trip) == 7
        assert "ask the other swarm" in crashed[0]["content"]

    @pytest.mark.soak(on="another postgres")
    async def test_a_question_is_answered(self, imported: str) -> None:
        memory = Memory()

        for caller, task_id in (("user:ann", "asks"), ("admin:root", "asks-in-items")):
            async with memory.served(imported, caller) as client:
                refused = await client.post("/message", json={"body": "hello", "task_id": task_id})
                assert refused.status_code == 409
                answer = await post(
                    client, task_id=task_id, body="", resume_from="breakpoint_tool_call", kwargs=RESULT
                )
                assert answer["response"] == "read: you may"
        chat, items = memory.histories
        assert chat[-2]["tool_calls"][0]["id"] == chat[-1]["tool_call_id"] == "ask-1"
        assert items[-2]["call_id"] == items[-1]["call_id"] == "ask-2"


class TestRepeating:
    @pytest.mark.soak(on="another postgres")
    async def test_it_changes_nothing_and_brings_what_is_new(
        self, imported: str, old: OldDatabase, capsys: pytest.CaptureFixture[str]
    ) -> None:
        async with Memory().served(imported) as client:
            await post(client, body="go on", task_id="trip")
        old.add("later", response=answered("later", "late"))
        capsys.readouterr()
        assert await imports("--from", old.url, "--database", imported) == 0
        assert capsys.readouterr().out == "1 task imported, 4 already there, 0 failed\n"

        async with Memory().served(imported) as client:
            assert (await read(client, "trip"))["generation"] == 2
            assert (await read(client, "later"))["status"] == "completed"


class TestMistakes:
    def test_a_broken_task_does_not_stop_the_others(
        self, old: OldDatabase, capsys: pytest.CaptureFixture[str]
    ) -> None:
        old.add("bad history", histories={"supervisor": ["not an entry"]})
        old.add("bad answer", response={"no": "message"})
        old.add("bad owner", owner="nobody")
        old.add("good", response=answered("good", "fine"))
        assert db_import("--database", old.url, "--json") == 1
        out, err = capsys.readouterr()
        report = json.loads(out)
        assert (report["imported"], report["unchanged"], report["failed"]) == (1, 0, 3)
        reasons = {each["task_id"]: each["reason"] for each in report["failures"]}
        assert reasons["bad history"] == "histories.0.history.0: Input should be a valid dictionary"
        assert reasons["bad answer"] == "its response is not a message, and no event has the answer"
        assert "'nobody' is not a caller" in reasons["bad owner"]
        assert "mail: task 'bad answer' of user:ann@example can't be imported: its response" in err

    def test_a_dry_run_stores_nothing(self, old: OldDatabase, capsys: pytest.CaptureFixture[str]) -> None:
        old.add("good", response=answered("good", "fine"))
        for _ in range(2):
            assert db_import("--database", old.url, "--dry-run") == 0
            assert capsys.readouterr().out == "1 task can be imported, 0 already there, 0 failed\n"

    def test_no_tables(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert db_import("--database", url) == 2
        assert "has no tables of MAIL 1.3.6: agent_histories, tasks" in capsys.readouterr().err

    def test_no_place_to_read_from(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert db_import("--database", "mail.db") == 2
        assert "mail db-import --from postgresql://" in capsys.readouterr().err


class TestShapes:
    """What a database may have besides what the documentation shows."""

    async def test_json_may_be_text(self, old: OldDatabase) -> None:
        old.add("t", remote_swarms=["beta"], histories={"supervisor": []}, response=answered("t", "fine"))
        old.execute("UPDATE public.tasks SET remote_swarms = to_jsonb(remote_swarms::text)")
        old.execute(
            "ALTER TABLE public.tasks ALTER task_contributors DROP DEFAULT, ALTER task_contributors TYPE text"
        )
        old.execute(
            """UPDATE public.agent_histories SET history = to_jsonb('[{"role":"user","content":"x"}]'::text)"""
        )
        old.execute("ALTER TABLE public.task_responses ALTER response TYPE text")
        old.execute("ALTER TABLE public.task_events ALTER event_data TYPE jsonb USING event_data::jsonb")
        assert await imports("--database", old.url) == 0

        async with Memory().served(old.url) as client:
            task = await read(client, "t")
            assert (task["remote_swarms"], task["task_contributors"]) == (["beta"], ["user:ann@example"])
            assert task["status"] == "completed"

    async def test_the_newest_history_counts_and_histories_alone_are_a_task(self, old: OldDatabase) -> None:
        for words, updated in (("new", "2025-11-03"), ("old", "2025-11-02")):
            old.execute(
                "INSERT INTO public.agent_histories (task_id, swarm_name, caller_role, caller_id, tool_format,"
                " agent_name, history, updated_at) VALUES ('t', 'example', 'user', 'ann', 'completions', 'supervisor',"
                " jsonb_build_array(jsonb_build_object('role', 'user', 'content', %s::text)), %s)",
                words, updated,
            )  # fmt: skip
        assert await imports("--database", old.url) == 0
        memory = Memory()

        async with memory.served(old.url) as client:
            await post(client, body="go on", task_id="t")
        assert [entry["content"] for entry in memory.histories[0][:-1]] == ["new"]

    def test_a_task_of_another_swarm(self, old: OldDatabase, capsys: pytest.CaptureFixture[str]) -> None:
        old.add("t", swarm="elsewhere", response=answered("t", "fine"))
        assert db_import("--database", old.url) == 0
        assert (
            "1 task of swarm 'elsewhere', which only a server of that name shows" in capsys.readouterr().out
        )

    async def test_a_task_that_another_swarm_sent(self, old: OldDatabase) -> None:
        asked = message("t", "request", "boss@alpha", "supervisor", "Q", "how much?")
        old.add(
            "t",
            caller="agent:alpha",
            owner="user:ann@alpha",
            contributors=["swarm:alpha@example"],
            events=[
                event("t", "new_message", "…", 1, {"full_message": asked}),
                event("t", "task_complete", "five", 2),
            ],
        )
        assert await imports("--database", old.url) == 0

        async with Memory().system(old.url) as system:
            task = await loaded(system.store, TaskKey("swarm:alpha@example", "t"))
            assert (task.owner, task.parent_swarm, [*task.peers]) == (
                "user:ann@alpha",
                "alpha",
                ["alpha"],
            )
            assert task.contributors == ("user:ann@alpha", "swarm:alpha@example")


class TestFirstStart:
    async def _log(self, url: str, caplog: pytest.LogCaptureFixture) -> str:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            async with Memory().system(url):
                pass
        return caplog.text

    def test_it_says_how_to_import_until_there_are_tasks(
        self, old: OldDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        old.add("good", response=answered("good", "fine"))
        said = "has the tables of MAIL 1.3.6; mail db-import imports the tasks in them"
        assert said in asyncio.run(self._log(old.url, caplog))
        assert db_import("--database", old.url) == 0
        assert said not in asyncio.run(self._log(old.url, caplog))

    def test_it_says_nothing_elsewhere(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        assert "1.3.6" not in asyncio.run(self._log(url, caplog))
