"""The Mafia of the guide (seed 000, docs/manual-mail-game-guide.md) is `mail.examples.mafia`: its code runs in it.

Methods that the guide shows replace those of `Game`; language models are played by our rules behind the wire.
`tests/api/test_documented_samples.py` has the guide's other samples, and names those that are here.
"""

import asyncio
import dataclasses
import inspect
import re
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mafia_models import models
from pydantic import BaseModel, Field
from support.processes.document_samples import run
from support.seeds import Block, blocks

import mail
from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.examples import mafia
from mail.examples.mafia import game as ours
from mail.examples.mafia import narrator_tools
from mail.examples.mafia.game import Agent, Game, GamePhase, build_agent_swarm, build_narrator_template
from mail.examples.mafia.personas import PERSONAS
from mail.examples.mafia.prompts import create_agent_system_prompt, create_narrator_system_prompt
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, calculate_roles
from mail.factories import base_agent_factory
from mail.factories.ports import close_clients

GUIDE = "docs/manual-mail-game-guide.md"

pytestmark = [
    pytest.mark.skipif(not blocks(), reason="the seeds are not at hand"),
    pytest.mark.filterwarnings("ignore:base_agent_factory is deprecated"),
]


def block(number: int, language: str = "python") -> Block:
    return next(
        each for each in blocks() if (each.document, each.language, each.number) == (GUIDE, language, number)
    )


NAMES: dict[str, Any] = {
    "Agent": Agent,
    "BaseModel": BaseModel,
    "Field": Field,
    "GamePhase": GamePhase,
    "MAILAction": MAILAction,
    "MAILAgentTemplate": MAILAgentTemplate,
    "MAILMessage": mail.MAILMessage,
    "MAILSwarm": MAILSwarm,
    "MAILSwarmTemplate": MAILSwarmTemplate,
    "asyncio": asyncio,
    "base_agent_factory": base_agent_factory,
    "build_agent_swarm": build_agent_swarm,
    "build_narrator_template": build_narrator_template,
    "calculate_roles": calculate_roles,
    "create_agent_system_prompt": create_agent_system_prompt,
    "create_narrator_system_prompt": create_narrator_system_prompt,
    "dataclass": dataclasses.dataclass,
    "field": dataclasses.field,
    "get_narrator_actions": narrator_tools.get_narrator_actions,
    "partial": partial,
    "uuid": uuid,
}
"""What the guide uses without showing where it comes from: the names of the example, and of its imports."""


def define(number: int, **more: Any) -> dict[str, Any]:
    """What a block defines."""
    namespace: dict[str, Any] = {"__name__": "guide", **NAMES, **more}
    before = dict(namespace)
    exec(compile(block(number).code, f"guide {number}", "exec"), namespace)
    del namespace["__builtins__"]
    return {name: value for name, value in namespace.items() if value is not before.get(name)}


def game_with(*numbers: int, **more: Any) -> type[Game]:
    """Our game with the methods of these blocks in place of its own."""
    methods: dict[str, Any] = {}
    for number in numbers:
        methods |= define(number, **more)
    assert all(inspect.isfunction(method) for method in methods.values())
    return type("GuideGame", (Game,), methods)


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    return [(each.name, each.default) for each in inspect.signature(function).parameters.values()]


# --------------------------------------------------------------------------------------------------- the files


def test_the_files() -> None:
    named = re.findall(r"(\w+\.py)\b", block(2, "").code)
    folder = Path(str(mafia.__file__)).parent
    assert named
    assert [name for name in named if not (folder / name).exists()] == []


# --------------------------------------------------------------------------------------- modes and signatures


@pytest.mark.parametrize("number", [1, 2])
async def test_modes(number: int) -> None:
    swarm = build_agent_swarm([build_narrator_template(Game(), [])]).instantiate({})
    running = asyncio.ensure_future(run(block(number).code, {"swarm": swarm}))
    await asyncio.sleep(0)
    assert swarm._runtime.mode == ("continuous" if number == 1 else "manual")
    await swarm.shutdown()
    await running


# ------------------------------------------------------------------------------------------------- the players


class Fresh(dict[str, Any]):
    """A namespace in which `random_persona` is another persona each time."""

    def __init__(self, *arguments: Any, **names: Any) -> None:
        super().__init__(*arguments, **names)
        self._personas = iter(PERSONAS)

    def __getitem__(self, name: str) -> Any:
        return next(self._personas) if name == "random_persona" else super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return name == "random_persona" or super().__contains__(name)


async def test_create() -> None:
    """Block 3: the game's own state, and what `create` puts together."""
    built: list[MAILSwarmTemplate] = []

    def build(agents: list[MAILAgentTemplate]) -> MAILSwarmTemplate:
        built.append(build_agent_swarm(agents))
        return built[-1]

    the_game = Game(narrator_llm="openai/gpt-5-mini")
    namespace = Fresh(
        {"__name__": "guide", **NAMES, "build_agent_swarm": build, "game": the_game, "player_names": []}
    )
    before = asyncio.all_tasks()
    exec(compile(block(3).code, "guide 3", "exec"), namespace)
    theirs = namespace["Game"]
    documented = {field.name: field for field in dataclasses.fields(theirs)}
    own = {field.name: field for field in dataclasses.fields(Game)}
    assert set(documented) <= set(own)
    assert theirs().phase is Game().phase is GamePhase.SETUP
    assert parameters(theirs.create) == parameters(Game.create)[:2]

    assert theirs.create(7) is the_game
    (template,) = built
    assert [agent.name for agent in template.agents] == [*(each.name for each in PERSONAS[:7]), "Narrator"]
    assert {agent.agent_params["llm"] for agent in template.agents} == {"openai/gpt-5-mini"}
    told = [agent.agent_params["system"] for agent in template.agents[:7]]
    expected = zip(PERSONAS, calculate_roles(7), strict=False)
    assert told == [create_agent_system_prompt(persona, role) for persona, role in expected]
    for task in asyncio.all_tasks() - before:  # the guide keeps no reference to it
        task.cancel()


