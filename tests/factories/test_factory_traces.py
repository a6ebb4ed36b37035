"""Traces of model calls, by OpenTelemetry's conventions for generative AI, as backends read them."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from factory_agents import GPT
from support.services import mcp_desk
from support.services.llm_stub import LLMStub, Tokens, call, reply, server_error

from mail import Agent, Swarm, action
from mail.core.turns.context import TURN
from mail.errors import MAILError
from mail.mcp.servers import read_servers, tool_servers
from mail.mcp.sessions import Sessions
from mail.mcp.tools import MCPTools

pytest.importorskip("opentelemetry.sdk", reason="pip install 'mail-serverless[otel]'")
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mail.adapters.telemetry.contents import MAX_BYTES, Contents
from mail.adapters.telemetry.otel import SCHEMA, OpenTelemetryTracer

CLAUDE = "anthropic/claude-sonnet-4-5"
TOKENS = Tokens(input=1000, output=100, cached=400, reasoning=30)
COST = 600 * 0.25e-6 + 400 * 0.025e-6 + 100 * 2e-6
"""Of one call of GPT."""


@action(read_only=True)
def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what} weighs a swordfish"


class Recorded:
    """What a tracer has recorded of a swarm."""

    def __init__(self, contents: Contents | None = None) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._metrics], shutdown_on_exit=False)
        self.tracer = OpenTelemetryTracer(provider, meters, contents)

    async def ask(self, body: str = "How heavy is tea?", **settings: Any) -> None:
        """Ask an agent, whose error is an answer, too."""
        agent = Agent("lead", **{"system": "You weigh.", "model": GPT, "actions": [weigh], **settings})
        async with Swarm(agent) as swarm:
            swarm.running.runtime.engine.tracer = self.tracer
            try:
                await swarm.aask(body)
            except MAILError:
                pass

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._spans.get_finished_spans()

    def spans(self, operation: str) -> list[ReadableSpan]:
        return [
            span for span in self.all if (span.attributes or {}).get("gen_ai.operation.name") == operation
        ]

    def attributes(self, operation: str, n: int = 0) -> dict[str, Any]:
        return dict(self.spans(operation)[n].attributes or {})

    def points(self, metric: str) -> list[Any]:
        data = self._metrics.get_metrics_data()
        scopes = [scope for part in data.resource_metrics for scope in part.scope_metrics] if data else []
        found = [each for scope in scopes for each in scope.metrics if each.name == metric]
        return [point for each in found for point in each.data.data_points]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded()
    yield recorded
    recorded.tracer.close()


def done(**circumstances: Any) -> Any:
    return reply(call("task_complete", finish_message="42"), **circumstances)


@pytest.mark.parametrize("tool_format", ["responses", "completions"])
async def test_a_call_has_a_span(stub: LLMStub, recorded: Recorded, tool_format: Any) -> None:
    """Attempts that failed are inside of it; nothing of the texts is."""
    stub.script(server_error(503), done(tokens=TOKENS))
    await recorded.ask(tool_format=tool_format, temperature=0.5, max_tokens=90)
    (span,) = recorded.spans("chat")
    (agent,) = recorded.spans("invoke_agent")
    assert (span.name, span.kind) == ("chat gpt-5-mini", SpanKind.CLIENT)
    assert span.parent is not None
    assert agent.context is not None
    assert span.parent.span_id == agent.context.span_id
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.schema_url == SCHEMA
    attributes = recorded.attributes("chat")
    task = attributes.pop("gen_ai.conversation.id")
    assert task == recorded.attributes("invoke_agent")["gen_ai.conversation.id"]
    assert attributes.pop("gen_ai.usage.cost") == pytest.approx(COST)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 90,
        "gen_ai.response.model": "gpt-5-mini",
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 400,
        "gen_ai.usage.reasoning.output_tokens": 30,
        "mail.attempts": 2,
    }
    assert "gen_ai.usage.input_tokens" not in recorded.attributes("invoke_agent"), "it would count twice"
    assert recorded.attributes("invoke_agent")["gen_ai.request.model"] == "gpt-5-mini"


@pytest.mark.parametrize("model", [GPT, CLAUDE])
async def test_the_first_piece_of_a_streamed_reply_is_timed(
    stub: LLMStub, recorded: Recorded, model: str
) -> None:
    stub.script(done(tokens=Tokens(input=1000, cached=400, written=200)))
    await recorded.ask(model=model, stream_tokens=model == GPT, print_llm_streams=False)
    attributes = recorded.attributes("chat")
    assert attributes["gen_ai.request.stream"] is True
    assert 0 < attributes["gen_ai.response.time_to_first_chunk"] < 60
    assert attributes["gen_ai.provider.name"] == model.split("/", maxsplit=1)[0]


async def test_a_call_that_fails(stub: LLMStub, recorded: Recorded) -> None:
    stub.script(*[server_error(503)] * 6)
    await recorded.ask()
    (span,) = recorded.spans("chat")
    assert span.status.status_code is StatusCode.ERROR
    assert not span.events
    attributes = recorded.attributes("chat")
    assert (attributes["error.type"], attributes["mail.attempts"]) == ("ModelUnavailable", 6)
    (point,) = recorded.points("gen_ai.client.operation.duration")
    assert point.attributes["error.type"] == "ModelUnavailable"


async def test_metrics(stub: LLMStub, recorded: Recorded) -> None:
    stub.script(reply(call("weigh", what="tea"), tokens=TOKENS), done(tokens=TOKENS))
    await recorded.ask()
    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.provider.name": "openai",
    }
    (duration,) = recorded.points("gen_ai.client.operation.duration")
    assert (duration.count, dict(duration.attributes)) == (2, about)
    assert duration.explicit_bounds[0] == 0.01
    tokens = {
        point.attributes["gen_ai.token.type"]: point for point in recorded.points("gen_ai.client.token.usage")
    }
    assert {kind: (point.count, point.sum) for kind, point in tokens.items()} == {
        "input": (2, 2000),
        "output": (2, 200),
    }


class TestContents:
    @pytest.mark.parametrize("tool_format", ["responses", "completions"])
    async def test_all(self, stub: LLMStub, tool_format: Any) -> None:
        recorded = Recorded(Contents("all"))
        stub.script(reply(call("weigh", what="tea")), done())
        await recorded.ask(tool_format=tool_format)
        first, second = (recorded.attributes("chat", n) for n in range(2))
        (system,) = json.loads(first["gen_ai.system_instructions"])
        assert system["content"].startswith("You weigh.")
        (asked,) = json.loads(first["gen_ai.input.messages"])
        assert asked["role"] == "user"
        assert "How heavy is tea?" in asked["parts"][0]["content"]
        (answer,) = json.loads(first["gen_ai.output.messages"])
        (part,) = answer["parts"]
        call_id = part["id"]
        assert part == {"type": "tool_call", "id": call_id, "name": "weigh", "arguments": {"what": "tea"}}
        assert (answer["role"], answer["finish_reason"]) == ("assistant", "tool_call")
        _, again, result, *_ = json.loads(second["gen_ai.input.messages"])
        assert again == {"role": "assistant", "parts": [part]}
        text = "SUCCESS: tea weighs a swordfish"
        assert result["parts"] == [{"type": "tool_call_response", "id": call_id, "response": text}]
        tools = {tool["name"]: tool for tool in json.loads(first["gen_ai.tool.definitions"])}
        assert tools["weigh"]["parameters"]["required"] == ["what"]
        action = recorded.attributes("execute_tool")
        assert json.loads(action["gen_ai.tool.call.arguments"]) == {"what": "tea"}
        assert action["gen_ai.tool.call.result"] == "tea weighs a swordfish"

    async def test_messages(self, stub: LLMStub) -> None:
        recorded = Recorded(Contents("messages"))
        stub.script(reply(call("weigh", what="tea")), done())
        await recorded.ask()
        assert "swordfish" in recorded.attributes("chat", 1)["gen_ai.input.messages"]
        assert "gen_ai.tool.definitions" not in recorded.attributes("chat")
        assert recorded.attributes("execute_tool").keys() == {
            "gen_ai.operation.name",
            "gen_ai.tool.name",
            "gen_ai.tool.call.id",
            "gen_ai.tool.type",
        }

    async def test_every_text_is_redacted(self, stub: LLMStub) -> None:
        recorded = Recorded(Contents("all", lambda text: text.replace("swordfish", "***")))
        stub.script(reply(call("weigh", what="swordfish")), done())
        await recorded.ask("Heavy as a swordfish?", system="Love the swordfish.")
        texts = "".join(
            str(span.attributes) for name in ("chat", "execute_tool") for span in recorded.spans(name)
        )
        assert "***" in texts
        assert "swordfish" not in texts

    async def test_a_redactor_that_fails_lets_nothing_out(self, stub: LLMStub) -> None:
        recorded = Recorded(Contents("all", lambda text: str(1 // 0)))
        stub.script(reply(call("weigh", what="tea")), done())
        await recorded.ask()
        texts = "".join(
            str(span.attributes) for name in ("chat", "execute_tool") for span in recorded.spans(name)
        )
        assert "(not recorded: its redaction failed)" in texts
        assert not [word for word in ("swordfish", "How heavy", "You weigh") if word in texts]

    async def test_an_attribute_has_64_kib(self, stub: LLMStub) -> None:
        recorded = Recorded(Contents("all"))

        @action(read_only=True)
        def excerpt(part: str) -> str:
            """Read a part."""
            return f"{part}: {'🦊' * 30_000}"

        parts = "abcdef"
        stub.script(*(reply(call("excerpt", part=part)) for part in parts), done())
        await recorded.ask("b" * 70_000, actions=[excerpt])
        for span in (*recorded.spans("chat"), *recorded.spans("execute_tool")):
            assert all(len(str(value).encode()) <= MAX_BYTES for value in (span.attributes or {}).values())
        first, *_, last = (
            json.loads(recorded.attributes("chat", n)["gen_ai.input.messages"]) for n in range(7)
        )
        assert first[0]["parts"][0]["content"].endswith("more characters)")
        assert last[0]["role"] == "system"
        assert "earlier messages are left out" in last[0]["parts"][0]["content"]
        assert "f: 🦊" in str(last[-1])


def langfuse(span: ReadableSpan) -> dict[str, Any]:
    """Return what Langfuse makes of a span in OTLP, by https://langfuse.com/integrations/native/opentelemetry."""
    (sent,) = encode_spans([span]).resource_spans[0].scope_spans[0].spans
    given = {each.key: each.value for each in sent.attributes}

    def value(name: str) -> Any:
        found = given[name]
        return getattr(found, found.WhichOneof("value"))

    names = {"input_tokens": "input", "output_tokens": "output"}
    usage = {
        name.removeprefix("gen_ai.usage."): value(name) for name in given if name.startswith("gen_ai.usage.")
    }
    cost = usage.pop("cost", None)
    return {
        "type": {"chat": "generation", "invoke_agent": "agent", "execute_tool": "tool"}[
            value("gen_ai.operation.name")
        ],
        "model": value("gen_ai.request.model"),
        "modelParameters": {
            name.removeprefix("gen_ai.request."): value(name)
            for name in given
            if name.startswith("gen_ai.request.") and name != "gen_ai.request.model"
        },
        "usageDetails": {names.get(name, name): tokens for name, tokens in usage.items()},
        "costDetails": {} if cost is None else {"total": cost},
        "input": json.loads(value("gen_ai.input.messages")),
        "output": json.loads(value("gen_ai.output.messages")),
    }


