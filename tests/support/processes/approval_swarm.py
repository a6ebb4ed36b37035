"""A swarm for `mail server` whose agent pays `bob` as the message says; payments over 100 need approval.

It also asks: `ask NAME` is a call of a breakpoint tool.
"""

import json
import textwrap
from pathlib import Path

from support.processes.server import ServerProcess

MODULE = r'''
    """Pays, and notes each payment in a file."""

    import json
    import re
    from pathlib import Path
    from typing import Any

    from mail.core.tools import AgentToolCall

    PAID = Path(__file__).with_name("paid.txt")


    def payer(**_: Any) -> Any:
        async def step(history: list[dict[str, Any]], _choice: Any) -> Any:
            results = [entry["content"] for entry in history if entry["role"] == "tool"]
            body = history[0]["content"].partition("<body>")[2]
            wanted = [("ask", {"question": name}) for name in re.findall(r"ask (\w+)", body)]
            wanted += [("pay", {"to": "bob", "amount": int(amount)}) for amount in re.findall(r"\d+", body)]
            if results:
                wanted = [("task_complete", {"finish_message": " | ".join(results)})]
            said = {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": f"c{len(history)}-{n}",
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(arguments)},
                    }
                    for n, (name, arguments) in enumerate(wanted)
                ],
            }
            return None, [
                AgentToolCall(
                    tool_name=name, tool_args=arguments, tool_call_id=f"c{len(history)}-{n}", completion=said
                )
                for n, (name, arguments) in enumerate(wanted)
            ]

        return step


    async def pay(arguments: dict[str, Any]) -> str:
        with PAID.open("a") as paid:
            paid.write(f"{arguments['to']} {arguments['amount']}\n")
        return f"paid {arguments['amount']} to {arguments['to']}"


    def is_large(arguments: dict[str, Any]) -> bool:
        return arguments["amount"] > 100
'''

SWARM = {
    "name": "bank",
    "version": "1.0.0",
    "entrypoint": "payer",
    "agents": [
        {
            "name": "payer",
            "factory": "python::paying_agent:payer",
            "comm_targets": [],
            "actions": ["pay", "ask"],
            "tool_format": "completions",
            "enable_entrypoint": True,
            "can_complete_tasks": True,
        }
    ],
    "actions": [
        {
            "name": "pay",
            "function": "python::paying_agent:pay",
            "parameters": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
                "required": ["to", "amount"],
            },
            "needs_approval": "python::paying_agent:is_large",
        },
        {
            "name": "ask",
            "function": "python::paying_agent:pay",
            "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
        },
    ],
    "breakpoint_tools": ["ask"],
}


class Bank(ServerProcess):
    """`mail server` with this swarm."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "paying_agent.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
        (folder / "swarms.json").write_text(json.dumps([SWARM]), encoding="utf-8")
        super().__init__(folder, "--swarm-name", "bank")

    @property
    def paid(self) -> list[str]:
        """The payments so far."""
        path = self.folder / "paid.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
