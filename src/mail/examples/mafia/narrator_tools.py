"""The narrator's tools: each records one choice of a player, and so changes the game.

A tool is a pydantic model of its arguments and an async function of the game and these arguments; `partial` binds the
game. Only the narrator sees a tool's result, or the text of the `NarratorError` that it raises.
"""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, Field

from mail.api.actions import MAILAction
from mail.errors import ToolCallFault
from mail.examples.mafia.phrases import NOBODY, finding
from mail.examples.mafia.players import Agent
from mail.examples.mafia.roles import MAFIA, Team
from mail.examples.mafia.state import GamePhase, GameState


class NarratorError(ToolCallFault):
    """The tool can't be used with these arguments, or not now."""


class DoctorProtectArgs(BaseModel):
    """Record whom the Doctor protects tonight."""

    target_name: str = Field(description="The player to protect")


class DetectiveInvestigateArgs(BaseModel):
    """Record whom the Detective investigates, and learn what they are."""

    target_name: str = Field(description="The player to investigate")


class MafiaVoteKillArgs(BaseModel):
    """Record whom a member of the Mafia votes to kill."""

    mafia_name: str = Field(description="The member of the Mafia who votes")
    target_name: str = Field(description="The player to kill")


class RecordNominationArgs(BaseModel):
    """Record whom a player nominates for trial."""

    player_name: str = Field(description="The player who nominates")
    target_name: str = Field(description=f"The player who is nominated, or '{NOBODY}'")


class RecordVerdictArgs(BaseModel):
    """Record how a player votes at the trial."""

    player_name: str = Field(description="The player who votes")
    guilty: bool = Field(description="Whether they vote guilty")


async def doctor_protect(game: GameState, args: dict[str, Any]) -> str:
    """Record the doctor's choice."""
    _require(game, GamePhase.NIGHT)
    target = _living(game, args["target_name"]).name
    if target == game.protected_before:
        raise NarratorError(f"{target} was protected last night; the doctor must choose somebody else")
    game.protected_player = target
    return f"The doctor protects {target} tonight."


async def detective_investigate(game: GameState, args: dict[str, Any]) -> str:
    """Record the detective's choice; return the finding, which the narrator reports to the detective."""
    _require(game, GamePhase.NIGHT)
    target = _living(game, args["target_name"])
    game.investigated.append(target.name)
    return finding(target.name, target.role.team is Team.MAFIA)


async def mafia_vote_kill(game: GameState, args: dict[str, Any]) -> str:
    """Record a vote of the Mafia; a second vote replaces the first."""
    _require(game, GamePhase.NIGHT)
    voter, target = _living(game, args["mafia_name"]), _living(game, args["target_name"])
    if voter.role is not MAFIA:
        raise NarratorError(f"{voter.name} has no vote at night")
    if target.role is MAFIA:
        raise NarratorError("the Mafia does not kill its own")
    game.kill_votes[voter.name] = target.name
    return f"{voter.name} votes to kill {target.name}."


async def record_nomination(game: GameState, args: dict[str, Any]) -> str:
    """Record a player's nomination, or that there is none."""
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


async def record_verdict(game: GameState, args: dict[str, Any]) -> str:
    """Record a player's vote on the accused."""
    _require(game, GamePhase.TRIAL)
    voter = _living(game, args["player_name"])
    if voter.name == game.accused:
        raise NarratorError(f"{voter.name} is the accused, and has no vote")
    game.verdicts[voter.name] = args["guilty"]
    return f"{voter.name} votes {'guilty' if args['guilty'] else 'innocent'}."


TOOLS: Mapping[type[BaseModel], Callable[[GameState, dict[str, Any]], Coroutine[Any, Any, str]]] = {
    DoctorProtectArgs: doctor_protect,
    DetectiveInvestigateArgs: detective_investigate,
    MafiaVoteKillArgs: mafia_vote_kill,
    RecordNominationArgs: record_nomination,
    RecordVerdictArgs: record_verdict,
}
"""The tools by the models of their arguments."""


def get_narrator_actions(game: GameState) -> list[MAILAction]:
    """Return the narrator's tools, for this game."""
    return [
        MAILAction.from_pydantic_model(model=model, function=partial(function, game), name=function.__name__)
        for model, function in TOOLS.items()
    ]


def _require(game: GameState, phase: GamePhase) -> None:
    if game.phase is not phase:
        raise NarratorError(f"not now: this belongs to the {phase.value}, and it is {game.phase.value}")


def _living(game: GameState, name: str) -> Agent:
    player = game.get_player_by_name(name)
    if not player.is_alive:
        raise NarratorError(f"{player.name} is dead")
    return player
