"""One contract for all ways to a model: the same replies, deltas, usage and failures, whatever carries them."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from factory_agents import CLAUDE, GPT, Dialect, after, of, prompt, supervisor
from support.services.llm_stub import (
    LLMStub,
    Tokens,
    bad_key,
    bad_request,
    call,
    context_exceeded,
    hang_up,
    quota_used_up,
    rate_limited,
    recorded,
    redacted,
    reply,
    server_error,
    text,
    thinking,
    unknown_model,
)
from support.services.llm_stub.converse import IDENTITY

from mail.core.turns.context import model_call
from mail.errors import ModelAccessDenied, ModelError
from mail.factories import ports
from mail.factories.answer import AnswerReader
from mail.factories.items import assemble
from mail.factories.model_call import call_model, read_usage
from mail.factories.models import ModelReply, ModelRequest
from mail.factories.ports import Way, port_for, way_to
from mail.factories.retry import Cause, Failure, RetryPolicy
from mail.factories.table import Tokens as Billed

pytestmark = pytest.mark.usefixtures("aws_identity")

BEDROCK = "bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0"

WAYS = {
    "litellm-chat": (GPT, "completions"),
    "litellm-responses": (GPT, "responses"),
    "litellm-claude": (CLAUDE, "completions"),
    "sdk-chat": (f"sdk/{GPT}", "completions"),
    "sdk-responses": (f"sdk/{GPT}", "responses"),
    "converse": (BEDROCK, "responses"),
    "converse-gpt": ("bedrock/openai.gpt-oss-120b-1:0", "completions"),
}
EVERY = {
    f"{name}{'-streamed' if streams else ''}": Dialect(llm, tool_format, streams)  # type: ignore[arg-type]
    for name, (llm, tool_format) in WAYS.items()
    for streams in (False, True)
}


def request_of(dialect: Dialect, **params: Any) -> ModelRequest:
    return supervisor(dialect, **params).request([prompt()], "auto")


async def call_once(request: ModelRequest) -> tuple[ModelReply, list[tuple[str, str]]]:
    """Return the reply, and the pieces of its deltas by kind."""
    pieces: dict[str, str] = {}

    def note(kind: str, piece: str) -> None:
        pieces[kind] = pieces.get(kind, "") + piece

    port = port_for(request.llm)
    await port.open()
    got = await port.call(request, 60.0, note, AnswerReader(model_call("")))
    return got, sorted(pieces.items())


async def fail_once(request: ModelRequest) -> Failure | None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # each library has its own
        await call_once(request)
    return port_for(request.llm).classify(raised.value, request)


SAID = reply(
    thinking("Hm."),
    text("I am done."),
    call("help"),
    call("send_request", target="worker", subject="Oslo", body="?"),
    tokens=Tokens(1000, 50, 400, 0),
)


@of(EVERY)
async def test_calls_reasoning_deltas_and_usage(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(SAID, SAID)
    got, pieces = await call_once(request_of(dialect))
    is_silent = dialect.tool_format == "responses" and "openai/" in dialect.llm and not dialect.streams
    assert dict(pieces) == ({} if is_silent else {"reasoning": "Hm.", "text": "I am done."})
    usage = read_usage(dialect.llm, got.usage)
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (1000, 50, 400)
    assert usage.unpriced_calls == 0
    _, (first, second) = await call_model(request_of(dialect), RetryPolicy(), lambda *_: None)
    assert (first.tool_name, first.reasoning, first.preamble) == ("help", ["Hm."], "I am done.")
    assert (second.tool_name, second.reasoning, second.preamble) == ("send_request", None, None)
    assert second.tool_args == {"target": "worker", "subject": "Oslo", "body": "?"}


ALIKE = [
    ("litellm-chat", "sdk-chat"),
    ("litellm-responses", "sdk-responses"),
    ("litellm-claude", "converse"),
    ("litellm-claude", "converse-gpt"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
@pytest.mark.parametrize("streamed", ["", "-streamed"], ids=["whole", "stream"])
async def test_histories_are_the_same(stub: LLMStub, one: str, other: str, streamed: str) -> None:
    stub.script(SAID, SAID)
    entries = [
        _without_ids((await call_once(request_of(EVERY[name + streamed])))[0].entries)
        for name in (one, other)
    ]
    assert entries[0] == entries[1]


def _without_ids(value: Any) -> Any:
    """The entries, in which the stub's ids are replaced, and litellm's additions left out."""
    if isinstance(value, dict):
        return {
            key: _without_ids(item)
            for key, item in value.items()
            if key not in ("function_call", "provider_specific_fields", "citations") and item is not None
        }
    if isinstance(value, list):
        return [_without_ids(item) for item in value]
    return re.sub(r"^[\w-]*\d{8}$", "ID", value) if isinstance(value, str) else value


@of(EVERY)
async def test_a_conversation_is_sent_back_as_it_was(stub: LLMStub, dialect: Dialect) -> None:
    """The stub refuses thinking that was changed, calls without results, and roles out of order."""
    stub.script(reply(thinking("A."), redacted(), text("Well."), call("help"), call("await_message")), SAID)
    agent = supervisor(dialect)
    _, calls = await agent([prompt()], "auto")
    await agent(after([prompt()], calls), "auto")
    assert len(stub.requests) == 2


@of({name: EVERY[name] for name in ("converse", "converse-gpt", "sdk-chat")})
@pytest.mark.parametrize("before", [CLAUDE, GPT])
async def test_histories_cross_from_one_way_to_another(stub: LLMStub, dialect: Dialect, before: str) -> None:
    stub.script(reply(thinking("A."), text("Well."), call("help"), call("await_message")), SAID, SAID)
    _, calls = await supervisor(Dialect(before, "responses"))([prompt()], "auto")
    history = after([prompt()], calls)
    agent = supervisor(dialect)
    await agent(history, "auto")
    await agent([*history, prompt("\n")], "none")  # nor may blank texts and calls without tools be refused


FAILURES: dict[str, tuple[Any, Cause, int | None]] = {
    "bad key": (bad_key(), Cause.ACCESS, 401),
    "unknown model": (unknown_model(), Cause.NO_MODEL, 404),
    "rate limit": (rate_limited(7), Cause.RATE_LIMIT, 429),
    "outage": (server_error(), Cause.OUTAGE, 500),
    "bad gateway": (server_error(503), Cause.OUTAGE, 503),
    "context": (context_exceeded(), Cause.CONTEXT, 400),
    "bad request": (bad_request(), Cause.REJECTED, 400),
    "hang-up": (hang_up(), Cause.CONNECTION, None),
}


@of(EVERY)
@pytest.mark.parametrize(("turn", "cause", "status"), FAILURES.values(), ids=FAILURES)
async def test_failures(stub: LLMStub, dialect: Dialect, turn: Any, cause: Cause, status: int | None) -> None:
    stub.script(turn, turn)  # litellm itself repeats a request of Responses whose connection breaks
    failure = await fail_once(request_of(dialect))
    assert failure is not None
    assert (failure.cause, failure.status) == (cause, status)
    assert failure.retry_after == (7.0 if cause is Cause.RATE_LIMIT else None)
    if cause is Cause.RATE_LIMIT:
        assert failure.headers == {"retry-after": "7"}
    if cause is not Cause.CONTEXT:
        assert failure.place.startswith("127.0.0.1:")


@of({name: dialect for name, dialect in EVERY.items() if dialect.llm.endswith(GPT)})
async def test_a_quota_that_is_used_up(stub: LLMStub, dialect: Dialect) -> None:
    """It is known by its code; limits per minute, as Gemini's, speak of a quota in their text."""
    stub.script(
        replace(quota_used_up(), message="No credits."),
        replace(rate_limited(), message="You exceeded your current quota: insufficient_quota"),
    )
    for cause in (Cause.QUOTA, Cause.RATE_LIMIT):
        failure = await fail_once(request_of(dialect))
        assert failure is not None
        assert failure.cause is cause


