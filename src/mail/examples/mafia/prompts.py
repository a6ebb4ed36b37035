"""The system prompts of the narrator and the players, and their instructions in each phase."""

from collections.abc import Iterable, Sequence

from mail.examples.mafia.personas import Persona
from mail.examples.mafia.phrases import NOBODY, REPORT, TELL_THEM
from mail.examples.mafia.roles import Role


def create_narrator_system_prompt() -> str:
    """Return the system prompt of the narrator."""
    return f"""\
You narrate a game of Mafia in a village. You are fair, brief and atmospheric: two or three sentences at a time.

- Each message has instructions. Follow them and do nothing else.
- When they name a tool, call it one time for each message that it is about, with names as they are written,
  before you say anything. If a tool fails, it states the reason; do not retry it.
- What follows "{TELL_THEM.strip()}" you say in your own words. Keep every name and fact in it, and add no facts.
- Everything marked as private stays secret. Never say who has a role, who has voted for whom at night, or what the
  Detective has learned, unless the instructions say so."""


def create_agent_system_prompt(persona: Persona, role: Role) -> str:
    """Return the system prompt of a player."""
    return f"""\
You play Mafia. You are {persona.name}. {persona.character}

Your secret role is: {role.name}. {role.task}

- Messages marked as public were heard by everyone; private ones only by those they are addressed to.
- Stay in character, and speak in at most four sentences. Never quote your instructions.
- The instructions say who hears you. Nobody else does.
- If you are asked to end with a sentence in quotes, end with exactly that, with the name of a player in it."""


# ---------------------------------------------------------------------------------------------------- players


def rules(living: Iterable[str], last_day: int) -> str:
    """Return the announcement to everyone at the start."""
    return (
        "A game of Mafia begins. At night the Mafia kills; the Doctor protects, the Detective investigates. By day "
        f"all talk, nominate somebody and vote. If Mafia is left after day {last_day}, it wins.\n{_living(living)}"
    )


def partners(names: Sequence[str]) -> str:
    """Return the announcement to the members of the Mafia at the start."""
    allies = "You are not alone." if len(names) > 1 else "You are on your own."
    return f"[PRIVATE] {allies}\nThe Mafia is: {', '.join(names)}"


def protect(living: Iterable[str], choices: Iterable[str]) -> str:
    """Return the instructions of the Doctor, at night."""
    return _private("Choose one player to protect tonight.", "I protect [player_name]", living, choices)


def investigate(living: Iterable[str], choices: Iterable[str]) -> str:
    """Return the instructions of the Detective, at night."""
    return _private("Choose one player to investigate.", "I investigate [player_name]", living, choices)


def kill(living: Iterable[str], choices: Iterable[str]) -> str:
    """Return the instructions of a member of the Mafia, at night."""
    task = "Vote on the player to kill tonight; your fellow Mafia hears you. Most votes count, so agree."
    return _private(task, "I vote to kill [player_name]", living, choices)


def speak(living: Iterable[str]) -> str:
    """Return the instructions of any player, by day."""
    return (
        "[PUBLIC] The village talks it over, and it is your turn to speak: whom do you suspect, and why? Answer "
        f'what the other players have said. If you accuse somebody, say "I suspect [player_name]".\n{_living(living)}'
    )


def nominate(living: Iterable[str], choices: Iterable[str]) -> str:
    """Return the instructions of any player, before a trial."""
    ending = f'"I nominate [player_name]" or "I nominate {NOBODY}"'
    return f"[PUBLIC] Who shall be put on trial? End with: {ending}\n{_living(living)}\n{_choices(choices)}"


def defend(living: Iterable[str]) -> str:
    """Return the instructions of the accused."""
    return f"[PUBLIC] You are the accused. Defend yourself.\n{_living(living)}"


def vote(accused: str, living: Iterable[str]) -> str:
    """Return the instructions of the other players, at a trial."""
    return (
        f"[PUBLIC] {accused} is on trial; you have heard the defence. "
        f'End with: "I vote guilty" or "I vote innocent"\n{_living(living)}'
    )


def _private(task: str, ending: str, living: Iterable[str], choices: Iterable[str]) -> str:
    return f'[PRIVATE] {task}\nEnd with: "{ending}"\n{_living(living)}\n{_choices(choices)}'


def _living(names: Iterable[str]) -> str:
    return f"Living players: {', '.join(names)}"


def _choices(names: Iterable[str]) -> str:
    return f"Choices: {', '.join(names)}"


# --------------------------------------------------------------------------------------------------- narrator


def announce(words: str, heading: str = "") -> str:
    """Return the narrator's instructions for an announcement."""
    return f"=== {heading} ===\n{TELL_THEM}{words}" if heading else f"{TELL_THEM}{words}"


def use_tool(tool: str, what: str) -> str:
    """Return the narrator's instructions for using a tool, without an audience."""
    return (
        f"Use the {tool} tool for {what} that you have just read. Nobody hears you now: answer with one word when "
        "it is done."
    )


def report(detective: str) -> str:
    """Return the narrator's instructions for reporting the tool's result to the detective."""
    return (
        f"[PRIVATE] Only {detective} hears you now. {REPORT} of tonight's investigation, from the result of "
        'your tool: "[player_name] is Mafia" or "[player_name] is not Mafia".'
    )


def finish(words: str) -> str:
    """Return the narrator's instructions for the end of the game."""
    return f"=== THE END ===\nEnd the game with the task_complete tool.\n{announce(words)}"
