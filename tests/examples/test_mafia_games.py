"""Whole games of Mafia: they are played by the rules, and nobody knows what they must not know."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from mafia_models import MODEL, models, speaker
from support.plugins.tiers import sized

from mail.core.task.ports import read_history
from mail.core.task.swarm import History
from mail.core.task.task import TaskKey
from mail.examples.mafia.game import GAME_MASTER, Agent, Game, GamePhase, Said
from mail.examples.mafia.hearings import read_hearings
from mail.examples.mafia.phrases import KILLS, NOMINATES, PROTECTS, VOTES
from mail.examples.mafia.roles import MAFIA, Team
from mail.factories.ports import close_clients

SEEDS = range(sized(fast=4, full=4, soak=8))
SIZES = (4, 5, 7, 9, 16)
DAY = (GamePhase.DISCUSSION, GamePhase.NOMINATION, GamePhase.TRIAL)


async def play(n: int, seed: int, **options: Any) -> tuple[Game, dict[str, History]]:
    """A game that is over, and what the engine has kept of each agent's history."""
    game = Game.create(n, seed=seed, **options)
    await game.play()
    runtime = game.swarm._runtime
    key = TaskKey(str(runtime.principal), game.task_id)
    store = runtime.engine.store
    names = [agent.name for agent in game.swarm.agents]
    histories = {name: await read_history(store, key, name) for name in names}
    await game.shutdown()
    return game, histories


# ------------------------------------------------------------------------------------------------- the rules


def most_named(votes: Sequence[str]) -> str | None:
    return max(votes, key=lambda name: (votes.count(name), -votes.index(name)), default=None)


def match_all(pattern: re.Pattern[str], said: Sequence[Said]) -> list[tuple[str, str]]:
    found = ((each.speaker, pattern.search(each.text)) for each in said if each.speaker != "Narrator")
    return [(name, match[1]) for name, match in found if match is not None]


def referee(game: Game) -> None:
    """Replay the transcript by the rules, from who is what to who has won."""
    living = {player.name: player.role for player in game.players}
    days = max(said.day_number for said in game.transcript if said.phase is not GamePhase.GAME_OVER)

    def winner(day: int) -> Team | None:
        mafia = sum(role is MAFIA for role in living.values())
        if mafia == 0:
            return Team.TOWN
        return Team.MAFIA if 2 * mafia >= len(living) or day > game.last_day else None

    for day in range(1, days + 1):
        parts: Mapping[GamePhase, list[Said]] = {
            phase: [said for said in game.transcript if said.day_number == day and said.phase is phase]
            for phase in GamePhase
        }
        assert winner(day) is None
        spoke = {said.speaker for part in parts.values() for said in part} - {"Narrator", GAME_MASTER}
        assert spoke <= set(living)

        night = parts[GamePhase.NIGHT]
        mafia = {name for name, role in living.items() if role is MAFIA}
        for said in night:
            if said.speaker != "Narrator":
                partners = mafia - {said.speaker} if said.speaker in mafia else set()
                assert set(said.audience) == {"Narrator"} | partners
        assert all(said.is_public for phase, part in parts.items() if phase in DAY for said in part)
        kills = match_all(KILLS, night)
        assert {name for name, _ in kills} == mafia
        assert day > 1 or len({target for _, target in kills}) == 1, "they have nothing to disagree about"
        victim = most_named([target for _, target in kills])
        protects = match_all(PROTECTS, night)
        assert [living[name].name for name, _ in protects] == ["Doctor"] * ("Doctor" in roles(living))
        saved = victim in [target for _, target in protects]
        assert night[-1].is_public
        assert (f"{victim} has died" in night[-1].text) is not saved
        if not saved:
            assert victim is not None
            assert living.pop(victim) is not MAFIA
        if winner(day) is not None:
            assert not parts[GamePhase.DISCUSSION]
            break

        assert {said.speaker for said in parts[GamePhase.DISCUSSION]} == set(living)
        nominations = [
            target for _, target in match_all(NOMINATES, parts[GamePhase.NOMINATION]) if target != "nobody"
        ]
        accused = most_named(nominations)
        if nominations.count(str(accused)) < 2:
            assert not parts[GamePhase.TRIAL]
            continue
        trial = parts[GamePhase.TRIAL]
        assert trial[0].speaker == accused
        votes = match_all(VOTES, trial)
        assert sorted(name for name, _ in votes) == sorted(name for name in living if name != accused)
        count = Counter(verdict for _, verdict in votes)
        dies = count["guilty"] > count["innocent"]
        assert (f"{accused} has died" in trial[-1].text) is dies
        if dies:
            del living[str(accused)]
    assert game.winner is winner(game.day_number)
    assert game.winner is not None
    assert [player.name for player in game.get_alive_players()] == list(living)