@of(EVERY)
async def test_a_call_at_the_limit_of_tokens_is_not_made(stub: LLMStub, dialect: Dialect) -> None:
    """Whole, Bedrock's reply doesn't show that its arguments were cut."""
    cut = call("help") if dialect is EVERY["converse-gpt"] else call("help", '{"get_id')
    stub.script(reply(text("Well."), cut, is_truncated=True))
    with pytest.raises(ModelError, match="raise max_tokens"):
        await call_model(request_of(dialect), RetryPolicy(), lambda *_: None)
    assert len(stub.requests) == 1


CUT = {
    "breaks": SAID.but(cut_after=6),
    "ends early": SAID.but(cut_after=6, ends_early=True),
    "error event": SAID.but(fails_after=6),
    "body": SAID.but(cut_after=1),
}
FINE = reply(thinking("Enough."), call("help"))


@pytest.mark.parametrize(
    ("way", "kind"),
    [(way, kind) for way in EVERY for kind in CUT if (kind == "body") != way.endswith("-streamed")],
)
async def test_a_cut_reply_is_asked_for_again(stub: LLMStub, way: str, kind: str) -> None:
    """Nothing of it is left."""
    stub.script(CUT[kind], CUT[kind], FINE)
    failure = await fail_once(request_of(EVERY[way]))
    assert failure is not None
    assert failure.cause in (Cause.CONNECTION, Cause.OUTAGE)
    _, (made,) = await call_model(request_of(EVERY[way]), RetryPolicy(), lambda *_: None)
    assert (made.tool_args, made.reasoning) == ({}, ["Enough."])


