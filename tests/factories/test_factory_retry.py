"""When a model can't be called: the retries, their time limit, and the final error."""

import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from factory_agents import CHAT, CLAUDES, RESPONSES, Dialect, of, prompt, supervisor, swarm_of
from support.services.llm_stub import (
    LLMStub,
    bad_key,
    bad_request,
    call,
    context_exceeded,
    hang_up,
    overloaded,
    rate_limited,
    redacted,
    reply,
    server_error,
    text,
    thinking,
    unknown_model,
)
from support.services.loopback import Handler, serve

from mail import Agent, Swarm
from mail.core.task.costs import Usage
from mail.core.task.events import EventKind
from mail.core.task.leases import Park
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.turns.context import TURN, CurrentCall, TurnContext
from mail.core.turns.usage import UsageMeter
from mail.errors import (
    ContextWindowExceeded,
    ModelAccessDenied,
    ModelError,
    ModelRefusal,
    ModelUnavailable,
    Subject,
    TaskFailed,
)
from mail.factories import LiteLLMAgentFunction
from mail.factories.failures import retry_after
from mail.factories.litellm_parts import load_litellm
from mail.factories.litellm_port import LiteLLM
from mail.factories.models import ModelRequest, traits_of
from mail.factories.retry import ATTEMPTS, Cause, Failure, Retry, RetryPolicy, Stop, error_for
from mail.testing.rig import Rig

WIRES = [CHAT[0], CHAT[1], RESPONSES[0], RESPONSES[1], CLAUDES[0]]
STREAMS = [CHAT[1], RESPONSES[1], CLAUDES[0]]

FINE = reply(thinking("Hm."), call("help"))
LONG = reply(
    thinking("Hm, let me think about this for a while."), text("Well, I"), call("help", get_identity=True)
)


# --------------------------------------------------------------------------------------------- the decision, pure

POLICY = RetryPolicy(first=1.0, longest=8.0)


@pytest.mark.parametrize("cause", list(Cause))
def test_only_what_passes_is_tried_again(cause: Cause) -> None:
    decision = POLICY.decide(Failure(cause), 1, None, 0.0)
    assert isinstance(decision, Retry if cause in ATTEMPTS else Stop)


@pytest.mark.parametrize("cause", list(ATTEMPTS))
def test_there_is_an_end_to_it(cause: Cause) -> None:
    assert isinstance(POLICY.decide(Failure(cause), ATTEMPTS[cause] - 1, None, 0.0), Retry)
    assert POLICY.decide(Failure(cause), ATTEMPTS[cause], None, 0.0) == Stop()


def test_waits_double_up_to_a_limit_and_chance_shortens_them() -> None:
    waits = [POLICY.decide(Failure(Cause.OUTAGE), attempt, None, 0.0) for attempt in range(1, 6)]
    assert waits == [Retry(1.0), Retry(2.0), Retry(4.0), Retry(8.0), Retry(8.0)]
    assert POLICY.decide(Failure(Cause.OUTAGE), 1, None, 1.0) == Retry(0.5)


def test_the_provider_knows_best_when_to_come_back() -> None:
    assert POLICY.decide(Failure(Cause.RATE_LIMIT, 429, 20.0), 1, None, 0.0) == Retry(20.0)
    assert POLICY.decide(Failure(Cause.RATE_LIMIT, 429, 20.0), 1, None, 0.5) == Retry(21.0)
    too_long = Failure(Cause.RATE_LIMIT, 429, 3600.0)
    assert POLICY.decide(too_long, 1, None, 0.0) == Stop()
    assert error_for(too_long, "openai/gpt-5", 1).detail.endswith(
        "(HTTP 429; its provider says to retry after 3600 s)"
    )


def test_nothing_is_tried_for_which_there_is_no_time() -> None:
    failure = Failure(Cause.RATE_LIMIT, 429, 20.0)
    assert isinstance(POLICY.decide(failure, 1, 21.0, 0.0), Retry)
    assert POLICY.decide(failure, 1, 20.9, 0.0) == Stop()


