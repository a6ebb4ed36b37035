"""The rules of Mafia, and the narrator's tools, which change the state by them."""

from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from mail.errors import BadRequest, ToolCallFault
from mail.examples.mafia.game import Agent, Game, GamePhase, build_agent_swarm, build_narrator_template
from mail.examples.mafia.narrator_tools import (
    DetectiveInvestigateArgs,
    DoctorProtectArgs,
    MafiaVoteKillArgs,
    NarratorError,
    RecordNominationArgs,
    RecordVerdictArgs,
    doctor_protect,
    get_narrator_actions,
)
from mail.examples.mafia.personas import PERSONAS
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, MAFIA, VILLAGER, Role, Team, calculate_roles
from mail.examples.mafia.state import LAST_DAY

pytestmark = pytest.mark.fast

SEATS: dict[str, Role] = {
    "Ada": MAFIA,
    "Bruno": MAFIA,
    "Celia": DOCTOR,
    "Dario": DETECTIVE,
    "Edith": VILLAGER,
    "Felix": VILLAGER,
    "Greta": VILLAGER,
}


@pytest.fixture
def game() -> Game:
    personas = {persona.name: persona for persona in PERSONAS}
    return Game([Agent(personas[name], role) for name, role in SEATS.items()])


def kill(game: Game, *names: str) -> None:
    for name in names:
        game.get_player_by_name(name).is_alive = False


async def use(game: Game, tool: str, **arguments: Any) -> str:
    (action,) = (action for action in get_narrator_actions(game) if action.name == tool)
    return await action(arguments)


class TestRoles:
    @pytest.mark.parametrize("n", range(4, 17))
    def test_every_number_of_players(self, n: int) -> None:
        count = Counter(role.name for role in calculate_roles(n))
        assert count.total() == n
        assert count["Doctor"] == count["Detective"] == 1
        assert 1 <= count["Mafia"] < n - count["Mafia"]
        assert count["Villager"] >= 1

    @pytest.mark.parametrize("n", [-1, 0, 3, 17])
    def test_too_few_and_too_many(self, n: int) -> None:
        with pytest.raises(BadRequest, match=f"4 to 16 players, not {n}"):
            calculate_roles(n)

    def test_personas_differ(self) -> None:
        assert len({persona.name for persona in PERSONAS}) == len(PERSONAS) == 16


class TestWinner:
    @pytest.mark.parametrize(
        ("dead", "winner"),
        [
            ([], None),
            (["Ada"], None),
            (["Celia", "Dario"], None),
            (["Celia", "Dario", "Edith"], Team.MAFIA),
            (["Ada", "Celia", "Dario", "Edith"], None),
            (["Ada", "Celia", "Dario", "Edith", "Felix"], Team.MAFIA),
            (["Ada", "Bruno"], Team.TOWN),
            (["Ada", "Bruno", "Celia", "Dario", "Edith", "Felix"], Team.TOWN),
        ],
    )
    def test_by_who_lives(self, game: Game, dead: list[str], winner: Team | None) -> None:
        kill(game, *dead)
        assert game.check_winner() is winner

    def test_by_the_last_day(self, game: Game) -> None:
        game.day_number = LAST_DAY
        assert game.check_winner() is None
        game.day_number += 1
        assert game.check_winner() is Team.MAFIA
        kill(game, "Ada", "Bruno")
        assert game.check_winner() is Team.TOWN


class TestNight:
    async def test_of_two_it_is_the_first(self, game: Game) -> None:
        game.begin_night()
        await use(game, "mafia_vote_kill", mafia_name="Bruno", target_name="Greta")
        await use(game, "mafia_vote_kill", mafia_name="Ada", target_name="Edith")
        assert game.resolve_night_actions() == "Greta"

    async def test_who_votes_again_has_changed_their_mind(self, game: Game) -> None:
        game.begin_night()
        await use(game, "mafia_vote_kill", mafia_name="Ada", target_name="Greta")
        await use(game, "mafia_vote_kill", mafia_name="Ada", target_name="Edith")
        assert game.kill_votes == {"Ada": "Edith"}

    async def test_the_doctor_saves(self, game: Game) -> None:
        game.begin_night()
        assert await use(game, "doctor_protect", target_name="edith ") == "The doctor protects Edith tonight."
        await use(game, "mafia_vote_kill", mafia_name="Ada", target_name="Edith")
        assert game.resolve_night_actions() is None
        assert len(game.living()) == 7

    async def test_not_the_same_one_two_nights_in_a_row(self, game: Game) -> None:
        game.begin_night()
        await doctor_protect(game, {"target_name": "Edith"})
        game.begin_night()
        assert game.protected_player is None
        with pytest.raises(NarratorError, match="Edith was protected last night"):
            await doctor_protect(game, {"target_name": "Edith"})
        await doctor_protect(game, {"target_name": "Felix"})
        game.begin_night()
        await doctor_protect(game, {"target_name": "Edith"})
        assert game.protected_player == "Edith"

    async def test_nobody_votes(self, game: Game) -> None:
        game.begin_night()
        assert game.resolve_night_actions() is None

    async def test_the_detective_learns(self, game: Game) -> None:
        game.begin_night()
        assert await use(game, "detective_investigate", target_name="Ada") == "Ada is Mafia."
        assert await use(game, "detective_investigate", target_name="Celia") == "Celia is not Mafia."
        assert game.investigated == ["Ada", "Celia"]


