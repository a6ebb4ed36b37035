"""A game of Mafia in manual mode: the order of the steps, their instructions and their audience.

    night       Doctor, Detective and Mafia choose in private; the narrator records it with its tools
    discussion  everyone speaks
    nomination  everyone names somebody for trial, or nobody
    trial       the accused speaks, the other players vote

The narrator and the players are agents of one swarm, and each sees only its own mail. The game is the same for
language models and for players without one, who choose by chance.
"""

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from mail.api.agents import MAILAgentTemplate
from mail.api.swarms import MAILSwarm, MAILSwarmTemplate
from mail.core.decisions.manual import ResponseType
from mail.core.protocol.message import MAILMessage
from mail.errors import BadRequest
from mail.examples.mafia import prompts
from mail.examples.mafia.narrator import RuleBasedNarrator
from mail.examples.mafia.narrator_tools import get_narrator_actions
from mail.examples.mafia.personas import PERSONAS
from mail.examples.mafia.phrases import NARRATOR, death
from mail.examples.mafia.players import Agent
from mail.examples.mafia.prompts import create_agent_system_prompt, create_narrator_system_prompt
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, Team, calculate_roles
from mail.examples.mafia.state import GamePhase, GameState
from mail.factories import LiteLLMSupervisorFunction

__all__ = ["Agent", "Game", "GamePhase", "Said", "build_agent_swarm", "build_narrator_template"]

GAME_MASTER = "MafiaGame"
"""The user who plays the game and writes the first message."""

NARRATOR_CONTEXT = 0.75
"""Share of its model's context window that the narrator's history may fill, as it hears everything."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message and its audience: names, or `all` alone."""

    speaker: str
    audience: tuple[str, ...]
    text: str
    phase: GamePhase
    day_number: int

    @property
    def is_public(self) -> bool:
        """Whether everyone receives it."""
        return self.audience == ("all",)


