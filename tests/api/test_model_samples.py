"""The samples of the seeds on factories, reasoning traces and configuration run; those of the Python API are in
`test_documented_samples`.

Language models are played by the stub of `support.services.llm_stub`, through the real litellm and the real SDKs.
"""

import json
import socket
import tomllib
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import test_documented_samples as documented
from openai.types.responses import ResponseReasoningItem, ResponseReasoningSummaryTextDeltaEvent
from openai.types.responses.response_reasoning_item import Summary
from support.seeds import blocks
from support.services.llm_stub import LLMStub, Request, Tokens, call, redacted, reply, search, text, thinking
from test_documented_samples import run

from mail import MAILAgentTemplate
from mail.config import ClientConfig, ServerConfig
from mail.config.models import AS_GIVEN
from mail.core.protocol.calls import TEXT_OUTPUT, AgentToolCall
from mail.core.task.events import EventKind
from mail.errors import ConfigurationError
from mail.examples.analyst_dummy.agent import LiteLLMAnalystFunction
from mail.examples.analyst_dummy.prompts import SYSPROMPT
from mail.factories import LiteLLMAgentFunction
from mail.factories.models import get_litellm
from mail.swarms_json import build_swarm, load_swarm, validate_swarm_from_swarms_json
from mail.testing.rig import Rig

FACTORIES = "docs/factories.md"
FINDINGS = "docs/reasoning-trace-findings.md"
CONFIGURATION = "docs/configuration.md"
pytestmark = pytest.mark.skipif(not blocks(), reason="the seeds are not at hand")


def sample(document: str, language: str, number: int) -> str:
    """The code of a sample; each is asked for by what runs it."""
    wanted = (document, language, number)
    return next(each.code for each in blocks() if (each.document, each.language, each.number) == wanted)


# ------------------------------------------------------------------------------------------------ language models


@pytest.fixture
async def stub(stub: LLMStub) -> AsyncIterator[LLMStub]:
    yield stub
    await documented.finish_tasks()


# -------------------------------------------------------------------------------------------- docs/factories.md

NO_PARAMETERS = '{"type": "object", "properties": {}}'


class TestFactories:
    async def test_quick_start(self, stub: LLMStub, capsys: pytest.CaptureFixture[str]) -> None:
        """Samples 1 and 2; the first runs as it stands, but no provider takes `{...}` as a JSON Schema."""
        namespace: dict[str, Any] = {"Any": Any}
        await run(sample(FACTORIES, "python", 1), namespace)
        assert isinstance(namespace["analytics_agent"], LiteLLMAgentFunction)
        await run(sample(FACTORIES, "python", 1).replace("{...}", NO_PARAMETERS), namespace)
        stub.script(reply(thinking("Hm."), text("Fine.")))
        await run(sample(FACTORIES, "python", 2), namespace)
        said, (made,) = namespace["agent_output"]
        assert (said, made.tool_name, made.reasoning) == ("Fine.", TEXT_OUTPUT, ["Hm."])
        assert capsys.readouterr().out == "[analyst] Hm.\n[analyst] Fine.\n"
        (request,) = stub.requests
        assert request.path == "/responses"
        asked = {name: request.body[name] for name in ("model", "tool_choice", "max_output_tokens", "stream")}
        assert asked == {
            "model": "openai/gpt-5-mini",  # the proxy, and not litellm, takes the provider off
            "tool_choice": "auto",
            "max_output_tokens": 6000,
            "stream": True,
        }
        assert request.body["reasoning"]["effort"] == "low"
        assert request.body["tools"][0]["name"] == "fetch_report"

    async def test_subclass(self, stub: LLMStub) -> None:
        """Sample 3."""
        namespace: dict[str, Any] = {}
        await run(sample(FACTORIES, "python", 3), namespace)
        analyst = namespace["LiteLLMAnalystFunction"](
            name="analyst", comm_targets=["boss"], llm="openai/gpt-5-mini"
        )
        stub.script(reply(call("send_response", target="boss", subject="s", body="b")))
        _, (made,) = await analyst([{"role": "user", "content": "Test message"}])
        assert made.tool_name == "send_response"

    def test_agent_in_swarms_json(self) -> None:
        """The JSON sample; its `system` has no `python::` before it."""
        made = MAILAgentTemplate.from_swarm_json(sample(FACTORIES, "json", 1))
        assert (made.name, made.comm_targets) == ("analyst", ["consultant", "supervisor"])
        function = made.instantiate({}).function
        assert isinstance(function, LiteLLMAnalystFunction)
        assert (function.llm, function.system) == ("openai/gpt-5-mini", SYSPROMPT)
        with pytest.raises(ConfigurationError, match="Did you mean 'SYSPROMPT'"):
            MAILAgentTemplate.from_swarm_json(sample(FACTORIES, "json", 1).replace("SYSPROMPT", "SYSPROMT"))

    def test_agent_in_a_swarm(self) -> None:
        """`build_swarm` reads it in the same way, and allows nothing that it would not allow with `python::`."""
        analyst = json.loads(sample(FACTORIES, "json", 1))
        others = [
            {"name": name, "factory": "python::mail.factories:LiteLLMSupervisorFunction",
             "agent_params": {"llm": "openai/gpt-5-mini", "system": "You lead."},
             "enable_entrypoint": True, "can_complete_tasks": True}
            for name in analyst["comm_targets"]
        ]  # fmt: skip
        entry = validate_swarm_from_swarms_json(
            {"name": "s", "version": "1", "entrypoint": "supervisor", "agents": [analyst, *others]}
        )
        function = build_swarm(entry).agents["analyst"].function
        assert isinstance(function, LiteLLMAnalystFunction)
        assert function.system == SYSPROMPT
        allowed = ["mail.factories", "mail.examples.analyst_dummy.agent"]
        with pytest.raises(ConfigurationError, match="SYSPROMPT' may not be imported"):
            build_swarm(entry, allowed_prefixes=allowed)


