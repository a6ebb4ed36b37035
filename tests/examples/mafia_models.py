"""Language models that play Mafia: the rules of `mail.examples.mafia`, behind the wire of a provider.

What they know is what was sent to the provider, and nothing else.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.services.llm_stub import LLMStub, Request, call, reply, text

from mail.core.task.swarm import History
from mail.examples.mafia.hearings import read_hearings
from mail.examples.mafia.narrator import RuleBasedNarrator
from mail.examples.mafia.players import RuleBasedPlayer

MODEL = "openai/gpt-5-mini"


@contextmanager
def models(monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[LLMStub]:
    """A provider of models that play by rules, with this seed for what they leave to chance."""
    with LLMStub() as stub:
        for name, value in stub.environ.items():
            monkeypatch.setenv(name, value)
        stub.otherwise = lambda request: _answer(request, seed)
        yield stub
        assert stub.complaints == []


def speaker(request: Request) -> str:
    """Whose step a request is."""
    found = re.match(r"You play Mafia\. You are (\w+)\.", request.body["instructions"])
    return found[1] if found else "Narrator"


def _answer(request: Request, seed: int) -> Any:
    name, history = speaker(request), request.body["input"]
    return (
        _narrate(history) if name == "Narrator" else reply(text(RuleBasedPlayer(name, seed).answer(history)))
    )


def _narrate(history: History) -> Any:
    narrator = RuleBasedNarrator("Narrator")
    *_, hearing = read_hearings(history)
    if uses := narrator.uses(hearing):
        return reply(*(call(tool, **arguments) for tool, arguments in uses))
    return reply(text(narrator.words(hearing, history) or "Done."))
