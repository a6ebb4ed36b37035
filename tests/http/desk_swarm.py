"""A swarm that other protocols call: its agents answer, ask, wait for approval, take their time, or fail."""

from typing import Any

from support.faults.gates import Gate

from mail.core.task.swarm import ActionCore, SwarmCore
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def work(view: View) -> list[Call]:
    """Answer; or do first what the message says, and answer with the result."""
    if view.history[-1]["role"] == "tool" or view.mail.sender_type == "system":
        return [complete(view.results[-1])]
    match view.mail.body:
        case "ask":
            return [call("ask_user", question="Which city?")]
        case "pay":
            return [call("pay", amount=5)]
        case "dig":
            return [call("dig")]
        case "fail":
            raise RuntimeError("out of order")
    files = " ".join(f"file:{each['id']}" for each in view.history[-1].get("files", ()))
    return [complete(f"you said: {view.mail.body} {files}".strip())]


def desk_swarm(gate: Gate | None = None) -> SwarmCore:
    """The swarm, with a `desk` and a second agent, named as a tool of MCP is; `dig` waits for the gate."""

    async def dig(_arguments: dict[str, Any]) -> str:
        assert gate is not None
        gate.begun.set()
        await gate.opened.wait()
        return "dug"

    async def pay(arguments: dict[str, Any]) -> str:
        return f"paid {arguments['amount']}"

    actions = ["dig", "pay", "ask_user"]
    return build_swarm(
        {
            "desk": build_agent(work, supervises=True, actions=actions, description="The desk."),
            "task": build_agent(
                work, supervises=True, actions=actions, name="task", description="The annex."
            ),
        },
        actions={"dig": dig, "pay": ActionCore("pay", pay, needs_approval=True), "ask_user": dig},
        breakpoint_tools=frozenset({"ask_user"}),
        description="It works.",
        keywords=("digging", "paying"),
    )


def typed_swarm() -> SwarmCore:
    """A swarm whose answer is {"n": 5}."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return build_swarm({"desk": lambda _view: [call("task_complete", output={"n": 5})]}, output_schema=schema)
