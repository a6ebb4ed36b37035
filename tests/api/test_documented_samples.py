"""The Python samples of the seeds that use the Python API run as they stand, and the signatures they document exist.

A sample is run in a namespace of its own, after what `BEFORE` says a reader has by then; `FILLED` has what goes into
the gaps of fragments. Language models are played by the stub of `support.services.llm_stub`, through the real litellm.
What can't be run is listed in `LEFT_OUT` with the reason.
"""

import ast
import asyncio
import inspect
import json
import re
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field
from support.processes.document_samples import run
from support.seeds import Block, blocks
from support.services.llm_stub import LLMStub, Request, Tokens, reply, text
from support.services.llm_stub import call as model_calls
from support.services.templates import agent, rule_based, template

import mail
import mail.core.tools
from mail import MAILAction, MAILAgentTemplate, MAILSwarmTemplate, action
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.factories import (
    LiteLLMActionAgentFunction,
    LiteLLMAgentFunction,
    LiteLLMSupervisorFunction,
    base_agent_factory,
)
from mail.factories.ports import close_clients
from mail.testing.agents import View, call, complete
from mail.utils import auth, logger, parsing, store

API = "docs/api.md"
AGENTS = "docs/AGENTS_MAIL_PRIMER.md"
CLAUDE = "docs/CLAUDE_MAIL_PRIMER.md"
GUIDE = "docs/manual-mail-game-guide.md"
DOCUMENTS = (API, AGENTS, CLAUDE, GUIDE)

pytestmark = pytest.mark.skipif(not blocks(), reason="the seeds are not at hand")

MAFIA = "tests/examples/test_mafia_guide.py"

IN_MAFIA = (1, 2, 3, 5, 6, 7, 8, 28, 29, 32, 33, 34)
ELSEWHERE: dict[tuple[str, int], str] = dict.fromkeys([(GUIDE, n) for n in IN_MAFIA], MAFIA)
"""Samples of a game whose other parts are not in the guide, but in `mail.examples.mafia`: the module runs them in it.
"""

SERVES = "serves on fixed ports until it is stopped; test_api_templates.TestServer runs it on a free one"

LEFT_OUT: dict[tuple[str, int], str] = {
    (AGENTS, 11): SERVES,
    (CLAUDE, 11): SERVES,
}


METHODS = [(GUIDE, n) for n in range(9, 18)]
"""The methods of a class that the other samples build: TestGuide runs them in it."""

PARAMS = '{"llm": "openai/gpt-5-mini", "system": "You work."}'

FILLED: dict[tuple[str, int], dict[str, str]] = {
    (CLAUDE, 3): {"{...}": PARAMS},
    (CLAUDE, 4): {"{...}": PARAMS},
    (CLAUDE, 13): {"[...]": "[supervisor]", "(...)": "({})"},
    (CLAUDE, 16): {
        "    ...\n": "    name='a', factory=LiteLLMAgentFunction, comm_targets=[], actions=[],\n",
        "{...}": PARAMS,
    },
    (CLAUDE, 17): {"{...}": PARAMS},
    (CLAUDE, 20): {"(...)": "(task_id='game', target='GameMaster')"},
    (CLAUDE, 21): {"    ...\n": "    payload='Speak.',\n"},
    (GUIDE, 35): {
        "[...], ...)": "[player], version='1', actions=[], entrypoint='AgentName')",
        "{...}": "{}",
        '["all"], ...)': '["all"], type="broadcast", task_id="...")',
    },
}
"""Fragments, in which `...` stands for what is left out; and what is put there."""


def python_blocks(*documents: str) -> list[Block]:
    return [block for block in blocks() if block.language == "python" and block.document in documents]


def block(document: str, number: int) -> Block:
    return next(each for each in python_blocks(document) if each.number == number)


def is_signature(code: str) -> bool:
    """Whether a block documents a function by its signature alone, or a record by its fields."""
    return code.lstrip().startswith("{") or (not parses(code) and parses(with_body(code)))


def with_body(code: str) -> str:
    return code.removeprefix("@staticmethod\n").rstrip().rstrip(":") + ": ..."