@pytest.mark.parametrize("cause", list(Cause))
def test_every_failure_has_a_text_that_names_the_model(cause: Cause) -> None:
    error = error_for(Failure(cause, 503), "openai/gpt-5", 3)
    assert isinstance(error, ModelError)
    assert "openai/gpt-5" in error.detail
    assert "{" not in error.detail


NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_a_header_of_the_causing_response_counts(stub: LLMStub) -> None:
    """For some providers, such as Cohere, litellm's own error has no headers."""
    litellm = load_litellm()
    response = httpx.Response(429, headers={"Retry-After": "7"}, request=httpx.Request("POST", stub.url))
    error = litellm.RateLimitError("slow down", "cohere", "command-r")
    error.__cause__ = httpx.HTTPStatusError("429", request=response.request, response=response)
    failure = LiteLLM().classify(error, supervisor(CHAT[0]).request([prompt()]))
    assert failure is not None
    assert (failure.cause, failure.retry_after) == (Cause.RATE_LIMIT, 7.0)


# ------------------------------------------------------------------------------------------------ through litellm


PASSING = {
    "rate limit": rate_limited(0.01),
    "server error": server_error(),
    "bad gateway": server_error(502),
    "overloaded": overloaded(),
    "conflict": server_error(409),
    "broken connection": hang_up(),
}


@of(WIRES)
@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING)
async def test_what_passes_is_waited_for(stub: LLMStub, dialect: Dialect, failure: Any) -> None:
    stub.script(failure, failure, FINE)
    _, (made,) = await supervisor(dialect)([prompt()])
    assert made.tool_name == "help"
    assert len(stub.requests) == 3
    assert stub.requests[0].body == stub.requests[2].body


FINAL: dict[str, tuple[Any, type[ModelError], str]] = {
    "bad key": (bad_key(), ModelAccessDenied, "is not accepted at 127.0.0.1"),
    "bad request": (bad_request(), ModelRefusal, "rejects the request (HTTP 400)"),
    "unknown model": (unknown_model(), ModelRefusal, "there is no model"),
    "context": (context_exceeded(), ContextWindowExceeded, "no longer fits into the context window"),
}


@of(WIRES)
@pytest.mark.parametrize(("failure", "kind", "told"), FINAL.values(), ids=FINAL)
async def test_what_is_wrong_for_good_is_told_at_once(
    stub: LLMStub, dialect: Dialect, failure: Any, kind: type[ModelError], told: str
) -> None:
    stub.script(failure)
    with pytest.raises(kind, match=re.escape(told)) as raised:
        await supervisor(dialect)([prompt()])
    assert dialect.llm in raised.value.detail
    assert len(stub.requests) == 1


async def test_attempts_are_counted(stub: LLMStub) -> None:
    stub.otherwise = lambda _request: server_error(503)
    with pytest.raises(ModelUnavailable, match=r"is unavailable: HTTP 503 on all 6 attempts"):
        await supervisor(CHAT[0])([prompt()])
    assert len(stub.requests) == ATTEMPTS[Cause.OUTAGE]


async def test_a_host_that_is_not_there(stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(
        ModelUnavailable, match=r"nothing accepts connections at 127.0.0.1:9 \(on all 6 attempts"
    ):
        await supervisor(CHAT[0])([prompt()])


@of([CHAT[0], RESPONSES[0]])
async def test_a_name_that_does_not_resolve(
    stub: LLMStub, monkeypatch: pytest.MonkeyPatch, dialect: Dialect
) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "http://models.invalid/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://models.invalid/v1")
    with pytest.raises(ModelUnavailable, match=r"there is no host models.invalid"):
        await supervisor(dialect)([prompt()])


