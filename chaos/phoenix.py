"""`python -m chaos.phoenix URL`: what a running Phoenix shows of a task: its spans, tokens, costs and session.

Phoenix is `pip install arize-phoenix` in an environment of its own, and `phoenix serve`. The model is a stub.
"""

import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.processes.projects import entry, supervisor, write_project
from support.processes.server import ServerProcess
from support.services.llm_stub import LLMStub, Tokens, call, reply

TOKENS = Tokens(input=1000, output=100, cached=400, reasoning=30)
PATIENCE = 120.0

WEIGHING = """
async def weigh(arguments):
    return "it weighs a swordfish"
"""

SWARM = {
    **entry(
        "scales",
        supervisor(
            "lead",
            "mail.factories:LiteLLMSupervisorFunction",
            actions=["weigh"],
            agent_params={"llm": "openai/gpt-5-mini", "system": "You weigh."},
        ),
    ),
    "actions": [
        {
            "name": "weigh",
            "description": "Weigh something.",
            "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
            "function": "python::weighing:weigh",
        }
    ],
}

SETTINGS = """
[server.telemetry]
traces = true
content = "all"
"""

QUERY = """{ projects { edges { node { name spans(first: 100) { edges { node {
  name spanKind tokenCountPrompt tokenCountCompletion costSummary { total { cost } } trace { traceId } attributes
} } } sessions(first: 100) { edges { node { sessionId numTraces } } } } } } }"""


def main() -> int:
    """Return 1 if Phoenix doesn't show an agent, a model call with its tokens and texts, an action, and the session."""
    url = sys.argv[1].rstrip("/")
    with tempfile.TemporaryDirectory() as name, LLMStub() as stub:
        stub.script(
            reply(call("weigh", what="tea"), tokens=TOKENS),
            reply(call("task_complete", finish_message="It weighs a swordfish."), tokens=TOKENS),
        )
        folder = write_project(Path(name), SWARM, weighing=WEIGHING)
        (folder / "mail.toml").write_text(SETTINGS)
        env = {
            **stub.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_SERVICE_NAME": "scales",
        }
        task = f"tea-{int(time.time())}"
        with ServerProcess(folder, "--swarm-name", "scales", env=env) as server:
            print(server.ask("How heavy is tea?", task_id=task))
            time.sleep(2)
            server.stop()
    end = time.monotonic() + PATIENCE
    while not (shown := _shown(url, task)).get("session") and time.monotonic() < end:
        time.sleep(2)
    print(json.dumps(shown, indent=2))
    kinds = {span["kind"] for span in shown["spans"]}
    models = [span for span in shown["spans"] if span["kind"] == "llm"]
    is_whole = (
        kinds >= {"agent", "llm", "tool"}
        and [model["tokens"] for model in models] == [(1000, 100)] * 2
        and all(model["cost"] and "How heavy is tea?" in str(model["read"]) for model in models)
        and {"weigh", "task_complete"}
        <= set(re.findall(r"'name': '(\w+)'", str([model["wrote"] for model in models])))
        and shown["session"] is not None
    )
    print("Phoenix shows all of it" if is_whole else "Phoenix doesn't show all of it")
    return 0 if is_whole else 1


def _shown(url: str, task: str) -> dict[str, Any]:
    """Return the spans of a task, and whether it is a session."""
    request = Request(
        f"{url}/graphql", json.dumps({"query": QUERY}).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=60) as answer:
        found = json.load(answer)
    projects = [project["node"] for project in found["data"]["projects"]["edges"]]
    nodes = [edge["node"] for project in projects for edge in project["spans"]["edges"]]
    sessions = [edge["node"] for project in projects for edge in project["sessions"]["edges"]]
    traces = {node["trace"]["traceId"] for node in nodes if task in node["attributes"]}
    session = next((each for each in sessions if each["sessionId"] == task), None)
    spans = [_span(node) for node in nodes if node["trace"]["traceId"] in traces]
    return {"session": session, "spans": spans}


def _span(node: dict[str, Any]) -> dict[str, Any]:
    said = json.loads(node["attributes"])
    return {
        "name": node["name"],
        "kind": node["spanKind"],
        "tokens": (node["tokenCountPrompt"], node["tokenCountCompletion"]),
        "cost": ((node["costSummary"] or {}).get("total") or {}).get("cost"),
        "read": said.get("llm", {}).get("input_messages"),
        "wrote": said.get("llm", {}).get("output_messages"),
        "tool": said.get("tool"),
    }


if __name__ == "__main__":
    sys.exit(main())