# ---------------------------------------------------------------------------------------- steps and the night


def test_steps_have_the_signatures_of_the_guide() -> None:
    for number in (5, 6):
        for name, method in define(number).items():
            assert parameters(getattr(Game, name)) == parameters(method)
            assert inspect.iscoroutinefunction(getattr(Game, name))


@pytest.mark.parametrize("seed", [1])
async def test_a_game_with_the_steps_of_the_guide(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Block 5: all steps of the players, and all that the narrator says to everyone, are the guide's."""
    by_rules = Game.create(5, seed=seed)
    await by_rules.run()
    with models(monkeypatch, by_rules.players[0].seed):
        game = game_with(5).create(5, ["openai/gpt-5-mini"], seed=seed)
        assert type(game).step_agent is not Game.step_agent
        assert await game.run() is by_rules.winner
    assert [player.is_alive for player in game.players] == [player.is_alive for player in by_rules.players]
    await close_clients()


async def test_a_night_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks 5 and 6: what they choose is written down by the narrator's tools, and comes true."""
    with models(monkeypatch, seed=1):
        seats = Game.create(5, seed=1)  # the guide does not show where it gets the doctor from
        await seats.shutdown()
        doctor, detective = seats.get_alive(DOCTOR), seats.get_alive(DETECTIVE)
        kind = game_with(5, 6, doctor=doctor, detective=detective, other_mafia=[])
        game = kind.create(5, ["openai/gpt-5-mini"], seed=1)
        await game.start()
        await game.run_night_phase()
        await game.shutdown()
    await close_clients()
    assert game.phase is GamePhase.NIGHT
    assert game.protected_player is not None
    assert len(game.investigated) == 1
    (victim,) = game.kill_votes.values()
    assert game.get_player_by_name(victim).is_alive is (victim == game.protected_player)


# --------------------------------------------------------------------------------------------------- the tools


async def test_tools() -> None:
    """Block 7 does to our game what our tool of that name does."""
    theirs = define(7)
    assert set(theirs) <= set(vars(narrator_tools))
    model, own = theirs["DoctorProtectArgs"], narrator_tools.DoctorProtectArgs
    assert list(model.model_fields) == list(own.model_fields)
    assert parameters(theirs["doctor_protect"]) == parameters(narrator_tools.doctor_protect)
    protected = []
    for get_actions in (theirs["get_narrator_actions"], narrator_tools.get_narrator_actions):
        game = Game([Agent(PERSONAS[0], DOCTOR)], phase=GamePhase.NIGHT)
        action = get_actions(game)[0]
        assert action.name == "doctor_protect"
        assert "Ada" in await action({"target_name": "Ada"})
        protected.append(game.protected_player)
    assert protected == ["Ada", "Ada"]


def test_the_narrator() -> None:
    """Block 8 builds the narrator as we do, but for the deprecated factory."""
    game = Game(narrator_llm="openai/gpt-5-mini")
    theirs = define(8)["build_narrator_template"](game, ["Ada", "Bruno"])
    own = build_narrator_template(game, ["Ada", "Bruno"])
    assert parameters(define(8)["build_narrator_template"]) == parameters(ours.build_narrator_template)
    for name in ("name", "comm_targets", "agent_params", "can_complete_tasks"):
        assert getattr(theirs, name) == getattr(own, name)
    assert [action.name for action in theirs.actions] == [action.name for action in own.actions]


async def test_errors_of_tools() -> None:
    """Block 32: a tool that raises `NarratorError`, theirs or ours, tells the narrator."""
    theirs = define(32, valid_target=lambda _: False)
    assert issubclass(narrator_tools.NarratorError, Exception)
    for error in (theirs["NarratorError"], narrator_tools.NarratorError):
        tool = define(32, valid_target=lambda _: False)["my_tool"]
        tool.__globals__["NarratorError"] = error
        with pytest.raises(error, match="Invalid target: Ada"):
            await tool(Game(), {"target": "Ada"})


# ---------------------------------------------------------------------------------------------------- the tips


@pytest.mark.parametrize("number", [28, 29])
async def test_tips_for_steps(number: int) -> None:
    """`...` stands for the arguments of any step, and is filled in."""
    game = Game.create(5, seed=1)
    await game.start()
    filled = block(number).code.replace("...", "task_id=self.task_id, target='Narrator'")
    filled = filled.replace(",,", ",")
    namespace: dict[str, Any] = {"self": game}
    await run(filled, namespace)
    events = await game.swarm._runtime.read_events(game.task_id)
    assert [event.event for event in events].count("new_message") >= 2
    await game.shutdown()


def test_every_game_is_a_task_of_its_own() -> None:
    theirs = define(33)["Game"]
    for kind in (theirs, Game):
        assert uuid.UUID(kind().task_id) != uuid.UUID(kind().task_id)


async def test_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block 34: the guide's method stands in for ours."""
    (method,) = define(34).values()
    assert parameters(method) == parameters(Game._interactive_wait)
    assert method(SimpleNamespace(interactive=False), "Ada", "Speak.") == ""
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "Louder."

    monkeypatch.setattr("builtins.input", answer)
    game = game_with(34).create(5, seed=1)
    game.interactive = True
    await game.start()
    await game.shutdown()
    assert len(asked) == 1
