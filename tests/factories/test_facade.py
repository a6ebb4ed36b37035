"""`Agent` and `Swarm` with language models: the short way to a swarm, against a stub of the providers."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from support.services.llm_stub import LLMStub, call, reply, text
from support.services.ollama_stub import ollama

from mail import Agent, Swarm, action
from mail.errors import BadRequest, ConfigurationError, TaskFailed
from mail.factories.litellm_port import LiteLLM

MODEL = "openai/gpt-5-mini"
ROOT = Path(__file__).parents[2]


@action
async def web_search(query: str, limit: int = 3) -> str:
    """Search the web.

    Args:
        query: What to look for.
    """
    return f"{limit} pages about {query}"


def research() -> Swarm:
    searcher = Agent("searcher", "You search.", model=MODEL, actions=[web_search])
    writer = Agent("writer", "You write.", model=MODEL)
    lead = Agent("lead", "You lead a research team.", model=MODEL, team=[searcher, writer])
    return Swarm(lead)


def script_research(stub: LLMStub) -> None:
    stub.script(
        reply(call("send_request", target="searcher", subject="Find", body="MAIL")),
        reply(call("task_complete", finish_message="Agents that send each other mail.")),
        to="You lead",
    )
    stub.script(
        reply(call("web_search", query="MAIL")),
        reply(call("send_response", target="lead", subject="Found", body="3 pages")),
        to="You search",
    )


def test_the_team_answers(stub: LLMStub, capsys: pytest.CaptureFixture[str]) -> None:
    script_research(stub)
    swarm = research()
    print(swarm.ask("What is MAIL?"))
    assert capsys.readouterr().out == "Agents that send each other mail.\n"
    assert stub.is_done
    assert "3 pages about MAIL" in str(stub.requests[-2].body["input"])
    swarm.close()


class Report(BaseModel):
    title: str
    score: int

    @field_validator("score")
    @classmethod
    def _small(cls, score: int) -> int:
        if score > 10:
            raise ValueError("too much")
        return score


class Strict(Report):
    by: str


def test_the_answer_is_an_object_of_the_output_type(stub: LLMStub) -> None:
    """The first answer doesn't fit, and goes back to the model."""
    stub.script(
        reply(call("task_complete", output={"title": "MAIL"})),
        reply(call("task_complete", output={"title": "MAIL", "score": 9})),
        reply(call("task_complete", output=["a", "b"])),
        reply(call("task_complete", finish_message="in words")),
    )
    swarm = Swarm(Agent("lead", "You rate.", model=MODEL))
    assert swarm.ask("Rate it.", output_type=Report) == Report(title="MAIL", score=9)
    assert "'score' is a required property" in str(stub.requests[1].body["input"])
    assert swarm.ask("Name two.", output_type=list[str]) == ["a", "b"]
    assert swarm.ask("And now?").text == "in words"
    swarm.close()


def test_the_output_type_of_a_swarm(stub: LLMStub) -> None:
    stub.script(
        reply(text('{"title": "MAIL", "score": 11}')),
        reply(text('{"title": "MAIL", "score": 9}')),
        reply(text('{"title": "MAIL", "score": 11, "by": "me"}')),
        reply(call("task_complete", output=7)),
    )
    swarm = Swarm(Agent("lead", "You rate.", model=MODEL), output_type=Report)
    report: Any = swarm.ask("Rate it.")
    assert report == Report(title="MAIL", score=9)
    assert "score: Value error, too much" in str(stub.requests[1].body["input"])
    with pytest.raises(TaskFailed, match="not its validators"):
        swarm.ask("Rate it again.", output_type=Strict)
    assert swarm.ask("How much?", output_type={"type": "integer"}) == 7
    swarm.close()


async def test_a_stream_ends_with_the_object(stub: LLMStub) -> None:
    stub.script(
        reply(call("task_complete", output={"title": "MAIL", "score": 9})),
        reply(call("task_complete", output=7)),
    )
    async with Swarm(Agent("lead", "You rate.", model=MODEL), output_type=Report) as swarm:
        assert [item async for item in swarm.stream("Rate it.")][-1] == Report(title="MAIL", score=9)
        assert [item async for item in swarm.stream("How much?", output_type=int)][-1] == 7


HELLO = """
import sys
from mail import Agent, Swarm
try:
    Swarm(Agent("lead", "You answer.", model="openai/gpt-5-mini")).ask("Hi")
finally:
    print("litellm" in sys.modules)
"""


def test_a_missing_key_is_named_without_litellm_and_in_few_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    done = subprocess.run(
        [sys.executable, "-c", HELLO], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout == "False\n"
    *frames, last = done.stderr.splitlines()
    assert re.fullmatch(
        r"mail\.errors\.TaskFailed: task '[-\w]+': agent 'lead' has failed: openai/gpt-5-mini has no API key: "
        r"set OPENAI_API_KEY where this agent runs",
        last,
    )
    assert sum(line.startswith("  File ") for line in frames) == 2


def test_a_key_may_be_somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    find_missing_key = LiteLLM().find_missing_key
    assert find_missing_key(MODEL) is not None
    assert find_missing_key("ollama/llama3") is None
    (tmp_path / ".env").touch()
    assert find_missing_key(MODEL) is None
    (tmp_path / ".env").unlink()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1234/v1")
    assert find_missing_key(MODEL) is None


async def test_the_documented_classes_take_an_output_type(stub: LLMStub) -> None:
    stub.script(
        reply(call("task_complete", output={"title": "MAIL", "score": 9})),
        reply(call("task_complete", output=1)),
    )
    swarm = Swarm(Agent("lead", "You rate.", model=MODEL))
    running = swarm.running
    answer, _ = await running.post_message("Rate it.", output_type=Report)
    assert Report.model_validate_json(answer.message.body) == Report(title="MAIL", score=9)
    with pytest.raises(BadRequest, match="has no JSON Schema"):
        await running.post_message("Rate it.", output_type=object())
    await swarm.aclose()


def test_an_output_type_that_has_no_schema_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no JSON Schema"):
        Swarm(Agent("lead", model=MODEL), output_type=Swarm)


def test_models_of_ollama_get_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    with ollama(name="task_complete", arguments={"finish_message": "Hi!"}) as (url, asked):
        monkeypatch.setenv("OLLAMA_API_BASE", url)
        swarm = Swarm(Agent("lead", "You greet.", model="ollama/llama3.2"))
        assert swarm.ask("Hello").text == "Hi!"
        swarm.close()
    assert asked[0]["model"] == "llama3.2"
    assert "task_complete" in {tool["function"]["name"] for tool in asked[0]["tools"]}