class TestDay:
    async def test_a_trial_takes_two_nominations(self, game: Game) -> None:
        game.begin_nominations()
        await use(game, "record_nomination", player_name="Edith", target_name="Ada")
        await use(game, "record_nomination", player_name="Felix", target_name="Bruno")
        await use(game, "record_nomination", player_name="Greta", target_name="nobody")
        assert game.resolve_nominations() is None
        await use(game, "record_nomination", player_name="Greta", target_name="Bruno")
        assert game.resolve_nominations() == "Bruno"
        await use(game, "record_nomination", player_name="Greta", target_name="Nobody")
        assert game.resolve_nominations() is None

    @pytest.mark.parametrize(
        ("guilty", "innocent", "dies"), [(2, 1, True), (1, 1, False), (0, 0, False), (0, 3, False)]
    )
    async def test_verdicts(self, game: Game, guilty: int, innocent: int, dies: bool) -> None:
        game.begin_trial()
        game.accused = "Ada"
        voters = iter(game.living(but=["Ada"]))
        for is_guilty, votes in ((True, guilty), (False, innocent)):
            for _ in range(votes):
                await use(game, "record_verdict", player_name=next(voters), guilty=is_guilty)
        assert game.count_verdicts() == (guilty, innocent)
        assert game.resolve_trial() is dies
        assert game.get_player_by_name("Ada").is_alive is not dies


class TestTools:
    @pytest.mark.parametrize(
        ("phase", "tool", "arguments", "complaint"),
        [
            (GamePhase.TRIAL, "doctor_protect", {"target_name": "Ada"}, "not now: .*night, and it is trial"),
            (GamePhase.SETUP, "detective_investigate", {"target_name": "Ada"}, "not now"),
            (GamePhase.NIGHT, "record_nomination", {"player_name": "Ada", "target_name": "Edith"}, "not now"),
            (GamePhase.NIGHT, "record_verdict", {"player_name": "Ada", "guilty": True}, "not now"),
            (
                GamePhase.NIGHT,
                "doctor_protect",
                {"target_name": "Edit"},
                "not a player. Did you mean 'Edith'",
            ),
            (GamePhase.NIGHT, "doctor_protect", {"target_name": "Greta"}, "Greta is dead"),
            (GamePhase.NIGHT, "detective_investigate", {}, "target_name"),
            (
                GamePhase.NIGHT,
                "mafia_vote_kill",
                {"mafia_name": "Edith", "target_name": "Ada"},
                "Edith has no vote at night",
            ),
            (
                GamePhase.NIGHT,
                "mafia_vote_kill",
                {"mafia_name": "Ada", "target_name": "Bruno"},
                "does not kill its own",
            ),
            (
                GamePhase.NOMINATION,
                "record_nomination",
                {"player_name": "Ada", "target_name": "Ada"},
                "can't nominate themselves",
            ),
            (GamePhase.TRIAL, "record_verdict", {"player_name": "Felix", "guilty": True}, "has no vote"),
        ],
    )
    async def test_refuse(
        self, game: Game, phase: GamePhase, tool: str, arguments: dict[str, Any], complaint: str
    ) -> None:
        kill(game, "Greta")
        game.phase, game.accused = phase, "Felix"
        before = repr(game)
        with pytest.raises((ToolCallFault, BadRequest), match=complaint):
            await use(game, tool, **arguments)
        assert repr(game) == before

    def test_declarations(self, game: Game) -> None:
        declared = {action.name: action.parameters["required"] for action in get_narrator_actions(game)}
        models: dict[str, type[BaseModel]] = {
            "doctor_protect": DoctorProtectArgs,
            "detective_investigate": DetectiveInvestigateArgs,
            "mafia_vote_kill": MafiaVoteKillArgs,
            "record_nomination": RecordNominationArgs,
            "record_verdict": RecordVerdictArgs,
        }
        assert declared == {name: list(model.model_fields) for name, model in models.items()}

    def test_only_the_narrator_has_them(self, game: Game) -> None:
        agents = [player.build_agent_template() for player in game.players]
        swarm = build_agent_swarm([*agents, build_narrator_template(game, game.living())])
        assert swarm.entrypoint == "Narrator"
        assert [agent.name for agent in swarm.agents if agent.actions] == ["Narrator"]


def test_a_game_that_nobody_made(game: Game) -> None:
    with pytest.raises(BadRequest, match=r"make it with Game.create"):
        _ = game.swarm