@of(EVERY)
async def test_the_headers_of_limits(stub: LLMStub, dialect: Dialect) -> None:
    limits = {"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-tokens": "6m0s"}
    stub.script(SAID.but(headers=(*limits.items(), ("x-request-id", "1"))))
    got, _ = await call_once(request_of(dialect))
    assert got.headers == limits


# --------------------------------------------------------------------------------- in the providers' own words

CHAT_CALLS = [
    ("get_current_weather", {"location": "Seattle, WA"}),
    ("get_current_weather", {"location": "San Francisco, CA"}),
]
CONVERSE_CALLS = [
    ("get_current_weather", {"location": "Seattle"}),
    ("get_current_weather", {"location": "San Francisco"}),
]
CLAUDES_CALLS = [
    ("get_weather", {"location": "San Francisco, CA", "unit": "celsius"}),
    ("get_time", {"timezone": "America/Los_Angeles"}),
]
ST_AUGUSTINE = [("get_weather", {"location": "St. Augustine, Florida"})]


@dataclass(frozen=True)
class Told:
    """What a recorded reply says: the text and the reasoning, by how they begin, calls and tokens."""

    ways: tuple[str, ...]
    tokens: Billed
    text: str = ""
    reasoning: str = ""
    calls: Sequence[tuple[str, dict[str, str]]] = ()
    finish: str = "stop"