def roles(living: Mapping[str, Any]) -> set[str]:
    return {role.name for role in living.values()}


@pytest.mark.parametrize("n", [SIZES[0], *(pytest.param(n, marks=pytest.mark.soak) for n in SIZES[1:])])
async def test_games_are_played_by_the_rules(n: int) -> None:
    for seed in SEEDS:
        game = Game.create(n, seed=seed)
        await game.run()
        referee(game)
        assert game.phase is GamePhase.GAME_OVER
        assert f"The {game.winner} has won" in game.transcript[-1].text


async def test_either_side_can_win() -> None:
    games = [Game.create(7, seed=seed) for seed in (0, 1)]
    assert {await game.run() for game in games} == {Team.TOWN, Team.MAFIA}
    for game in games:
        referee(game)


async def test_the_seed_decides() -> None:
    games = [Game.create(7, seed=seed) for seed in (3, 3, 4)]
    for game in games:
        await game.run()
    assert games[0].transcript == games[1].transcript
    assert games[0].transcript != games[2].transcript


async def test_a_game_that_nobody_decides_ends() -> None:
    game = Game.create(7, seed=1)
    game.last_day = 1
    assert await game.run() is Team.MAFIA
    assert game.day_number == 2
    referee(game)


async def test_the_game_is_a_task_that_ends() -> None:
    game = Game.create(5, seed=1)
    await game.play()
    events = await game.swarm._runtime.read_events(game.task_id)
    assert events[-1].event == "task_complete"
    assert "has won" in json.loads(str(events[-1].data))["response"]
    await game.shutdown()


# ------------------------------------------------------------------------------------------------- the secrets


def letters(history: History) -> list[tuple[str, str, bool]]:
    heard = [heard for hearing in read_hearings(history) for heard in hearing.heard]
    return [(each.sender, each.text, each.is_public) for each in heard if each.sender != "mafia"]


def may_hear(name: str, said: Said) -> bool:
    return said.speaker != name and (said.is_public or name in said.audience)


def last_words(game: Game, name: str) -> int:
    return max((n for n, said in enumerate(game.transcript) if said.speaker == name), default=0)


@pytest.mark.parametrize("seed", SEEDS[:2])
async def test_each_has_heard_what_was_said_to_them_and_nothing_else(seed: int) -> None:
    game, histories = await play(7, seed)
    for player in game.players:
        read_by_then = game.transcript[: last_words(game, player.name)]
        expected = [
            (said.speaker, said.text, said.is_public) for said in read_by_then if may_hear(player.name, said)
        ]
        assert letters(histories[player.name]) == expected


@pytest.mark.parametrize("seed", SEEDS[:2])
async def test_villagers_hear_nothing_in_private(seed: int) -> None:
    game, histories = await play(7, seed)
    for player in game.players:
        private = [text for _, text, is_public in letters(histories[player.name]) if not is_public]
        match player.role.name:
            case "Villager" | "Doctor":
                assert private == []
                assert "<private>" not in str(histories[player.name])
            case "Detective":
                assert all(re.fullmatch(r"\w+ is (not )?Mafia\.", text) for text in private)
            case "Mafia":
                assert private[0].startswith("[PRIVATE] You are not alone.")
                assert all(KILLS.search(text) for text in private[1:])