def filled(sample: Block) -> str:
    """A sample as it runs: as it stands, but for the gaps of fragments."""
    code = sample.code
    for gap, filling in FILLED.get((sample.document, sample.number), {}).items():
        assert gap in code
        code = code.replace(gap, filling)
    return code


def parses(code: str) -> bool:
    try:
        compile(code, "<sample>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return False
    return True


RUN = [
    each
    for each in python_blocks(*DOCUMENTS)
    if (each.document, each.number) not in {**LEFT_OUT, **ELSEWHERE} and not is_signature(each.code)
]
SIGNATURES = [
    each
    for each in python_blocks(API, GUIDE)
    if is_signature(each.code) and (each.document, each.number) not in LEFT_OUT
]


# ------------------------------------------------------------------------------------------ language models


@pytest.fixture
def stub(stub: LLMStub) -> LLMStub:
    """A language model that finishes tasks, answers every message, and plays games."""
    stub.otherwise = say
    return stub


def say(request: Request) -> Any:
    """What the model says next; it looks at its tools, and at what it was told last."""
    tools = {tool.get("function", tool)["name"] for tool in request.body.get("tools", [])}
    turns = request.body.get("messages") or request.body["input"]
    last = json.dumps(turns[-1])
    if "You are the memory" in json.dumps(request.body):
        return reply(text("Ann said something."))
    if "how_to_answer" in last and "::action_complete::" not in last:
        told = last.rpartition("<instructions>")[2]
        if "set_challenge" in told and "set_challenge" in tools:
            return reply(model_calls("set_challenge", {"challenge": "rhyme"}))
        if "score_points" in told and "score_points" in tools:
            return reply(model_calls("score_points", {"player_name": "Bob", "points": 10}))
    if "how_to_answer" in last:
        return reply(text("I say something."), tokens=Tokens(input=len(json.dumps(request.body)) // 4))
    if "task_complete" in tools:
        if (
            "send_request" in tools
            and "weather" in json.dumps(request.body["tools"])
            and "sunny" not in json.dumps(turns)
        ):
            return reply(
                model_calls("send_request", {"target": "weather", "subject": "s", "body": "New York?"}),
                model_calls("await_message", {}),
            )
        return reply(model_calls("task_complete", {"finish_message": "It is sunny."}))
    return reply(model_calls("send_response", {"target": "supervisor", "subject": "s", "body": "sunny"}))


# -------------------------------------------------------------------------------- what readers have by then


class Game:
    """Whatever the samples call a game."""

    def __init__(self) -> None:
        self.counter = 0
        self.scores: dict[str, int] = {}
        self.protected_player: str | None = None

    def select_speaker(self, name: str) -> str:
        return f"{name} speaks"


def done(view: View) -> list[Any]:
    return [complete(f"done: {view.mail.body}")]


def talk(_view: View) -> list[Any]:
    return [call("text_output", content="words")]


def players(*names: str) -> MAILSwarmTemplate:
    first, *others = names
    return template(agent(first, talk, supervises=True), *(agent(name, talk) for name in others))


def tool(name: str) -> MAILAction:
    return MAILAction(name, "d", {"type": "object", "properties": {}}, lambda _: "result")


def reviewer(**fields: Any) -> MAILAgentTemplate:
    """Asks a person, and is content with the answer."""

    def policy(view: View) -> list[Any]:
        return [complete("approved")] if "human_review" in str(view.history) else [call("human_review")]

    return agent("supervisor", policy, supervises=True, **fields)


async def paused() -> dict[str, Any]:
    boss = reviewer(actions=[tool("human_review")])
    swarm = template(boss, breakpoint_tools=["human_review"]).instantiate({})
    response, _ = await swarm.post_message("x", task_id="paused")
    return {"swarm": swarm, "existing_task_id": "paused", "response": response}


async def playing_game(*names: str) -> dict[str, Any]:
    """A game in the middle, as `self` of its methods."""
    alice = agent(
        "Alice",
        factory=LiteLLMAgentFunction,
        targets=["GameMaster"],
        agent_params={"llm": "openai/gpt-5-mini", "system": "You are Alice."},
    )
    players = dict.fromkeys((*names, "Bob", "Charlie", "David"))
    others = [agent(name, talk, supervises=name == "GameMaster") for name in players]
    swarm = template(*others, alice).instantiate({})
    running = asyncio.create_task(swarm.run_continuous(mode="manual"))
    await swarm.submit_message_nowait(
        swarm.build_message("s", "b", ["all"], type="broadcast", task_id="game")
    )

    async def step(name: str = "GameMaster", private: bool = False, payload: str = "") -> Any:
        return await swarm.manual_step("game", name, ["all"], payload=payload)

    letters = {
        f"msg_from_{name.lower()}": swarm.build_message(
            "s", f"by {name}", ["Alice"], "agent", task_id="game", sender=name
        )
        for name in ("Bob", "Charlie", "David")
    }
    me = SimpleNamespace(
        swarm=swarm,
        step_player=step,
        step_gamemaster=lambda payload: step(payload=payload),
        format_scores=lambda: "none",
        round_number=1,
        remaining_items=[],
        scores={},
    )
    return {
        "self": me,
        "swarm": swarm,
        "task_id": "game",
        "player_name": "Alice",
        "running": running,
        **letters,
    }


IMPORTS = {
    "MAILAction": MAILAction,
    "MAILAgentTemplate": MAILAgentTemplate,
    "MAILSwarmTemplate": MAILSwarmTemplate,
    "MAILMessage": mail.MAILMessage,
    "MAILSwarm": mail.MAILSwarm,
    "action": action,
    "LiteLLMAgentFunction": LiteLLMAgentFunction,
    "LiteLLMActionAgentFunction": LiteLLMActionAgentFunction,
    "LiteLLMSupervisorFunction": LiteLLMSupervisorFunction,
    "base_agent_factory": base_agent_factory,
    "BaseModel": BaseModel,
    "Field": Field,
    "partial": partial,
    "asyncio": asyncio,
    "json": json,
    "uuid": uuid,
}

OTHERS = ("GameMaster", "Bob", "Charlie")


def solo() -> MAILSwarmTemplate:
    return template(agent("boss", done, supervises=True))


def team(*names: str) -> dict[str, Any]:
    return {name: agent(name, done, supervises=name == "supervisor") for name in names}


def documented_swarms() -> dict[str, Any]:
    """The swarms.json of the configuration guide, in the current folder."""
    (code,) = (each.code for each in blocks() if each.name == "docs/configuration.md json 1")
    Path("swarms.json").write_text(code, encoding="utf-8")
    return {}


def tools(*names: str) -> dict[str, Any]:
    return {name: tool(name) for name in names}


BEFORE: dict[tuple[str, int], Callable[[], Any]] = {
    (API, 5): lambda: {"lookup_forecast": lambda _: SimpleNamespace(json=lambda: '{"sky": "blue"}')},
    (AGENTS, 4): lambda: {"game": Game()},
    (AGENTS, 5): lambda: tools("select_speaker_action"),
    (AGENTS, 6): lambda: {**team("supervisor", "worker"), **tools("select_speaker_action")},
    **dict.fromkeys([(AGENTS, n) for n in (7, 8, 9)], lambda: {"swarm": solo().instantiate({})}),
    (AGENTS, 10): lambda: {"swarm": players("narrator", "player1").instantiate({})},
    (AGENTS, 12): lambda: {
        "supervisor": agent("supervisor", done, supervises=True, actions=[tool("human_review")]),
        "worker": agent("worker", done),
        **tools("select_speaker_action"),
    },
    (AGENTS, 13): paused,
    (AGENTS, 14): paused,
    (AGENTS, 16): documented_swarms,
    (CLAUDE, 5): lambda: tools("my_action"),
    (CLAUDE, 6): lambda: tools("web_search_action", "run_code_action"),
    (CLAUDE, 7): lambda: {
        **tools("web_search_action", "run_code_action"),
        **team("supervisor", "researcher", "coder"),
    },
    (CLAUDE, 8): lambda: {"template": solo()},
    (CLAUDE, 9): lambda: {"template": solo()},
    (CLAUDE, 10): lambda: {"swarm": solo().instantiate({})},
    (CLAUDE, 12): lambda: {"template": players("narrator", "player1")},
    (CLAUDE, 4): lambda: {"GameState": Game},
    (CLAUDE, 13): lambda: {"supervisor": reviewer(), "human_review_action": tool("human_review")},
    (CLAUDE, 19): lambda: {"DoThingArgs": Arguments, "my_state_object": Game()},
    **dict.fromkeys([(GUIDE, n) for n in (23, 24, 25, 26, 27, 30)], lambda: playing_game(*OTHERS)),
    **dict.fromkeys([(CLAUDE, 20), (CLAUDE, 21)], lambda: playing_game("GameMaster", "agent")),
    (GUIDE, 35): lambda: {"player": agent("AgentName", talk, supervises=True), "Game": Game, "game": Game()},
}


ANSWERS = {(CLAUDE, 13): "approved", (CLAUDE, 20): "words", (GUIDE, 35): "words"}
"""What the last response of a sample says, where a fragment was filled."""


class Arguments(BaseModel):
    """Do a thing."""


# ------------------------------------------------------------------------------------------------ the samples


def test_every_sample_is_accounted_for() -> None:
    known = {(each.document, each.number) for each in python_blocks(*DOCUMENTS)}
    not_here = {**LEFT_OUT, **ELSEWHERE}
    assert set(not_here) | set(FILLED) <= known
    accounted = {(each.document, each.number) for each in (*RUN, *SIGNATURES)}
    assert known - set(not_here) == accounted


MODELS = {f"{AGENTS} python 2", f"{CLAUDE} python 2"}
NEEDS_NO_LOOP = (API, 42)
IN_OTHER_TESTS = {NEEDS_NO_LOOP, *METHODS}


@pytest.mark.parametrize(
    "sample",
    [each for each in RUN if (each.document, each.number) not in IN_OTHER_TESTS],
    ids=lambda each: each.name,
)
@pytest.mark.filterwarnings("ignore:base_agent_factory is deprecated")
async def test_sample(
    sample: Block,
    stub: LLMStub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "sample", **IMPORTS}
    given = BEFORE.get((sample.document, sample.number), dict)()
    namespace |= await given if inspect.isawaitable(given) else given
    await run(filled(sample), namespace)
    if (answer := ANSWERS.get((sample.document, sample.number))) is not None:
        assert namespace["response"]["message"]["body"] == answer
    swarm = namespace.get("swarm")
    if swarm is not None and not swarm._runtime._is_shut_down:
        stream = namespace.get("stream")
        if stream is not None:
            assert [event.event async for event in stream.body_iterator][-1] == "task_complete"
        await swarm.shutdown()
    if sample.name in MODELS:
        assert stub.requests
        assert capsys.readouterr().out == "It is sunny.\n"
    await close_clients()
    await finish_tasks()


async def finish_tasks() -> None:
    """What a sample has begun ends with its swarm; litellm's own tasks never do."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        if "litellm" in repr(task.get_coro()).lower() or "LoggingWorker" in repr(task.get_coro()):
            task.cancel()
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 60)


def test_sample_that_brings_its_own_loop(stub: LLMStub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.script()
    exec(compile(block(API, 42).code, "<sample>", "exec"), {"__name__": "sample"})
    assert capsys.readouterr().out == "It is sunny.\n"
    asyncio.run(close_clients())
    assert len({request.body["model"] for request in stub.requests}) == 1


class TestGuide:
    @pytest.mark.filterwarnings("ignore:base_agent_factory is deprecated")
    async def test_the_game_of_the_guide(self, stub: LLMStub, capsys: pytest.CaptureFixture[str]) -> None:
        """Steps 1 to 9, put together as the guide says: the functions of steps 6 to 8 are the game's methods."""
        namespace: dict[str, Any] = {"__name__": "game", **IMPORTS}
        for number in (9, 10, 11, 12, 13):
            await run(block(GUIDE, number).code, namespace)
        game = namespace["MyGame"]
        game.swarm = property(lambda self: self._swarm)  # the guide uses it and does not show it
        for number in (14, 15, 16):
            methods: dict[str, Any] = dict(namespace)
            await run(block(GUIDE, number).code, methods)
            for name in methods.keys() - namespace.keys():
                setattr(game, name, methods[name])
        await run(block(GUIDE, 17).code, namespace)
        await namespace["main"]()
        assert capsys.readouterr().out == "Winner: Bob\n"
        steps = [request for request in stub.requests if "how_to_answer" in json.dumps(request.body)]
        assert len(steps) >= 8
        await close_clients()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # the guide never shuts its swarm down
            task.cancel()


@pytest.mark.parametrize("llm", ["openai/gpt-5-mini", "anthropic/claude-sonnet-4-20250514"])
@pytest.mark.parametrize("tool_format", ["responses", "completions"])
async def test_long_histories_are_summarized_by_the_model(
    stub: LLMStub, monkeypatch: pytest.MonkeyPatch, llm: str, tool_format: Any
) -> None:
    """Not a sample, but it needs the same: providers take what is asked of them."""

    async def window(agent: LiteLLMAgentFunction) -> int:
        assert (await real_window(agent) or 128_000) > 100_000
        return 2_800  # of which half is for instructions and tools

    real_window = LiteLLMAgentFunction.window
    monkeypatch.setattr(LiteLLMAgentFunction, "window", window)
    actor = agent(
        "Ann",
        factory=LiteLLMSupervisorFunction,
        supervises=True,
        tool_format=tool_format,
        agent_params={"llm": llm, "system": "You play."},
    )
    swarm = template(actor).instantiate({})
    running = asyncio.create_task(swarm.run_continuous(mode="manual"))
    await swarm.submit_message_nowait(
        swarm.build_message("s", "b", ["all"], type="broadcast", task_id="game")
    )
    for n in range(8):
        response = await swarm.manual_step(
            "game", payload=f"{n} " * 180, target="Ann", dynamic_ctx_ratio=0.75
        )
        assert response["message"]["body"] == "I say something."
    asked = [request.body for request in stub.requests if "You are the memory" in json.dumps(request.body)]
    assert asked
    assert len(asked) <= 4
    assert "summary_of_earlier_events" in json.dumps(stub.requests[-1].body)
    await swarm.shutdown()
    await running
    await close_clients()
    await finish_tasks()


# ---------------------------------------------------------------------------------------------- the signatures

HOMES: tuple[Any, ...] = (mail.core.tools, auth, logger, parsing, store, mail.MAILSwarm, mail.MAILAction)

RECORDS: dict[int, Any] = {
    6: mail.MAILAddress,
    7: mail.MAILRequest,
    8: mail.MAILResponse,
    9: mail.MAILBroadcast,
    10: mail.MAILInterrupt,
    11: MAILInterswarmMessage,
    12: mail.MAILMessage,
}


@pytest.mark.parametrize("sample", SIGNATURES, ids=lambda each: each.name)
def test_signature(sample: Block) -> None:
    if sample.code.lstrip().startswith("{"):
        documented = re.findall(r"(?:^|,)\s*(\w+): ", sample.code, re.MULTILINE)
        assert set(documented) == set(RECORDS[sample.number].model_fields)
        return
    (function,) = ast.parse(with_body(sample.code)).body
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    ours = next(getattr(home, function.name) for home in HOMES if hasattr(home, function.name))
    parameters = [
        each for name, each in inspect.signature(ours).parameters.items() if name not in ("self", "cls")
    ]
    documented_arguments = [each for each in function.args.args if each.arg != "self"]
    defaults = [None] * (len(documented_arguments) - len(function.args.defaults)) + list(
        function.args.defaults
    )
    for argument, default, parameter in zip(documented_arguments, defaults, parameters, strict=False):
        assert argument.arg == parameter.name
        if default is not None:
            assert ast.literal_eval(default) == parameter.default
    assert len(parameters) >= len(documented_arguments)
    assert inspect.iscoroutinefunction(ours) or not isinstance(function, ast.AsyncFunctionDef)


def test_playing_is_a_factory() -> None:
    assert callable(rule_based(done)(name="a", tool_format="completions"))
