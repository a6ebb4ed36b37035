"""Drafts of a swarm that was built in Python: saved, tried in forks, published, and withdrawn."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result
from support.services.llm_stub import LLMStub, Request, call, reply

from mail import Agent, Swarm, action
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.bootstrap.system import LocalSystem
from mail.cli.app import app
from mail.client.errors import TooManyRequests
from mail.config import ServerConfig
from mail.core.decisions.caller_limits import CallerLimits
from mail.core.task.documents import CallerRole
from mail.core.task.task import TaskKey
from mail.factories.prompts import HOW_TO_ANSWER, keep_how_to, system_prompt
from mail.server.process import serving

MODEL = "openai/gpt-5-mini"


@action
def search(query: str) -> str:
    """Search."""
    return "found"


@action
def publish(text: str) -> str:
    """Publish."""
    return "published"


swarm = Swarm(Agent("lead", "Be thorough.", model=MODEL, actions=[search, publish]), name="desk")
changed = Swarm(Agent("lead", "Be kind.", model=MODEL, actions=[search, publish]), name="desk")
"""The swarm after its program was changed."""


class Desk:
    """A running server of the swarm, and a client for each role."""

    def __init__(self, url: str, system: LocalSystem) -> None:
        self.system, self.url = system, url
        self._http = httpx2.AsyncClient(base_url=url, timeout=60)
        self._keys: dict[str, str] = {}

    async def ask(
        self, method: str, path: str, body: Any = None, *, role: CallerRole = "admin", status: int = 200
    ) -> Any:
        if role not in self._keys:
            self._keys[role] = await issue_token(self.system.documents, Caller(role, role))
        headers = {"Authorization": f"Bearer {self._keys[role]}"}
        answer = await self._http.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def key(self, role: CallerRole) -> str:
        """The key of a role that has asked something."""
        return self._keys[role]

    async def say(self, body: str, task_id: str | None = None) -> Any:
        return await self.ask("POST", "/message", {"body": body, "task_id": task_id})

    async def save(self, name: str, status: int = 200, **changes: Any) -> Any:
        return await self.ask("POST", f"/drafts/{name}", {"agents": {"lead": changes}}, status=status)

    async def setup(self, task_id: str, seq: int) -> Any:
        return (await self.ask("GET", f"/task/turn?task_id={task_id}&seq={seq}"))["setup"]

    async def answer(self, task_id: str) -> Any:
        """The answer of the last run of an admin's task."""
        await self.system.idle()
        key = TaskKey("admin:admin@desk", task_id)
        task = await self.system.store.load(key)
        assert task is not None
        response = await self.system.store.read_response(key, task.generation.number)
        return response and response.message.body

    async def close(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def desk(database: Path, name: str = "swarm") -> AsyncIterator[Desk]:
    config = ServerConfig().with_overrides(
        swarm_name="desk",
        swarm_source=f"python::{__name__}:{name}",
        swarm_registry=str(database.with_name("registry.json")),
        database=str(database),
    )
    system = local(config)
    async with serving(system) as url:
        client = Desk(url, system)
        try:
            yield client
        finally:
            await client.close()


@pytest.fixture
def model(stub: LLMStub) -> LLMStub:
    """A model whose answer is what its prompt begins with, and its actions."""

    def answer(request: Request) -> Any:
        system, *_ = [
            each["content"]
            for each in (request.body.get("messages") or request.body["input"])
            if each.get("role") in ("system", "developer")
        ] or [request.body.get("instructions", "")]
        names = {tool.get("name") or tool["function"]["name"] for tool in request.body["tools"]}
        own = "+".join(sorted(names & {"search", "publish"}))
        text = f"{str(system).partition('.')[0]} with {own}"
        return reply(call("task_complete", finish_message=text))

    stub.otherwise = answer
    return stub


async def test_a_draft_is_tried_in_a_fork_and_stays_there(tmp_path: Path, model: LLMStub) -> None:
    async with desk(tmp_path / "mail.db") as client:
        asked = await client.say("What about bees?", "bees")
        assert asked["response"] == "Be thorough with publish+search"
        saved = await client.save("short", system="Be brief.", actions=["search"])
        assert (saved["agents"], saved["is_current"], saved["published"]) == (["lead"], True, "")
        assert "+Be brief." in saved["differences"].splitlines()
        assert "-Be thorough." in saved["differences"].splitlines()
        assert saved["entry"] is None
        fork = {"task_id": "bees", "at": 1, "run": True, "draft": "short"}
        forked = (await client.ask("POST", "/task/fork", fork, status=201))["task_id"]
        assert await client.answer(forked) == "Be brief with search"
        setup = await client.setup(forked, 4)
        assert (setup["system"], setup["is_present"]) == (f"Be brief.\n\n{HOW_TO_ANSWER}", False)
        assert setup["version"][0] == "~"
        await client.say("And wasps?", forked)
        assert await client.answer(forked) == "Be brief with search"
        assert (await client.say("Again"))["response"] == "Be thorough with publish+search"


@pytest.mark.parametrize("completes", [True, False])
def test_a_prompt_keeps_what_mail_adds(completes: bool) -> None:
    added = system_prompt("", {"bees": "knows bees"}, completes=completes)
    present = system_prompt("Be thorough.", {"bees": "knows bees"}, completes=completes)
    assert keep_how_to("Be brief.\n", present) == f"Be brief.\n\n{added}"
    assert keep_how_to("", present) == added
    edited = present.replace("knows bees", "knows all")
    assert keep_how_to(edited, present) == edited
    assert keep_how_to("Be brief.", "A prompt of swarms.json") == "Be brief."


async def test_a_task_stays_on_its_draft_after_a_restart(tmp_path: Path, model: LLMStub) -> None:
    async with desk(tmp_path / "mail.db") as client:
        await client.say("What about bees?", "bees")
        await client.save("short", system="Be brief.")
        fork = {"task_id": "bees", "at": 1, "run": True, "draft": "short"}
        forked = (await client.ask("POST", "/task/fork", fork, status=201))["task_id"]
        await client.answer(forked)
        await client.ask("DELETE", "/drafts/short")
    async with desk(tmp_path / "mail.db") as client:
        await client.say("And wasps?", forked)
        assert await client.answer(forked) == "Be brief with publish+search"
    async with desk(tmp_path / "mail.db", "changed") as client:  # what it was a draft of is gone
        await client.say("And flies?", forked)
        assert await client.answer(forked) == "Be kind with publish+search"


async def test_new_tasks_use_a_published_draft_until_the_code_changes(tmp_path: Path, model: LLMStub) -> None:
    async with desk(tmp_path / "mail.db") as client:
        await client.save("short", system="Be brief.")
        published = await client.ask("POST", "/drafts/short/publish")
        assert published["published"] == "applied"
        assert (await client.say("Hello"))["response"] == "Be brief with publish+search"
        await client.save("short", system="Be rude.")  # is not published
        assert (await client.say("Hello"))["response"] == "Be brief with publish+search"
    async with desk(tmp_path / "mail.db") as client:  # another process finds it
        assert (await client.say("Hello"))["response"] == "Be brief with publish+search"
    async with desk(tmp_path / "mail.db", "changed") as client:
        assert (await client.say("Hello"))["response"] == "Be kind with publish+search"
        (found,) = (await client.ask("GET", "/drafts"))["drafts"]
        assert (found["is_current"], found["published"]) == (False, "outdated")
        fork = {"task_id": "bees", "draft": "short"}
        assert "save it again" in (await client.ask("POST", "/task/fork", fork, status=409))["detail"]
        refused = await client.ask("POST", "/drafts/short/publish", status=409)
        assert "save it again" in refused["detail"]
    async with desk(tmp_path / "mail.db") as client:  # the old code is back
        assert (await client.say("Hello"))["response"] == "Be brief with publish+search"
        await client.ask("DELETE", "/drafts/short/publish")
        assert (await client.say("Hello"))["response"] == "Be thorough with publish+search"
        gone = await client.ask("DELETE", "/drafts/short/publish", status=404)
        assert gone["detail"] == "draft 'short' is not published"


async def test_it_has_the_revisions_to_go_back_to(tmp_path: Path, model: LLMStub) -> None:
    async with desk(tmp_path / "mail.db") as client:
        for n in range(22):
            await client.save("short", system=f"Be brief, {n}.", options={"verbosity": "low"})
        found = await client.ask("GET", "/drafts/short")
        assert [each["agents"]["lead"]["system"] for each in found["revisions"]] == [
            f"Be brief, {n}." for n in range(2, 22)
        ]
        again = await client.ask("POST", "/drafts/short", {"agents": found["revisions"][0]["agents"]})
        assert again["changes"] == {"lead": {"system": "Be brief, 2.", "options": {"verbosity": "low"}}}
        acts = await client.ask("GET", "/audit?limit=1")
        assert (acts["entries"][0]["act"], acts["entries"][0]["on"]) == ("save draft", "short")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lead": {"actions": ["serch"]}}, "'serch' is not an action of the swarm. Did you mean 'search'?"),
        ({"leed": {"system": "x"}}, "the swarm has no agent 'leed'. Did you mean 'lead'?"),
        ({"lead": {"options": {"api_base": "http://evil.example"}}}, "api_base"),
        ({"lead": {"options": {"max_tokens": 0}}}, "max_tokens"),
        ({"lead": {"systm": "x"}}, "systm"),
        ({}, "agents"),
    ],
)
async def test_what_it_can_not_change(
    tmp_path: Path, model: LLMStub, changes: dict[str, Any], problem: str
) -> None:
    async with desk(tmp_path / "mail.db") as client:
        answer = await client.ask("POST", "/drafts/short", {"agents": changes}, status=400)
        assert problem in answer["detail"]
        assert (await client.ask("GET", "/drafts"))["drafts"] == []


