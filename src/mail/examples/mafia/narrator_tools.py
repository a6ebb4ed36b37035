"""The narrator's tools: each writes one thing down that a player has chosen, and so changes the game.

A tool is a pydantic model of its arguments and an async function of the game and these arguments; `partial` binds the
game. What a tool returns, or the `NarratorError` that it raises, is told to the narrator and to nobody else.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from mail.api.actions import MAILAction
from mail.errors import ToolCallFault
from mail.examples.mafia.agents import Agent
from mail.examples.mafia.phrases import NOBODY, finding
from mail.examples.mafia.roles import MAFIA, Team
from mail.examples.mafia.state import GamePhase

if TYPE_CHECKING:
    from mail.examples.mafia.game import Game


class NarratorError(ToolCallFault):
    """The tool can't be used so, or not now."""


class DoctorProtectArgs(BaseModel):
    """Write down whom the Doctor protects tonight."""

    target_name: str = Field(description="The player to protect")


class DetectiveInvestigateArgs(BaseModel):
    """Write down whom the Detective investigates, and learn what they are."""

    target_name: str = Field(description="The player to investigate")


class MafiaVoteKillArgs(BaseModel):
    """Write down whom a member of the Mafia votes to kill."""

    mafia_name: str = Field(description="The member of the Mafia who votes")
    target_name: str = Field(description="The player to kill")


class RecordNominationArgs(BaseModel):
    """Write down whom a player nominates for trial."""

    player_name: str = Field(description="The player who nominates")
    target_name: str = Field(description=f"The player who is nominated, or '{NOBODY}'")


class RecordVerdictArgs(BaseModel):
    """Write down how a player votes at the trial."""

    player_name: str = Field(description="The player who votes")
    guilty: bool = Field(description="Whether they vote guilty")


async def doctor_protect(game: "Game", args: dict[str, Any]) -> str:
    """The doctor has chosen."""
    _require(game, GamePhase.NIGHT)
    target = _living(game, args["target_name"]).name
    if target == game.protected_before:
        raise NarratorError(f"{target} was protected last night; the doctor must choose somebody else")
    game.protected_player = target
    return f"The doctor protects {target} tonight."


async def detective_investigate(game: "Game", args: dict[str, Any]) -> str:
    """The detective has chosen; the narrator learns what to tell the detective."""
    _require(game, GamePhase.NIGHT)
    target = _living(game, args["target_name"])
    game.investigated.append(target.name)
    return finding(target.name, target.role.team is Team.MAFIA)


async def mafia_vote_kill(game: "Game", args: dict[str, Any]) -> str:
    """A member of the Mafia has voted; who votes again has changed their mind."""
    _require(game, GamePhase.NIGHT)
    voter, target = _living(game, args["mafia_name"]), _living(game, args["target_name"])
    if voter.role is not MAFIA:
        raise NarratorError(f"{voter.name} has no vote at night")
    if target.role is MAFIA:
        raise NarratorError("the Mafia does not kill its own")
    game.kill_votes[voter.name] = target.name
    return f"{voter.name} votes to kill {target.name}."


async def record_nomination(game: "Game", args: dict[str, Any]) -> str:
    """A player has nominated somebody, or nobody."""
    _require(game, GamePhase.NOMINATION)
    player = _living(game, args["player_name"])
    if args["target_name"].strip().casefold() == NOBODY:
        game.nominations.pop(player.name, None)
        return f"{player.name} nominates nobody."
    target = _living(game, args["target_name"])
    if target is player:
        raise NarratorError(f"{player.name} can't nominate themselves")
    game.nominations[player.name] = target.name
    return f"{player.name} nominates {target.name}."


async def record_verdict(game: "Game", args: dict[str, Any]) -> str:
    """A player has voted on the accused."""
    _require(game, GamePhase.TRIAL)
    voter = _living(game, args["player_name"])
    if voter.name == game.accused:
        raise NarratorError(f"{voter.name} is the accused, and has no vote")
    game.verdicts[voter.name] = args["guilty"]
    return f"{voter.name} votes {'guilty' if args['guilty'] else 'innocent'}."


def get_narrator_actions(game: "Game") -> list[MAILAction]:
    """The narrator's tools, for this game."""
    return [
        MAILAction.from_pydantic_model(
            model=DoctorProtectArgs, function=partial(doctor_protect, game), name="doctor_protect"
        ),
        MAILAction.from_pydantic_model(
            model=DetectiveInvestigateArgs,
            function=partial(detective_investigate, game),
            name="detective_investigate",
        ),
        MAILAction.from_pydantic_model(
            model=MafiaVoteKillArgs, function=partial(mafia_vote_kill, game), name="mafia_vote_kill"
        ),
        MAILAction.from_pydantic_model(
            model=RecordNominationArgs, function=partial(record_nomination, game), name="record_nomination"
        ),
        MAILAction.from_pydantic_model(
            model=RecordVerdictArgs, function=partial(record_verdict, game), name="record_verdict"
        ),
    ]


def _require(game: "Game", phase: GamePhase) -> None:
    if game.phase is not phase:
        raise NarratorError(f"not now: this belongs to the {phase.value}, and it is {game.phase.value}")


def _living(game: "Game", name: str) -> Agent:
    player = game.get_player_by_name(name)
    if not player.is_alive:
        raise NarratorError(f"{player.name} is dead")
    return player