@of([CHAT[0], RESPONSES[0]])
async def test_a_server_that_speaks_no_tls(
    stub: LLMStub, monkeypatch: pytest.MonkeyPatch, dialect: Dialect
) -> None:
    """It is not tried again."""
    address = stub.environ["OPENAI_BASE_URL"].replace("http://", "https://")
    monkeypatch.setenv("OPENAI_API_BASE", address)
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(ModelUnavailable, match=r"no secure connection at 127.0.0.1:\d+ \(\w+\)$"):
        await supervisor(dialect)([prompt()])


KEYS = {
    "openai": (CHAT[0], "OPENAI_API_KEY"),
    "anthropic": (CLAUDES[0], "ANTHROPIC_API_KEY"),
    "gemini": (Dialect("gemini/gemini-2.5-pro", "responses"), "GEMINI_API_KEY"),
}


@pytest.mark.parametrize(("dialect", "variable"), KEYS.values(), ids=KEYS)
async def test_a_missing_key_is_named_at_once(
    stub: LLMStub, monkeypatch: pytest.MonkeyPatch, dialect: Dialect, variable: str
) -> None:
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(LiteLLMAgentFunction, "retry_policy", RetryPolicy(first=60.0))
    with pytest.raises(ModelAccessDenied, match=f"has no API key: set {variable} where this agent runs"):
        await supervisor(dialect)([prompt()])
    assert stub.requests == []