@dataclass
class Game(GameState):
    """A game, played by the agents of a swarm.

    Attributes:
        task_id: the id of the game's task.
        interactive: whether a human sees each step before it is taken, and may add to its instructions.
        on_said: called with each message.
        transcript: all messages so far.
        winner: None until the game is over.
    """

    _swarm: MAILSwarm | None = None
    task_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    interactive: bool = False
    on_said: Callable[[Said], None] | None = None
    transcript: list[Said] = field(default_factory=list)
    winner: Team | None = None
    _running: asyncio.Task[None] | None = None

    @classmethod
    def create(cls, n: int, valid_llms: Sequence[str] | None = None, *, seed: int | None = None) -> Self:
        """Create a game of `n` players; requires a running event loop.

        Args:
            valid_llms: the models that play, drawn for each player; the first one narrates. None for rules.
            seed: seed of all random choices: roles, models, and those of the rules.

        Raises BadRequest for too few or too many players.
        """
        chance = random.Random(seed)  # noqa: S311 - a game
        roles = calculate_roles(n)
        chance.shuffle(roles)
        luck = chance.getrandbits(32)
        players = [
            Agent(persona, role, chance.choice(valid_llms) if valid_llms else None, luck)
            for persona, role in zip(chance.sample(PERSONAS, n), roles, strict=True)
        ]
        game = cls(players, narrator_llm=valid_llms[0] if valid_llms else None)
        agents = [player.build_agent_template() for player in players]
        agents.append(build_narrator_template(game, game.living()))
        game._swarm = build_agent_swarm(agents).instantiate({"user_token": "dummy"}, GAME_MASTER)
        game._running = asyncio.create_task(game.swarm.run_continuous(mode="manual"))
        return game

    @property
    def swarm(self) -> MAILSwarm:
        """The swarm that plays. Raises BadRequest for a game that was not made by `create`."""
        if self._swarm is None:
            raise BadRequest("this game has no swarm: make it with Game.create()")
        return self._swarm

    # --------------------------------------------------------------------------------------------- the whole

    async def run(self) -> Team:
        """Play the whole game and shut the swarm down; return the winner."""
        try:
            return await self.play()
        finally:
            await self.shutdown()

    async def play(self) -> Team:
        """Play from the beginning to the end; return the winner."""
        await self.start()
        while self.winner is None:
            await self.run_night_phase()
            if self.winner is None:
                await self.run_day_phase()
        await self.end()
        return self.winner

    async def start(self) -> None:
        """Start the task: announce the players to everyone, and the Mafia to its members."""
        await self._announce(prompts.rules(self.living(), self.last_day), ["all"])
        mafia = [member.name for member in self.get_mafia_members()]
        await self._announce(prompts.partners(mafia), mafia, speaker=NARRATOR)
        await self.step_narrator(
            prompts.announce("Welcome to the village. It looks peaceful, and it is not.")
        )

    async def end(self) -> None:
        """Let the narrator announce the winner and all roles, and complete the task."""
        self.phase = GamePhase.GAME_OVER
        roles = ", ".join(f"{player.name} ({player.role.name})" for player in self.players)
        await self.step_narrator(prompts.finish(f"The {self.winner} has won. These were: {roles}."))

    async def shutdown(self) -> None:
        """Stop the swarm."""
        await self.swarm.shutdown()
        if self._running is not None:
            await self._running

    # --------------------------------------------------------------------------------------------- the night

    async def run_night_phase(self) -> None:
        """Let those with a role act, each in private; then announce the victim."""
        self.begin_night()
        n = self.day_number
        await self.step_narrator(
            prompts.announce(f"Night {n} falls. Everyone closes their eyes.", heading=f"NIGHT {n}")
        )
        await self._doctor_acts()
        await self._detective_acts()
        await self._mafia_acts()
        victim = self.resolve_night_actions()
        result = f"{self._obituary(victim)} It was the Mafia." if victim else "Nobody has died tonight."
        await self.step_narrator(prompts.announce(f"The sun rises on day {n}. {result}", heading=f"DAY {n}"))
        self.winner = self.check_winner()

    async def _doctor_acts(self) -> None:
        if doctor := self.get_alive(DOCTOR):
            choices = self.living(but=[self.protected_before])
            await self.step_agent(doctor.name, payload=prompts.protect(self.living(), choices))
            await self._record("doctor_protect", "the Doctor's choice")

    async def _detective_acts(self) -> None:
        if detective := self.get_alive(DETECTIVE):
            choices = self.living(but=[detective.name])
            await self.step_agent(detective.name, payload=prompts.investigate(self.living(), choices))
            await self._record("detective_investigate", "the Detective's choice")
            await self._step_narrator_for([detective.name], prompts.report(detective.name))

    async def _mafia_acts(self) -> None:
        mafia = [member.name for member in self.get_mafia_members()]
        payload = prompts.kill(self.living(), self.living(but=mafia))
        for name in mafia:
            partners = [partner for partner in mafia if partner != name]
            await self.step_agent(name, targets=[NARRATOR, *partners], payload=payload)
        await self._record("mafia_vote_kill", "each vote of the Mafia")

    # ----------------------------------------------------------------------------------------------- the day

    async def run_day_phase(self) -> None:
        """Let the village talk, and perhaps execute somebody."""
        await self.run_discussion()
        if await self.run_nominations() is not None:
            await self.run_trial()
        self.day_number += 1
        self.winner = self.check_winner()

    async def run_discussion(self) -> None:
        """Let everyone speak one time; each day another player begins."""
        self.phase = GamePhase.DISCUSSION
        names = self.living()
        first = self.day_number % len(names)
        for name in names[first:] + names[:first]:
            await self.step_agent(name, broadcast=True, payload=prompts.speak(names))

    async def run_nominations(self) -> str | None:
        """Let everyone nominate somebody or nobody; return the accused."""
        self.begin_nominations()
        for name in self.living():
            payload = prompts.nominate(self.living(), self.living(but=[name]))
            await self.step_agent(name, broadcast=True, payload=payload)
        await self._record("record_nomination", "each nomination")
        accused = self.resolve_nominations()
        result = f"{accused} is on trial." if accused else "There is no trial today: too few agree."
        await self.step_narrator(prompts.announce(result))
        return accused

    async def run_trial(self) -> None:
        """Let the accused speak, and the other players vote."""
        assert self.accused is not None
        self.begin_trial()
        await self.step_agent(self.accused, broadcast=True, payload=prompts.defend(self.living()))
        for name in self.living(but=[self.accused]):
            payload = prompts.vote(self.accused, self.living())
            await self.step_agent(name, broadcast=True, payload=payload)
        await self._record("record_verdict", "each vote of the trial")
        guilty, innocent = self.count_verdicts()
        votes = f"{guilty} have voted guilty, {innocent} innocent."
        fate = self._obituary(self.accused) if self.resolve_trial() else f"{self.accused} goes free."
        await self.step_narrator(prompts.announce(f"{votes} {fate}"))

    def _obituary(self, name: str) -> str:
        return death(name, self.get_player_by_name(name).role)

    # --------------------------------------------------------------------------------------------- the steps

    async def step_narrator(self, payload: str = "") -> MAILMessage:
        """Let the narrator speak to everyone."""
        return await self._step(NARRATOR, ["all"], "broadcast", payload)

    async def step_agent(
        self, agent_name: str, broadcast: bool = False, targets: list[str] | None = None, payload: str = ""
    ) -> MAILMessage:
        """Let a player speak: to everyone, or in private to `targets`, by default to the narrator."""
        if broadcast:
            return await self._step(agent_name, ["all"], "broadcast", payload)
        return await self._step(agent_name, targets or [NARRATOR], "response", payload)

    async def _step_narrator_for(self, names: list[str], payload: str) -> MAILMessage:
        return await self._step(NARRATOR, names, "response", payload)

    async def _record(self, tool: str, what: str) -> None:
        """Let the narrator use a tool without an audience, as its mail may be secret."""
        await self._step_narrator_for([NARRATOR], prompts.use_tool(tool, what))

    async def _step(
        self, name: str, targets: list[str], response_type: ResponseType, payload: str
    ) -> MAILMessage:
        payload += self._interactive_wait(name, payload)
        llm, system = self._model_of(name)
        response = await self.swarm.manual_step(
            task_id=self.task_id,
            target=name,
            response_targets=targets,
            response_type=response_type,
            payload=payload,
            dynamic_ctx_ratio=NARRATOR_CONTEXT if name == NARRATOR else 0.0,
            _llm=llm,
            _system=system,
        )
        if targets != [name]:
            self._note(name, targets, response["message"]["body"])
        return response

    def _model_of(self, name: str) -> tuple[str | None, str | None]:
        """Return the model and the system prompt of a speaker; none for rules."""
        if name == NARRATOR:
            return self.narrator_llm, create_narrator_system_prompt() if self.narrator_llm else None
        player = self.get_player_by_name(name)
        system = create_agent_system_prompt(player.persona, player.role) if player.llm else None
        return player.llm, system

    async def _announce(self, text: str, names: list[str], *, speaker: str = GAME_MASTER) -> None:
        """Send a message without a step of an agent."""
        message = self.swarm.build_message(
            subject="::init::",
            body=text,
            targets=names,
            sender_type="user" if speaker == GAME_MASTER else "agent",
            type="broadcast",
            task_id=self.task_id,
            sender=speaker,
        )
        await self.swarm.submit_message_nowait(message)
        self._note(speaker, names, text)

    def _note(self, speaker: str, names: list[str], text: str) -> None:
        said = Said(speaker, tuple(names), text, self.phase, self.day_number)
        self.transcript.append(said)
        if self.on_said is not None:
            self.on_said(said)

    def _interactive_wait(self, agent_name: str, payload: str) -> str:
        """Return the text that a human adds to the instructions of a step; empty unless interactive."""
        if not self.interactive:
            return ""
        extra = input(f"\nNext: {agent_name}\n{payload}\nAdd to this, or press Enter: ")
        return f"\n{extra}" if extra else ""


def build_narrator_template(game: GameState, player_names: list[str]) -> MAILAgentTemplate:
    """Return the template of the narrator, whose tools change this game: a language model, or rules."""
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
    """Return the template of a game's swarm: its players and the narrator, who is the entrypoint."""
    return MAILSwarmTemplate(
        name="mafia",
        agents=agents,
        actions=[action for agent in agents for action in agent.actions],
        entrypoint=NARRATOR,
    )
