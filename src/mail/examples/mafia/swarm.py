"""The swarm of a game: a narrator with tools, and the players."""

from typing import TYPE_CHECKING

from mail.api.agents import MAILAgentTemplate
from mail.api.swarms import MAILSwarmTemplate
from mail.examples.mafia.narrator import RuleBasedNarrator
from mail.examples.mafia.narrator_tools import get_narrator_actions
from mail.examples.mafia.phrases import NARRATOR
from mail.examples.mafia.prompts import create_narrator_system_prompt
from mail.factories import LiteLLMSupervisorFunction

if TYPE_CHECKING:
    from mail.examples.mafia.game import Game


def build_narrator_template(game: "Game", player_names: list[str]) -> MAILAgentTemplate:
    """The narrator, whose tools change this game: a language model if the game has one for it, else rules."""
    params = {"llm": game.narrator_llm, "system": create_narrator_system_prompt()}
    return MAILAgentTemplate(
        name=NARRATOR,
        factory=LiteLLMSupervisorFunction if game.narrator_llm else RuleBasedNarrator,
        comm_targets=player_names,
        actions=get_narrator_actions(game),
        agent_params=params if game.narrator_llm else {},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )


def build_agent_swarm(agents: list[MAILAgentTemplate]) -> MAILSwarmTemplate:
    """The swarm of a game: its players and the narrator, who is the entrypoint."""
    return MAILSwarmTemplate(
        name="mafia",
        agents=agents,
        actions=[action for agent in agents for action in agent.actions],
        entrypoint=NARRATOR,
    )
