"""One stub of the providers and one litellm for all tests of this folder; each test begins with an empty script."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from support.llm_stub import LLMStub

from mail.factories import LiteLLMAgentFunction
from mail.factories.models import close_clients
from mail.factories.retry import RetryPolicy


@pytest.fixture(scope="session")
def _running_stub() -> Iterator[LLMStub]:
    with LLMStub() as stub:
        yield stub


@pytest.fixture(autouse=True)
def _quiet_server() -> Iterator[None]:
    """Broken connections are part of the script; other tests read this log."""
    log = logging.getLogger("uvicorn.error")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@pytest.fixture(autouse=True)
async def _connections_end_with_the_loop() -> AsyncIterator[None]:
    yield
    await close_clients()


@pytest.fixture
def stub(_running_stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMStub]:
    """The stub, found by litellm in the place of every provider; waits between attempts are short."""
    for name, value in _running_stub.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(LiteLLMAgentFunction, "retry_policy", RetryPolicy(first=0.01, longest=0.05))
    _running_stub.reset()
    yield _running_stub
    assert _running_stub.complaints == []