# -------------------------------------------------------------------------------- docs/reasoning-trace-findings.md

PUZZLE = [{"role": "user", "content": "Who owns the zebra?"}]
REPORT = {
    "type": "function",
    "name": "report",
    "description": "Report.",
    "parameters": {"type": "object", "properties": {}},
}
TRADEOFFS = {
    "name": "analyze_tradeoffs",
    "description": "Weigh.",
    "input_schema": {"type": "object", "properties": {}},
}
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}

SOLVED = reply(
    thinking("Analyzing Chesterfield.\n\nSo it is the Japanese."),
    call("report"),
    call("report"),
    tokens=Tokens(output=2000, reasoning=1726),
)
SUMMARIES = ["Analyzing Chesterfield.", "So it is the Japanese."]


class TestOpenAI:
    """What the findings say of OpenAI's Responses API; and our agent function comes to the same."""

    async def ask(self, streams: bool) -> Any:
        """Sample 1, whose `stream=True/False` stands for either."""
        litellm = await get_litellm()
        code = sample(FINDINGS, "python", 1).replace("stream=True/False", f"stream={streams}")
        namespace = {"aresponses": litellm.aresponses, "messages": PUZZLE, "tools": [REPORT]}
        await run(f"answer = {code}", namespace)
        return namespace["answer"]

    async def ours(self, streams: bool) -> list[AgentToolCall]:
        agent = LiteLLMAgentFunction(
            name="solver",
            comm_targets=[],
            tools=[REPORT],
            llm="openai/gpt-5.2",
            reasoning_effort="high",
            stream_tokens=streams,
            print_llm_streams=False,
        )
        _, calls = await agent(PUZZLE)
        return calls

    async def test_whole(self, stub: LLMStub) -> None:
        """Samples 1, 2, 3 and 9."""
        stub.script(SOLVED, SOLVED)
        answer = await self.ask(streams=False)
        assert answer.usage.output_tokens_details.reasoning_tokens == 1726
        assert answer.reasoning == {"effort": "high", "summary": "detailed"}  # what was asked for
        assert stub.requests[0].body["include"] == ["reasoning.encrypted_content"]

        namespace: dict[str, Any] = {"res": answer}
        await run(sample(FINDINGS, "python", 2), namespace)
        assert namespace["reasoning_text"] == SUMMARIES[-1]

        shape = eval(  # the sample shows a repr, in which the summary's constant type is left out
            sample(FINDINGS, "python", 3),
            {
                "ResponseReasoningItem": ResponseReasoningItem,
                "Summary": partial(Summary, type="summary_text"),
            },
        )
        item = answer.output[0]
        assert type(item) is type(shape)
        assert shape.model_fields_set <= item.model_fields_set | {"content"}
        assert item.encrypted_content.startswith(shape.encrypted_content[:6])

        calls = await self.ours(streams=False)
        namespace = {"res": answer, "tool_calls": calls}
        await run(sample(FINDINGS, "python", 9), namespace)
        assert calls[0].tool_args["reasoning"] == "\n".join(SUMMARIES)
        assert [made.reasoning for made in calls] == [SUMMARIES, None]

    async def test_without_a_summary(self, stub: LLMStub) -> None:
        """Sample 9 where the summary is empty: it adds nothing."""
        unread = reply(redacted(), call("report"))
        stub.script(unread, unread)
        calls = await self.ours(streams=False)
        namespace: dict[str, Any] = {"res": await self.ask(streams=False), "tool_calls": calls}
        await run(sample(FINDINGS, "python", 9), namespace)
        assert namespace["res"].output[0].summary == []
        assert namespace["reasoning_summary"] is None
        assert (calls[0].reasoning, calls[0].tool_args) == (None, {})

    async def test_streamed(self, stub: LLMStub, capsys: pytest.CaptureFixture[str]) -> None:
        """Samples 1, 4, 5 and 10; the last event lacks the reasoning."""
        told = SOLVED.but(leaves_out_reasoning=True)
        stub.script(told, told, told)
        seen: list[Any] = []

        async def events() -> AsyncIterator[Any]:
            async for event in await self.ask(streams=True):
                seen.append(event)
                yield event

        namespace: dict[str, Any] = {"stream": events()}
        await run(sample(FINDINGS, "python", 4), namespace)
        assert namespace["reasoning_summary"] == "".join(SUMMARIES)
        assert {item.type for item in namespace["final_response"].output} == {"function_call"}

        delta = eval(sample(FINDINGS, "python", 5), {})
        ResponseReasoningSummaryTextDeltaEvent.model_validate(delta)
        deltas = [event for event in seen if event.type == delta["type"]]
        assert "".join(event.delta for event in deltas) == "".join(SUMMARIES)
        assert all(delta.keys() == event.model_dump().keys() for event in deltas)

        calls = await self.ours(streams=True)
        assert [made.reasoning for made in calls] == [SUMMARIES, None]
        namespace = {"stream": await self.ask(streams=True), "tool_calls": calls}
        await run(sample(FINDINGS, "python", 10), namespace)
        assert capsys.readouterr().out == calls[0].tool_args["reasoning"] == "".join(SUMMARIES)


@pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")
class TestAnthropic:
    """What the findings say of Anthropic's API, asked by its SDK; and our agent function comes to the same."""

    async def ask(self, stub: LLMStub) -> Any:
        """Sample 6."""
        from anthropic import AsyncAnthropic

        async with AsyncAnthropic(base_url=stub.url, api_key="sk", max_retries=0) as client:
            namespace = {"client": client, "tools": [TRADEOFFS, WEB_SEARCH], "messages": PUZZLE}
            await run(sample(FINDINGS, "python", 6), namespace)
        assert stub.requests[-1].headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"
        return namespace["response"]

    async def ours(self, stub: LLMStub) -> list[AgentToolCall]:
        declared = {
            "name": TRADEOFFS["name"],
            "description": TRADEOFFS["description"],
            "parameters": TRADEOFFS["input_schema"],
        }
        agent = LiteLLMAgentFunction(
            name="researcher",
            comm_targets=[],
            tools=[declared, WEB_SEARCH],
            llm="anthropic/claude-sonnet-4-5-20250929",
            tool_format="completions",
            thinking_budget=10000,
            max_tokens=16000,
        )
        _, calls = await agent(PUZZLE)
        request = stub.requests[-1]
        assert "interleaved-thinking-2025-05-14" in request.headers["anthropic-beta"]
        assert request.body["thinking"] == {"type": "enabled", "budget_tokens": 10000}
        return calls

    async def both(self, stub: LLMStub, *parts: Any) -> tuple[Any, list[AgentToolCall]]:
        """What the SDK and what our agent function make of the same reply."""
        stub.script(reply(*parts), reply(*parts))
        return await self.ask(stub), await self.ours(stub)

    async def test_interleaved(self, stub: LLMStub) -> None:
        """Samples 6, 7 and 8, with the first turn that the findings observed."""
        answer, calls = await self.both(
            stub,
            thinking("I should look it up."),
            text("Let me see."),
            search("Python 3.13"),
            thinking("Now I know."),
            text("Weighing it."),
            call("analyze_tradeoffs"),
        )
        from anthropic.types import ThinkingBlock

        shape = eval(sample(FINDINGS, "python", 7), {})
        ThinkingBlock.model_validate(shape)
        assert shape.keys() == answer.content[0].to_dict().keys()

        namespace: dict[str, Any] = {"response": answer, "tool_calls": [], "AgentToolCall": from_a_reply}
        await run(sample(FINDINGS, "python", 8), namespace)
        theirs = namespace["tool_calls"]
        assert [made.tool_name for made in theirs] == ["web_search", "analyze_tradeoffs"]
        assert [thoughts(made) for made in theirs] == [["I should look it up."], ["Now I know."]]
        assert [made.reasoning for made in calls] == [thoughts(made) for made in theirs]

    async def test_parallel_and_redacted(self, stub: LLMStub) -> None:
        """Samples 8 and 11: the first of parallel calls gets what was thought, though it can't be read."""
        answer, calls = await self.both(
            stub, thinking("Hm."), redacted(), call("analyze_tradeoffs"), call("analyze_tradeoffs")
        )
        namespace: dict[str, Any] = {"response": answer, "tool_calls": [], "AgentToolCall": from_a_reply}
        await run(sample(FINDINGS, "python", 8), namespace)
        first, second = namespace["tool_calls"]
        assert thoughts(first) == ["Hm.", "[REDACTED]"]
        assert "thinking_blocks" not in second.tool_args

        theirs = (await self.recommended(answer))["tool_calls"]
        assert [made.tool_args.get("thinking_blocks") for made in theirs] == [
            made.reasoning for made in calls
        ]
        assert calls[0].reasoning == ["Hm.", "[redacted thinking]"]

    async def test_text_alone(self, stub: LLMStub) -> None:
        """Sample 11: what was thought goes to `text_output`."""
        answer, (made,) = await self.both(stub, thinking("Done."), text("It is the Japanese."))
        namespace = await self.recommended(answer)
        assert namespace["tool_calls"] == []
        assert made.tool_name == TEXT_OUTPUT
        assert made.reasoning == namespace["text_thinking"] == ["Done."]

    async def recommended(self, answer: Any) -> dict[str, Any]:
        """Sample 11, in which `...` stands for what sample 8 gives."""
        given = "tool_name=block.name, tool_args=dict(block.input), tool_call_id=block.id"
        code = sample(FINDINGS, "python", 11).replace("AgentToolCall(...)", f"AgentToolCall({given})")
        namespace: dict[str, Any] = {"response": answer, "tool_calls": [], "AgentToolCall": from_a_reply}
        await run(code, namespace)
        return namespace