async def test_roles_are_told_only_to_those_who_have_them() -> None:
    """Before the first night nobody but the Mafia has been told anything."""
    game = Game.create(7, seed=2)
    await game.start()
    for player in game.players:
        await game.step_agent(player.name, broadcast=True, payload="Speak.")
    runtime = game.swarm._runtime
    key = TaskKey(str(runtime.principal), game.task_id)
    for player in game.players:
        history = str(await read_history(runtime.engine.store, key, player.name))
        told = "The Mafia is: " in history
        assert told is (player.role is MAFIA)
        assert "has died and was" not in history
    await game.shutdown()


# -------------------------------------------------------------------------------------------- language models


@pytest.mark.soak
@pytest.mark.parametrize("seed", [3])
async def test_models_play_the_same_game(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Real factories and litellm, and a provider whose models follow our rules: not a word differs."""
    by_rules = Game.create(7, seed=seed)
    await by_rules.run()
    luck = by_rules.players[0].seed
    with models(monkeypatch, luck) as stub:
        game = Game.create(7, [MODEL], seed=seed)
        await game.run()
    await close_clients()
    assert game.transcript == by_rules.transcript
    assert game.winner is by_rules.winner
    asked = {speaker(request) for request in stub.requests}
    assert asked == {"Narrator", *(player.name for player in game.players)} - never_asked(game)
    for request in stub.requests:
        name = speaker(request)
        if name != "Narrator":
            assert_knows_only_its_own(game, name, json.dumps(request.body))


def never_asked(game: Game) -> set[str]:
    return {player.name for player in game.players} - {said.speaker for said in game.transcript}


def assert_knows_only_its_own(game: Game, name: str, sent: str) -> None:
    player = game.get_player_by_name(name)
    assert f"Your secret role is: {player.role.name}." in sent
    others: list[Agent] = [other for other in game.players if other is not player]
    assert not any(other.persona.character in sent for other in others)
    for said in game.transcript:
        if said.speaker != name and not said.is_public and name not in said.audience:
            assert said.text not in said_by(sent, said.speaker)


def said_by(sent: str, speaker: str) -> list[str]:
    return re.findall(rf">{speaker}</from>.*?<body>(.*?)</body>", sent)


async def test_each_player_draws_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    game = Game.create(12, ["openai/gpt-5-mini", "anthropic/claude-haiku-4-5"], seed=1)
    assert {player.llm for player in game.players} == {"openai/gpt-5-mini", "anthropic/claude-haiku-4-5"}
    assert game.narrator_llm == "openai/gpt-5-mini"
    assert game._model_of("Narrator")[0] == "openai/gpt-5-mini"
    for player in game.players:
        llm, system = game._model_of(player.name)
        assert llm == player.llm
        assert system is not None
        assert f"You are {player.name}." in system
    await game.shutdown()


# ------------------------------------------------------------------------------------------------- a human


async def test_a_human_looks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def answer(prompt: str) -> str:
        shown.append(prompt)
        return "Whisper." if "Celia" in prompt else ""

    monkeypatch.setattr("builtins.input", answer)
    game = Game.create(7, seed=3)
    game.interactive = True
    await game.start()
    assert "Welcome to the village" in shown[0]
    response = await game.step_agent("Celia", targets=["Jonas"], payload="Speak.")
    assert response.message.body
    key = TaskKey(str(game.swarm._runtime.principal), game.task_id)
    history = await read_history(game.swarm._runtime.engine.store, key, "Celia")
    assert "Speak.\nWhisper.</instructions>" in str(history[-2]["content"])
    await game.shutdown()
