"""Play a game of Mafia in the terminal."""

import argparse
import asyncio
import random
import sys

from rich.console import Console
from rich.text import Text

from mail.errors import MAILError
from mail.examples.mafia.game import Game, Said
from mail.examples.mafia.roles import MAX_PLAYERS, MIN_PLAYERS


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m mail.examples.mafia", description=__doc__)
    parser.add_argument(
        "--players", type=int, default=7, metavar="N", help=f"{MIN_PLAYERS} to {MAX_PLAYERS}; default: 7"
    )
    parser.add_argument("--seed", type=int, help="replay the same game; only without models")
    parser.add_argument(
        "--llm",
        action="append",
        metavar="MODEL",
        help="a model plays, such as openai/gpt-5-mini; repeat for more",
    )
    parser.add_argument("--public", action="store_true", help="show only public messages")
    parser.add_argument("--interactive", action="store_true", help="stop before each step")
    return parser.parse_args()


def show(console: Console, said: Said) -> None:
    """Print a message; a private one is dim, with its recipients."""
    audience = "" if said.is_public else f" → {', '.join(said.audience)}"
    line = Text(f"{said.speaker}{audience}: ", style="bold" if said.is_public else "dim bold")
    line.append(said.text, style="not bold" if said.is_public else "dim not bold")
    console.print(line, soft_wrap=True)


async def play(arguments: argparse.Namespace, console: Console) -> None:
    seed = arguments.seed if arguments.seed is not None else random.randrange(10**6)  # noqa: S311 - a game
    game = Game.create(arguments.players, arguments.llm, seed=seed)
    game.interactive = arguments.interactive
    shown = None

    def print_said(said: Said) -> None:
        nonlocal shown
        if arguments.public and not said.is_public:
            return
        if shown != (shown := (said.day_number, said.phase)):
            console.print(f"\n── {said.phase.value} {said.day_number} ──", style="cyan")
        show(console, said)

    game.on_said = print_said
    winner = await game.run()
    console.print(f"\nThe {winner} wins. (seed {seed})", style="bold green")


def main() -> int:
    """Play a game; print the error if one occurs."""
    console = Console(highlight=False, markup=False)
    try:
        asyncio.run(play(read_arguments(), console))
    except MAILError as error:
        print(error.detail, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
