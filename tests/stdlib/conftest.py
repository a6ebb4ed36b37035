"""What the tests of the catalogue share.

This folder must never get an `__init__.py`: see tests/http/conftest.py.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mail import MAILAction
from mail.core.turns.context import TURN, CurrentCall, TurnContext, idempotency_key
from mail.errors import MAILError

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set up but what a test sets up."""
    for name in ("MAIL_STDLIB_HTTP_ALLOW_PRIVATE", "MAIL_STDLIB_FS_ROOT", "MAIL_MCP_SERVERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def private_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_STDLIB_HTTP_ALLOW_PRIVATE", "true")


@pytest.fixture
def in_call() -> Iterator[str]:
    """As if the engine ran a tool call; its idempotency key."""
    token = TURN.set(TurnContext(call=CurrentCall(id="call_7", place="called 0")))
    yield idempotency_key()
    TURN.reset(token)


@pytest.fixture
def run() -> Run:
    """Runs an action as an agent's call would; returns its JSON, read."""

    async def run(action: MAILAction, **arguments: Any) -> Any:
        return json.loads(await action(arguments))

    return run


@pytest.fixture
def told() -> Run:
    """Runs an action that must fail as `kind`; returns the error that the agent gets."""

    async def told(kind: type[MAILError], action: MAILAction, **arguments: Any) -> str:
        with pytest.raises(kind) as caught:
            await action(arguments)
        assert type(caught.value) is kind
        return str(caught.value)

    return told