async def test_langfuse_reads_a_generation(stub: LLMStub) -> None:
    recorded = Recorded(Contents("messages"))
    stub.script(done(tokens=TOKENS))
    await recorded.ask(temperature=0.5)
    read = langfuse(recorded.spans("chat")[0])
    assert (read["type"], read["model"], read["modelParameters"]) == (
        "generation",
        "gpt-5-mini",
        {"temperature": 0.5},
    )
    assert read["usageDetails"] == {
        "input": 1000,
        "output": 100,
        "cache_read.input_tokens": 400,
        "reasoning.output_tokens": 30,
    }
    assert read["costDetails"] == {"total": pytest.approx(COST)}
    assert "How heavy is tea?" in read["input"][0]["parts"][0]["content"]
    assert read["output"][0]["parts"][0]["arguments"] == {"finish_message": "42"}


@pytest.mark.soak(on="stdio")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_mcp_servers_get_the_trace(stub: LLMStub, recorded: Recorded, transport: str) -> None:
    """A call's `_meta` names the span of the action (SEP-414), over each transport; over HTTP a header as well."""
    stub.script(reply(call("trace"), call("trace_header")), done())
    async with mcp_desk.serving(mcp_desk.desk()) as url:
        server = url if transport == "http" else [sys.executable, mcp_desk.__file__]
        await recorded.ask(actions=[], mcp=[server])
    spans = [span.context for span in recorded.spans("execute_tool") if span.context is not None]
    here = {f"SUCCESS: 00-{span.trace_id:032x}-{span.span_id:016x}" for span in spans}
    seen = {item["output"].rpartition("-")[0] for item in stub.requests[1].body["input"] if "output" in item}
    assert len(here) == 2
    assert len(seen & here) == (2 if transport == "http" else 1)


async def test_mcp_servers_get_the_trace_of_others(stub: LLMStub) -> None:
    """A server that traces nothing passes on the trace of the task."""
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with mcp_desk.serving(mcp_desk.desk()) as url:
        tools = MCPTools(tool_servers(read_servers("agent 'a'", [url])), (), Sessions(), False)
        TURN.set(replace(TURN.get(), traceparent=given))
        actions = (await tools.tools()).actions
        assert await actions["trace"].function({}) == given
        assert await actions["trace_header"].function({}) == given
        TURN.set(replace(TURN.get(), traceparent=""))
        assert await actions["trace_header"].function({}) == "None"
        await tools.aclose()