async def test_who_may(tmp_path: Path, model: LLMStub) -> None:
    async with desk(tmp_path / "mail.db") as client:
        await client.save("short", system="Be brief.")
        await client.ask("POST", "/message", {"body": "hello", "task_id": "own"}, role="user")
        fork = {"task_id": "own", "at": 1, "draft": "short"}
        answer = await client.ask("POST", "/task/fork", fork, role="user", status=403)
        assert answer["detail"].endswith("an admin names you: mail draft save NAME AGENT --tester user:user")
        unknown = await client.ask("POST", "/task/fork", {**fork, "draft": "none"}, role="user", status=403)
        assert unknown == answer
        let = {"agents": {"lead": {"system": "Be brief."}}, "testers": ["user:user"]}
        assert (await client.ask("POST", "/drafts/short", let))["testers"] == ["user:user"]
        await client.ask("POST", "/task/fork", fork, role="user", status=201)
        await client.ask("GET", "/drafts", role="user", status=403)
        assert "no draft 'long'" in (await client.ask("GET", "/drafts/long", status=404))["detail"]
        await client.save("No spaces", system="x", status=400)


async def test_the_command_compares_the_answers_of_several_tasks(
    tmp_path: Path, model: LLMStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(tmp_path / "mail.db") as client:
        for name in ("bees", "wasps"):
            await client.say(f"What about {name}?", name)
        await client.say("Shorter, please", "bees")
        await client.save("short", system="Be brief.")
        options = ("--server", client.url, "--api-key", client.key("admin"))

        async def mail(*arguments: str) -> Result:
            return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *options])

        tried = json.loads((await mail("draft", "try", "short", "--since", "1h", "--json")).output)
        assert {each["task_id"] for each in tried} == {"bees", "wasps"}
        for each in tried:
            assert each["before"]["answer"] == "Be thorough with publish+search"
            assert each["after"]["answer"] == "Be brief with publish+search"
            assert "-Be thorough with publish+search\n+Be brief with publish+search" in each["differences"]
            fork = await client.ask("GET", f"/task?task_id={each['fork_id']}&items=true")
            asked = [item["text"] for item in fork["items"] if item["kind"] == "message"]
            assert asked == [{"bees": "Shorter, please", "wasps": "What about wasps?"}[each["task_id"]]]
            for side in ("before", "after"):
                assert (each[side]["turns"], each[side]["calls"]) == (1, 1)
                assert each[side]["seconds"] > 0
        again = json.loads((await mail("draft", "try", "short", "-q", "about", "--json")).output)
        assert {each["task_id"] for each in again} == {"bees", "wasps"}, "forks aren't tried"
        text = (await mail("draft", "try", "short", "wasps")).output
        assert "What about wasps? (fork " in text
        assert "characters: Be brief with publish+search" in text
        assert text.splitlines()[-1].startswith("All 1: 1 turn, 1 call,")
        monkeypatch.setattr("mail.client.connection.RETRY_SECONDS", ())
        client.system.runtime.caller_limits = CallerLimits(running_tasks=1)
        model.otherwise = lambda _: reply(call("task_complete", finish_message="Slow."), delay=1.0)
        some = await mail("draft", "try", "short", "bees", "wasps")
        assert some.output.count("  short   refused: ") == 1, some.output
        assert some.output.count("5 characters: Slow.") == 1
        assert some.output.splitlines()[-1].startswith("The other 1: ")
        client.system.runtime.caller_limits = CallerLimits(running_tasks=0)
        none = await mail("draft", "try", "short", "bees", "wasps")
        assert isinstance(none.exception, TooManyRequests)
