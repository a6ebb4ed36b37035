"""docs/models.md: its pieces run, against a stub of the providers, and it names every class, argument and cause."""

import dataclasses
import inspect
import json
import re

import pytest
from support.processes.document_samples import DOCS, blocks, run_in_order
from support.services.llm_stub import LLMStub, call, reply

import mail.factories
from mail.core.task.usage import Usage
from mail.factories import LiteLLMAgentFunction, MAILAgentFunction
from mail.factories.retry import ATTEMPTS, Cause, RetryPolicy
from mail.swarms_json.references import resolver
from mail.swarms_json.specs import AgentSpec

DOCUMENT = DOCS / "models.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")

CAUSES = {
    Cause.RATE_LIMIT: "rate limit",
    Cause.BUSY: "the limit of the model is reached, and another one is listed",
    Cause.OUTAGE: "outage (5xx), connection lost",
    Cause.CONNECTION: "outage (5xx), connection lost",
    Cause.TIMEOUT: "no answer in time",
    Cause.NO_REPLY: "the answer isn't JSON of the API, such as a page of HTML",
    Cause.OTHER_API: "the answer is of Chat Completions, not of the Responses API",
    Cause.MALFORMED: "a tool call that can't be read",
    Cause.QUOTA: "the account's quota is used up",
    Cause.REFUSED: "nothing accepts connections",
    Cause.UNKNOWN_HOST: "the host name is unknown",
    Cause.TLS: "no secure connection (TLS)",
    Cause.NO_KEY: "there is no key",
    Cause.ACCESS: "the key isn't accepted",
    Cause.FORBIDDEN: "the key has no access to the model",
    Cause.NO_PROVIDER: "the provider in the name is unknown",
    Cause.NO_MODEL: "the model is unknown",
    Cause.CONTEXT: "the history doesn't fit into the context window",
    Cause.REJECTED: "the request is invalid, or a content filter blocks it",
    Cause.FILTERED: "the request is invalid, or a content filter blocks it",
    Cause.TRUNCATED: "`max_tokens` ended the reply inside of a call",
}


@pytest.mark.parametrize("document", ["caching.md", "fallback.md"])
async def test_the_samples_of_pages_about_models(
    stub: LLMStub, capsys: pytest.CaptureFixture[str], document: str
) -> None:
    stub.script(reply(call("task_complete", finish_message="Agents that send each other mail.")))
    await run_in_order(DOCS / document, capsys)
    assert json.dumps(stub.requests[0].body).count("cache_control") == 2


async def test_every_piece(stub: LLMStub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.script(*[reply(call("task_complete", finish_message="Agents that send each other mail."))] * 2)
    namespace: dict[str, object] = {"__name__": "document"}
    assert await run_in_order(DOCUMENT, capsys, namespace) == 2
    assert (len(stub.requests), stub.complaints) == (2, [])
    assert namespace["Impatient"].retry_policy.attempts == {Cause.RATE_LIMIT: 2}  # type: ignore[attr-defined]


def test_the_entry_is_one() -> None:
    options, entry, usage = [code for _, code in blocks(DOCUMENT, "jsonc")]
    agent = AgentSpec.model_validate(json.loads(entry))
    factory = resolver()(agent.factory)
    assert factory is mail.factories.LiteLLMSupervisorFunction
    assert factory(name=agent.name, comm_targets=[], **agent.agent_params).reasoning_effort == "low"
    made = factory(name=agent.name, comm_targets=[], tool_format=agent.tool_format, **json.loads(options))
    assert made.options.keys() == {"temperature", "api_base", "api_key"}
    assert set(re.findall(r'"(\w+)": \d', usage)) == {field.name for field in dataclasses.fields(Usage)}


def test_every_class_and_argument() -> None:
    for name in mail.factories.__all__:
        assert f"`{name}" in TEXT or name == "preload"
    for function in (MAILAgentFunction, LiteLLMAgentFunction):
        for name in inspect.signature(function).parameters:
            assert re.search(rf"^\| .*`{name}`.* \|", TEXT, re.MULTILINE), name


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_with_its_attempts(cause: Cause) -> None:
    assert f"| {CAUSES[cause]} | {ATTEMPTS.get(cause, 1)} |" in TEXT


def test_the_waits() -> None:
    policy = RetryPolicy()
    assert (policy.first, policy.longest) == (1.0, 30.0)