TOLD = {
    "chat.json": Told(("litellm-chat", "sdk-chat"), Billed(75, 51), calls=CHAT_CALLS),
    "chat.sse": Told(("litellm-chat-streamed", "sdk-chat-streamed"), Billed(75, 51), calls=CHAT_CALLS),
    "responses.json": Told(
        ("litellm-responses", "sdk-responses"),
        Billed(67, 233, reasoning=168),
        "Assuming you mean **St. Augustine, Florida**\u2014often cited",
        "**Considering weather inquiry**\n\nThe user is asking",
        ST_AUGUSTINE,
    ),
    "responses.sse": Told(
        ("litellm-responses-streamed", "sdk-responses-streamed"),
        Billed(67, 232, reasoning=174),
        "The oldest major city in the U.S. is generally considered **St.",
        "**Determining the oldest major city**\n\nI need",
        ST_AUGUSTINE,
    ),
    "responses-encrypted.sse": Told(
        ("litellm-responses-streamed", "sdk-responses-streamed"),
        Billed(20, 282, reasoning=214),
        "In 2000, the **Sears Tower** (now the **Willis Tower**)",
    ),
    "responses-incomplete.json": Told(
        ("litellm-responses", "sdk-responses"),
        Billed(18, 16),
        "In the heart of the ancient forest, a bear",
        finish="length",
    ),
    "responses-incomplete.sse": Told(
        ("litellm-responses-streamed", "sdk-responses-streamed"),
        Billed(18, 16),
        "In a lush, green valley, a bear",
        finish="length",
    ),
    "messages.sse": Told(
        ("litellm-claude", "litellm-claude-streamed"),
        Billed(506, 153),
        "Certainly! I can help you with that information. To get the weather",
        calls=CLAUDES_CALLS,
    ),
    "messages-thinking.sse": Told(
        ("litellm-claude", "litellm-claude-streamed"),
        Billed(52, 216, reasoning=156),
        "The letter 'r' appears 3 times in the word \"strawberry\".",
        "Let me count the occurrences of the letter 'r'",
    ),
    "messages-cached.sse": Told(
        ("litellm-claude",),
        Billed(1169, 221, cached=1165),
        "Here are concise summaries of the three articles",
    ),
    "converse.json": Told(
        ("converse-gpt",),
        Billed(415, 190),
        "<thinking> To provide the weather information for both",
        calls=CONVERSE_CALLS,
    ),
    "converse.eventstream": Told(
        ("converse", "converse-streamed", "converse-gpt-streamed"),
        Billed(415, 202),
        "<thinking> The User has asked for the current weather in two",
        calls=CONVERSE_CALLS,
    ),
    "converse-cached.json": Told(
        ("converse-gpt",), Billed(2705, 10, cached=2701), "Certainly! If this is a test,", finish="length"
    ),
}
"""The recorded replies; `tests/fixtures/replies/README.md` says where each comes from."""


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, told in TOLD.items() for way in told.ways])
async def test_recorded_replies(stub: LLMStub, name: str, way: str) -> None:
    told, dialect = TOLD[name], EVERY[way]
    stub.script(recorded(name))
    got, pieces = await call_once(request_of(dialect))
    text, calls = assemble(got.entries, dialect.tool_format)
    assert (got.usage, got.finish) == (told.tokens, told.finish)
    assert (text or "").startswith(told.text)
    assert bool(text) == bool(told.text)
    assert "".join(calls[0].reasoning or ()).startswith(told.reasoning)
    made = [(each.tool_name, each.tool_args) for each in calls if each.tool_name != "text_output"]
    assert made == list(told.calls)
    if not (name.startswith("responses") and name.endswith(".json")):  # has no deltas
        assert dict(pieces).get("text") == text
        assert dict(pieces).get("reasoning", "").startswith(told.reasoning)
    if name in SEALED:  # what the provider has sealed goes back as it was; the stub knows only its own seals
        (sealed,) = (each for each in _texts(got.entries) if len(each) > 200 and " " not in each)
        assert sealed.encode() in recorded(name).body
        with pytest.raises(ModelError):
            await supervisor(dialect)(after([prompt()], calls), "auto")
        assert sealed in _texts(stub.requests[-1].body)
        stub.complaints.clear()
    else:
        stub.script(SAID)
        await supervisor(dialect)(after([prompt()], calls), "auto")


SEALED = ("messages-thinking.sse", "responses-encrypted.sse")


