"""What a line can go on with."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from mail.cli.repl.arguments import Argument, Command, Completes, UsageError
from mail.cli.repl.commands import COMMANDS, find, names
from mail.cli.repl.session import Session
from mail.cli.repl.words import scan, split


class Candidate(NamedTuple):
    """A word, and what it means."""

    word: str
    meaning: str = ""


def candidates(before: str, session: Session) -> tuple[str, list[Candidate]]:
    """The beginning of a word at the end of what is typed, and the words that it may become."""
    if scan(before).quote:
        return "", []
    words = split(before)
    begun = "" if not before or before[-1].isspace() else words.pop()
    found = _after(words, begun, session) if words else _commands()
    return begun, [each for each in found if each.word.startswith(begun)]


def _commands() -> Iterator[Candidate]:
    for command in COMMANDS:
        yield Candidate(command.name, command.summary)
        for name in command.also:
            yield Candidate(name, command.summary)


def _after(words: list[str], begun: str, session: Session) -> Iterator[Candidate]:
    try:
        command = find(words[0])
    except UsageError:
        return
    flags = {name: argument for argument in command.arguments for name in argument.names if argument.is_flag}
    last = flags.get(words[-1])
    if last is not None and last.takes_value:
        yield from _values(last, session)
        return
    if begun.startswith("-"):
        yield from (Candidate(name, argument.help) for name, argument in flags.items() if name not in words)
        return
    place = _next_place(command, words[1:], flags)
    if place is not None:
        yield from _values(place, session)


def _next_place(command: Command, words: Iterable[str], flags: dict[str, Argument]) -> Argument | None:
    """The positional argument that comes next."""
    places = [argument for argument in command.arguments if not argument.is_flag]
    is_value = False
    for word in words:
        if not is_value and word not in flags and places:
            places.pop(0)
        is_value = not is_value and word in flags and flags[word].takes_value
    return places[0] if places else None


def _values(argument: Argument, session: Session) -> Iterator[Candidate]:
    match argument.completes:
        case Completes.TASK:
            yield from (Candidate(task_id) for task_id in reversed(session.tasks))
        case Completes.AGENT:
            yield from (Candidate(agent) for agent in sorted(session.agents))
        case Completes.COMMAND:
            yield from (Candidate(name) for name in names())
        case Completes.NOTHING | Completes.SECRET:
            yield from (Candidate(choice) for choice in argument.settings.get("choices", ()))


class LineCompleter(Completer):
    """`candidates`, for prompt_toolkit."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        begun, found = candidates(document.text_before_cursor, self._session)
        for candidate in found:
            yield Completion(candidate.word, -len(begun), display_meta=candidate.meaning)