async def test_a_missing_key_that_only_the_provider_notices(
    stub: LLMStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """litellm sends requests to the Responses API without a key; a server of one's own may need none."""
    monkeypatch.delenv("OPENAI_API_KEY")
    stub.script(FINE, bad_key())
    agent = supervisor(RESPONSES[0])
    assert (await agent([prompt()]))[1][0].tool_name == "help"
    with pytest.raises(ModelAccessDenied, match="set OPENAI_API_KEY"):
        await agent([prompt()])


@pytest.mark.parametrize(
    ("llm", "meant"), [("opnai/gpt-5-mini", "openai/gpt-5-mini"), ("gpt-5-minni", "gpt-5-mini")]
)
async def test_a_model_of_no_provider(stub: LLMStub, llm: str, meant: str) -> None:
    with pytest.raises(ModelRefusal, match="no provider is known") as raised:
        await supervisor(Dialect(llm, "completions"))([prompt()])
    assert f"Did you mean '{meant}'?" in raised.value.detail


async def test_an_unknown_model_is_named_with_a_similar_one(stub: LLMStub) -> None:
    stub.script(unknown_model())
    with pytest.raises(
        ModelRefusal, match=r"'openai/gpt-5-mimi' at 127.0.0.1:\d+ \(HTTP 404\). Did you mean"
    ):
        await supervisor(Dialect("openai/gpt-5-mimi", "completions"))([prompt()])


def test_attempts_that_failed_differently_are_not_all_called_the_same() -> None:
    error = error_for(Failure(Cause.OUTAGE, 500), "m", 6, 22.4)
    assert error.detail == "m is unavailable: HTTP 500 on all 6 attempts, last after 22 s"
    error = error_for(Failure(Cause.OUTAGE, 500), "m", 6, 0.1, is_same=False)
    assert error.detail == "m is unavailable: HTTP 500 on the last of 6 attempts"


@of(WIRES)
async def test_arguments_that_are_no_json_are_asked_for_again(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(reply(call("help", '{"get_identity": tr')), reply(call("help", "[]")), FINE)
    _, (made,) = await supervisor(dialect)([prompt()])
    assert made.tool_args == {}
    assert made.reasoning == ["Hm."]


@of([CHAT[0], RESPONSES[1], CLAUDES[0]])
async def test_nothing_is_an_empty_object(stub: LLMStub, dialect: Dialect) -> None:
    """Models that call a tool without parameters may write nothing where `{}` would stand."""
    stub.script(reply(call("help", "")))
    _, (made,) = await supervisor(dialect)([prompt()])
    assert made.tool_args == {}


@of([CHAT[0], RESPONSES[1], CLAUDES[0]])
async def test_text_that_is_cut_at_the_limit_is_text(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(reply(redacted(), text("Well, the"), is_truncated=True))
    said, (made,) = await supervisor(dialect)([prompt()])
    assert (said, made.tool_name) == ("Well, the", "text_output")


# -------------------------------------------------------------------------------------------------- inside a turn


async def within(seconds: float, agent: LiteLLMAgentFunction) -> Any:
    """Call the agent as a turn with so many seconds does."""
    TURN.set(TurnContext(deadline=asyncio.get_running_loop().time() + seconds))
    return await agent([prompt()])


@of(WIRES)
async def test_a_slow_model_is_not_waited_for_longer_than_the_turn(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(FINE.but(delay=10.0))  # then there would be an answer, and no error
    with pytest.raises(ModelUnavailable, match="did not answer in time"):
        await within(0.5, supervisor(dialect))


@of(STREAMS)
async def test_a_stream_that_drips_is_cut_too(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(LONG.but(pause=1.0))  # which ends, too
    with pytest.raises(ModelUnavailable, match="did not answer in time"):
        await within(0.5, supervisor(dialect))


async def test_a_wait_that_is_longer_than_the_turn_is_not_begun(stub: LLMStub) -> None:
    stub.script(rate_limited(60))
    with pytest.raises(ModelUnavailable, match="limits"):  # a wait that was begun would end with "in time"
        await within(30.0, supervisor(CHAT[0]))
    assert len(stub.requests) == 1


async def test_retries_end_with_the_turn(stub: LLMStub) -> None:
    stub.otherwise = lambda _request: rate_limited(0.5)
    with pytest.raises(ModelUnavailable):
        await within(1.3, supervisor(CHAT[0]))
    assert 1 <= len(stub.requests) <= 3, "there were eight attempts in all"


@of([CHAT[0], RESPONSES[1], CLAUDES[0]])
async def test_others_are_told_why_an_agent_failed(stub: LLMStub, dialect: Dialect) -> None:
    """The worker's model refuses; the supervisor reads why, and can finish. No provider's words, no key in them."""
    ask = call("send_request", target="worker", subject="s", body="b")
    stub.script(
        reply(ask),
        reply(call("task_complete", finish_message="The worker can't.")),
        to="You are the supervisor",
    )
    stub.script(context_exceeded(), to="You are the worker")
    async with Rig(swarm_of(dialect)) as rig:
        outcome = await rig.ask("What is the weather?")
    assert outcome.answer == "The worker can't."
    (told,) = (
        message for message in outcome.sent_to("supervisor") if message.sender.address_type == "system"
    )
    assert told.message.subject == Subject.AGENT_ERROR
    assert told.message.body == (
        f"agent 'worker' has failed: the history no longer fits into the context window of {dialect.llm}"
    )
    assert outcome.of(EventKind.AGENT_ERROR)


async def test_the_user_is_told_where_nobody_else_is_left(
    stub: LLMStub, caplog: pytest.LogCaptureFixture
) -> None:
    stub.script(bad_key())
    with caplog.at_level(logging.WARNING, logger="mail"):
        async with Rig(swarm_of(RESPONSES[0])) as rig:
            outcome = await rig.ask("What is the weather?")
    assert outcome.subject == Subject.TASK_ERROR
    assert "OPENAI_API_KEY is not accepted" in outcome.answer
    assert "sk-very-secret" not in outcome.answer
    assert "sk-very-secret" not in caplog.text


async def test_a_turn_that_runs_out_of_time_says_why(stub: LLMStub) -> None:
    stub.script(FINE.but(delay=10.0))
    async with Rig(swarm_of(CHAT[0]), turn_seconds=1.0) as rig:
        outcome = await rig.ask("What is the weather?")
    assert "openai/gpt-5-mini did not answer in time" in outcome.answer


async def test_a_long_wait_is_outside_of_the_turn(stub: LLMStub) -> None:
    """A short one isn't. Attempts are counted across both, and what the provider asks for may take hours."""
    done = reply(call("task_complete", finish_message="42"))
    stub.script(rate_limited(7200), server_error(503), rate_limited(20), done)
    async with Rig(swarm_of(CHAT[0])) as rig:
        submitted = await rig.submit("What is the weather?")
        for seconds, attempts in ((7200, 1), (20, 3)):
            lease = await rig.parked(submitted.key, "supervisor")
            assert lease.park is not None
            assert (lease.park.on, lease.park.attempts, lease.park.urgent) == ("openai", attempts, None)
            left = lease.expires - rig.runtime.now()
            assert seconds <= left <= seconds * 1.1
            assert len(stub.requests) == attempts
            await rig.pass_time(left + 1)
        await rig.outcome(submitted)
    assert len(stub.requests) == 4


async def test_the_attempts_end_across_all_waits(stub: LLMStub) -> None:
    stub.script(rate_limited(60))
    TURN.set(TurnContext(meter=UsageMeter(), may_park=True, parked=Park(on="openai", since=0.0, attempts=7)))
    with pytest.raises(ModelUnavailable, match="on all 8 attempts"):
        await supervisor(CHAT[0])([prompt()])


@pytest.mark.soak
async def test_a_call_that_would_repeat_others_waits_in_its_turn(stub: LLMStub) -> None:
    """It stands in an action, or after a call that is paid for."""
    paid = UsageMeter()
    paid.add(Usage(calls=1))
    for turn in (
        TurnContext(meter=UsageMeter(), may_park=True, call=CurrentCall(place="called 0")),
        TurnContext(meter=paid, may_park=True),
    ):
        stub.script(rate_limited(2.5), FINE)
        TURN.set(turn)
        await supervisor(CHAT[0])([prompt()])


@of([CHAT[0], RESPONSES[0]])
async def test_who_watches_sees_the_retry_and_the_text_of_a_model_that_does_not_stream(
    stub: LLMStub, dialect: Dialect
) -> None:
    stub.script(server_error(503), reply(text("I am done."), call("task_complete", finish_message="42")))
    live: list[LiveEvent] = []
    async with Rig(swarm_of(dialect)) as rig:
        submitted = await rig.submit("What is the weather?")
        events = rig.runtime.watch(submitted.key, answer_to=submitted.seq)
        batches = rig.runtime.with_live(submitted.key, events, deltas=True)
        async with aclosing(batches):
            async for batch in batches:
                live += [event for event in batch if isinstance(event, LiveEvent)]
        stored = await rig.store.read_events(submitted.key)
    of_kind = {event.kind: event.extra for event in live}
    assert of_kind[LiveKind.MODEL_CALL_RETRIED]["reason"] == "outage (HTTP 503)"
    assert of_kind[LiveKind.MODEL_CALL_RETRIED]["attempt"] == 2
    written: dict[str, str] = {}
    for event in live:
        if event.kind is LiveKind.TEXT_DELTA:
            written[event.extra["kind"]] = written.get(event.extra["kind"], "") + event.delta
    assert written == {"text": "I am done.", "answer": "42"}
    assert of_kind[LiveKind.MODEL_CALL_ENDED]["usage"]["calls"] == 1
    (timing,) = [event.extra.timing for event in stored if event.extra.timing is not None]
    assert timing.model_calls[0].attempts == 2


# ------------------------------------------------------------------------------- mistakes with addresses and names


COMPLETION = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "local",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Page(Handler):
    """Where an API should be, a page is; below `/local` a server of Chat Completions, whatever the path."""

    def respond(self) -> None:
        self.body()
        page, kind = b"<!doctype html><html><body>Welcome</body></html>", "text/html"
        if self.path.startswith("/local/"):
            page, kind = json.dumps(COMPLETION).encode(), "application/json"
        self.answer(200, page, {"Content-Type": kind})


@pytest.fixture
def page() -> Iterator[str]:
    with serve(Page) as url:
        yield url


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", ["responses", "completions"])
async def test_a_page_in_place_of_the_api(stub: LLMStub, page: str, api: Any, streams: bool) -> None:
    lead = Agent(
        "lead",
        model="openai/gpt-5-mini",
        api_base=page,
        api_key="sk-1",
        tool_format=api,
        stream_tokens=streams,
    )
    with pytest.raises(
        TaskFailed, match=f"didn't answer with JSON .*is {page} the address of its API"
    ) as caught:
        await Swarm(lead).aask("hi")
    assert "3 attempts" in str(caught.value)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
async def test_a_server_of_the_other_api(stub: LLMStub, page: str, streams: bool) -> None:
    lead = Agent(
        "lead", model="openai/local", api_base=f"{page}/local", api_key="sk-1", stream_tokens=streams
    )
    with pytest.raises(
        TaskFailed, match=r'openai/local answered, but not as OpenAI\'s .* Set tool_format="completions"$'
    ):
        await Swarm(lead).aask("hi")


async def test_an_unknown_provider_with_an_address_and_a_key_of_its_own(stub: LLMStub) -> None:
    lead = Agent("lead", model="opena/gpt-5", api_base="http://127.0.0.1:9", api_key="sk-1")
    with pytest.raises(TaskFailed, match=r"no provider is known .*Did you mean 'openai/gpt-5'\?"):
        await Swarm(lead).aask("hi")


async def test_an_empty_reply_is_named(stub: LLMStub) -> None:
    stub.script(*[reply(text(""))] * 5)
    with pytest.raises(TaskFailed, match="the model returned an empty reply"):
        await Swarm(Agent("lead", model="openai/gpt-5-mini")).aask("hi")


async def test_what_the_log_says_of_retries(stub: LLMStub, caplog: pytest.LogCaptureFixture) -> None:
    stub.script(server_error(), rate_limited(), bad_request("no such option"))
    with pytest.raises(TaskFailed):
        await Swarm(Agent("lead", model="openai/gpt-5-mini")).aask("hi")
    first, second, last = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert re.fullmatch(r"openai/gpt-5-mini: HTTP 500, attempt 1 of 6, next in \d\.\d s", first)
    assert re.fullmatch(r"openai/gpt-5-mini: HTTP 429, attempt 2 of 8, next in \d\.\d s", second)
    assert last.startswith("openai/gpt-5-mini: HTTP 400 on attempt 3: ")
    assert "no such option" in last
    assert "Retry(" not in caplog.text
    assert "Stop(" not in caplog.text


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("x", "OpenAIException: (hidden) is wrong; expected"),
        ("sk-12345678", "OpenAIException: x is wrong; expected"),
    ],
)
def test_short_keys_hide_words_not_letters(key: str, shown: str) -> None:
    request = ModelRequest("openai/x", traits_of("openai/x"), [], "", [], "auto", "responses", api_key=key)
    assert request.hide_secrets("OpenAIException: x is wrong; expected") == shown
    assert request.hide_secrets("keysk-12345678?").endswith("?")
    assert ("sk-12345678" in request.hide_secrets("keysk-12345678?")) == (key == "x")


ENDS_EARLY = """
import os
from mail import Agent, Swarm
try:
    Swarm(Agent("lead", model="openai/gpt-5-mini")).ask("hi", timeout=1)
except TimeoutError:
    print("too late")
"""


@pytest.mark.soak
def test_nothing_is_printed_when_a_script_ends_during_a_call(stub: LLMStub) -> None:
    """The thread of the swarm is in the middle of a call, or of loading litellm."""
    stub.script(*[FINE.but(delay=10.0)] * 6)
    done = subprocess.run(
        [sys.executable, "-c", ENDS_EARLY], capture_output=True, text=True, timeout=280, check=False
    )
    assert (done.stdout, done.stderr) == ("too late\n", "")
