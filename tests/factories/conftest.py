"""One litellm for all tests of this folder."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from support.services.llm_stub import LLMStub
from support.services.llm_stub.converse import IDENTITY

from mail.factories import LiteLLMAgentFunction
from mail.factories.ports import close_clients, preload
from mail.factories.retry import RetryPolicy


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


@pytest.fixture(scope="session", autouse=True)
def _litellm() -> None:
    """Import litellm before the first task begins: on a busy machine this takes longer than a task may."""
    preload()


@pytest.fixture
def stub(stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> LLMStub:
    """The stub, with short waits between attempts."""
    monkeypatch.setattr(LiteLLMAgentFunction, "retry_policy", RetryPolicy(first=0.01, longest=0.05))
    return stub


@pytest.fixture
def aws_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity that the stub knows; all tests of Bedrock use it, as the port keeps the first that it finds."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", IDENTITY.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", IDENTITY.secret_key)
    for name in ("AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