def _texts(value: Any) -> list[str]:
    """All texts in a value of JSON."""
    if isinstance(value, dict | list):
        return [
            each for item in (value.values() if isinstance(value, dict) else value) for each in _texts(item)
        ]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    ("name", "ways"),
    [("chat-404.json", ("litellm-chat", "sdk-chat")), ("converse-400.json", ("converse", "converse-gpt"))],
)
async def test_recorded_errors_of_unknown_models(stub: LLMStub, name: str, ways: tuple[str, ...]) -> None:
    """Bedrock has no code for it, and no status of its own."""
    kind = "ValidationException:http://internal.amazon.com/coral/com.amazon.bedrock/"
    for way in ways:
        status = int(name.partition("-")[2].partition(".")[0])
        stub.script(recorded(name, status, x_amzn_errortype=kind))
        failure = await fail_once(request_of(EVERY[way]))
        assert failure is not None
        assert (failure.cause, failure.status) == (Cause.NO_MODEL, status)


# ------------------------------------------------------------------------------------------------- the choice


@pytest.fixture(params=[True, False], ids=["with litellm", "without"])
def has_litellm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(ports, "is_installed", lambda package: package != "litellm" or request.param)
    return bool(request.param)


@pytest.mark.parametrize(
    "llm",
    [
        "openai/gpt-5",
        "gpt-5",
        "azure/mine",
        "ollama/llama3.2",
        "hosted_vllm/x",
        "openrouter/anthropic/claude-sonnet-4.5",
    ],
)
def test_names_that_the_sdk_takes(has_litellm: bool, llm: str) -> None:
    assert way_to(llm) == (Way.LITELLM if has_litellm else Way.SDK)
    assert way_to(f"sdk/{llm}") == Way.SDK


@pytest.mark.parametrize(
    "llm", ["anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro", "unknown", "bedrock/invoke/x.y"]
)
def test_names_that_need_litellm(has_litellm: bool, llm: str) -> None:
    assert way_to(llm) == Way.LITELLM
    assert way_to(llm, is_proxy=True) == (Way.LITELLM if has_litellm else Way.SDK)


@pytest.mark.parametrize(
    "llm",
    [
        BEDROCK,
        "bedrock/converse/amazon.nova-pro-v1:0",
        "bedrock/us-gov-west-1/anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock/arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.amazon.nova-pro-v1:0",
    ],
)
def test_names_of_bedrock(has_litellm: bool, llm: str) -> None:
    assert way_to(llm) == Way.CONVERSE


# ------------------------------------------------------------------------------------------------- destinations


@pytest.mark.parametrize(
    ("llm", "variables", "target"),
    [
        ("openai/gpt-5-mini", {}, "/v1/chat/completions"),
        ("azure/mine", {"AZURE_API_BASE": "{url}/", "AZURE_API_KEY": "k"}, "/openai/v1/chat/completions"),
        (
            "azure/mine",
            {"AZURE_API_BASE": "{url}", "AZURE_API_KEY": "k", "AZURE_API_VERSION": "2024-10-21"},
            "/openai/deployments/mine/chat/completions?api-version=2024-10-21",
        ),
        ("ollama/llama3.2", {"OLLAMA_API_BASE": "{url}"}, "/v1/chat/completions"),
        ("hosted_vllm/org/model", {"HOSTED_VLLM_API_BASE": "{url}/v1"}, "/v1/chat/completions"),
        (
            "openrouter/qwen/qwen3",
            {"OPENROUTER_API_BASE": "{url}/api/v1", "OPENROUTER_API_KEY": "k"},
            "/api/v1/chat/completions",
        ),
    ],
)
async def test_where_the_sdk_calls(
    stub: LLMStub, monkeypatch: pytest.MonkeyPatch, llm: str, variables: dict[str, str], target: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(url=stub.url))
    stub.script(SAID)
    await call_once(
        request_of(Dialect(f"sdk/{llm}", "completions"), top_p=0.5, extra_headers={"x-team": "a"})
    )
    (asked,) = stub.requests
    assert asked.target == target
    assert asked.body["model"] == llm.partition("/")[2]
    assert (asked.body["top_p"], asked.headers["x-team"]) == (0.5, "a")