from_a_reply = partial(AgentToolCall, completion={"role": "assistant", "content": "…"})
"""The samples leave out what docs/CHECKLIST.md requires: the reply that a call is of."""


def thoughts(made: AgentToolCall) -> list[str]:
    """What sample 8 has put into the arguments of a call."""
    return [block["content"] for block in made.tool_args["thinking_blocks"]]


# -------------------------------------------------------------------------------------------- docs/configuration.md


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no way to https://example.com, on any machine: its proxy is a port at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{unused.getsockname()[1]}")


class TestConfiguration:
    @pytest.mark.usefixtures("unreachable")
    async def test_swarms_json(self, stub: LLMStub, tmp_path: Path) -> None:
        """Loaded, checked, built, and asked something that needs all its agents and both their actions."""
        source = tmp_path / "swarms.json"
        source.write_text(sample(CONFIGURATION, "json", 1), encoding="utf-8")
        swarm = build_swarm(load_swarm("example", source))
        assert set(swarm.actions) == {
            "get_weather_forecast",
            "calculate_expression",
            "mcp_ping",
            "mcp_list_tools",
        }
        stub.otherwise = Office()
        async with Rig(swarm) as rig:
            outcome = await rig.ask("What is 6 times 7, and the weather in Oslo?")
        assert outcome.answer == "Both are done."
        called = Counter(event.extra.as_json()["tool_name"] for event in outcome.of(EventKind.TOOL_CALL))
        assert (called["get_weather_forecast"], called["calculate_expression"]) == (1, 1)
        written = {message.message.sender.address: message.message.body for message in outcome.messages}
        assert "Oslo" in written["weather"]
        assert "42" in written["math"]
        systems = {request.body["instructions"] for request in stub.requests}
        assert systems == {
            f"https://example.com/sysprompts/{name}.json" for name in ("supervisor", "weather")
        }

    def test_mail_toml(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every value of the file is the configuration's; they are also the defaults without any file."""
        for name in ("MAIL_CONFIG_PATH", "DATABASE_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(tmp_path)
        text = sample(CONFIGURATION, "toml", 1)
        defaults = ServerConfig(), ClientConfig()
        Path("mail.toml").write_text(text, encoding="utf-8")
        assert (ServerConfig(), ClientConfig()) == defaults
        wanted = tomllib.loads(text)
        assert subset(ServerConfig().model_dump(), wanted["server"]) == wanted["server"]
        assert ClientConfig().model_dump() == wanted["client"]
        assert load_swarm(ServerConfig().swarm.name, ServerConfig().swarm.source).name == "example-no-proxy"

    def test_mail_toml_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With other values than the defaults: the sample's keys are those that are read."""
        text = sample(CONFIGURATION, "toml", 1)
        for value, other in {"8000": "8001", "0.0.0.0": "::1", "15": "16", "true": "false", "3600.0": "5.0",
                             "example-no-proxy": "other", "swarms.json": "more.json"}.items():  # fmt: skip
            assert value in text
            text = text.replace(value, other)
        path = tmp_path / "other.toml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("MAIL_CONFIG_PATH", str(path))
        wanted = tomllib.loads(text)
        server = ServerConfig()
        assert subset(server.model_dump(), wanted["server"]) == wanted["server"]
        assert ClientConfig().model_dump() == wanted["client"]
        assert server != ServerConfig.model_validate({}, context=AS_GIVEN)


def subset(value: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """`value` with these keys only, at any depth."""
    return {
        name: subset(value[name], inner) if isinstance(inner, dict) else value[name]
        for name, inner in keys.items()
    }


class Office:
    """Plays the three agents of the documented swarm, each known by its tools."""

    def __call__(self, request: Request) -> Any:
        tools = {tool["name"] for tool in request.body["tools"]}
        said = json.dumps(request.body["input"])
        results = [
            item["output"] for item in request.body["input"] if item.get("type") == "function_call_output"
        ]
        if "get_weather_forecast" in tools:
            return self._work("get_weather_forecast", results, location="Oslo", days_ahead=0, metric=True)
        if "calculate_expression" in tools:
            return self._work("calculate_expression", results, expression="6*7")
        if not results:
            return reply(
                call("send_request", target="weather", subject="Weather", body="In Oslo?"),
                call("send_request", target="math", subject="Sum", body="6 times 7?"),
                call("await_message"),
            )
        if "Oslo weather" in said and "The sum" in said:
            return reply(call("task_complete", finish_message="Both are done."))
        return reply(call("await_message"))

    def _work(self, action: str, results: list[str], **arguments: Any) -> Any:
        if not results:
            return reply(call(action, **arguments))
        subject = {"get_weather_forecast": "Oslo weather", "calculate_expression": "The sum"}[action]
        return reply(call("send_response", target="supervisor", subject=subject, body=results[0]))