@pytest.mark.parametrize(
    ("llm", "missing"),
    [
        ("azure/mine", "AZURE_API_KEY and AZURE_API_BASE"),
        ("hosted_vllm/x", "HOSTED_VLLM_API_BASE"),
        ("openrouter/a/b", "OPENROUTER_API_KEY"),
    ],
)
async def test_what_the_environment_lacks(monkeypatch: pytest.MonkeyPatch, llm: str, missing: str) -> None:
    agent = supervisor(Dialect(f"sdk/{llm}", "completions"))
    assert agent.problems() == [f"sdk/{llm} has no API key: set {missing} where this agent runs"]
    with pytest.raises(ModelAccessDenied, match=f"set {missing} where"):
        await agent([prompt()])


ARN = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.anthropic.claude-x"


@pytest.mark.parametrize(
    ("llm", "target"),
    [
        (BEDROCK, "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"),
        ("bedrock/eu-central-1/amazon.nova-pro-v1:0", "/model/amazon.nova-pro-v1%3A0/converse"),
        (
            f"bedrock/{ARN}",
            "/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A123456789012%3Ainference-profile%2Feu.anthropic.claude-x"
            "/converse-stream",
        ),
    ],
)
async def test_where_converse_calls(stub: LLMStub, llm: str, target: str) -> None:
    """The stub checks the signature, which covers the path as it was sent."""
    stub.script(SAID)
    await call_once(request_of(Dialect(llm, "responses")))
    assert stub.requests[0].target == target


async def test_an_agent_has_its_own_address_of_bedrock(
    stub: LLMStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "http://127.0.0.1:9")
    stub.script(SAID)
    await call_once(request_of(EVERY["converse"], aws_bedrock_runtime_endpoint=stub.url))
    assert len(stub.requests) == 1


async def test_a_key_of_bedrock_replaces_the_signature(
    stub: LLMStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key")
    stub.script(SAID)
    await call_once(request_of(EVERY["converse"]))
    assert stub.requests[0].key == "bedrock-key"


async def test_a_wrong_identity_is_named(stub: LLMStub) -> None:
    request = request_of(
        EVERY["converse"], aws_access_key_id=IDENTITY.access_key, aws_secret_access_key="wrong"
    )
    failure = await fail_once(request)
    assert failure is not None
    assert (failure.cause, failure.status) == (Cause.FORBIDDEN, 403)
    assert failure.variables == ("the AWS identity of this process",)
    assert "signature" in stub.complaints.pop()


@pytest.mark.soak
async def test_a_hundred_calls_of_bedrock_take_no_threads(stub: LLMStub) -> None:
    stub.otherwise = lambda _request: SAID.but(delay=0.5)
    request = request_of(EVERY["converse-gpt"])
    await call_once(request)
    before, most = threading.active_count(), list[int]()

    async def ask() -> None:
        await call_once(request)
        most.append(threading.active_count())

    await asyncio.gather(*(ask() for _ in range(100)))
    assert max(most) <= before + 1
    assert len(stub.requests) == 101


WITHOUT = """
import asyncio, sys
sys.modules["litellm"] = None
from mail import Agent, Swarm
print(Swarm(Agent("lead", "You greet.", model=sys.argv[1])).ask("Hi"))
print(sorted({"openai", "botocore", "boto3", "fastapi"} & set(sys.modules)))
"""


@pytest.mark.soak(on="bedrock")
@pytest.mark.parametrize(("llm", "imported"), [(GPT, "['openai']"), (BEDROCK, "['botocore']")])
def test_litellm_is_not_needed(stub: LLMStub, llm: str, imported: str) -> None:
    stub.script(reply(call("task_complete", finish_message="Hello!")))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, llm], capture_output=True, text=True, timeout=280, check=False
    )
    assert (done.stdout, done.stderr) == (f"Hello!\n{imported}\n", "")
