"""A swarm for `mail server` whose agent pays `bob` as the message says; payments over 100 need approval.

It also asks: `ask NAME` is a call of a breakpoint tool, and `consult NAME` one that an admin answers. `wire AMOUNT`
pays what an admin approves, or user `eve`.
"""

from pathlib import Path

from support.processes.projects import entry, supervisor, write_project
from support.processes.server import ServerProcess

MODULE = r'''
    """Pays, and notes each payment in a file."""

    import re
    from pathlib import Path
    from typing import Any

    from mail.factories.rules import Call, View, call, complete, rule_based

    PAID = Path(__file__).with_name("paid.txt")


    @rule_based
    def payer(view: View) -> list[Call]:
        if view.results:
            return [complete(" | ".join(view.results))]
        body = view.messages[0].body
        pay = "wire" if body.startswith("wire") else "pay"
        return [
            *(call(tool, question=name) for tool, name in re.findall(r"(ask|consult) (\w+)", body)),
            *(call(pay, to="bob", amount=int(amount)) for amount in re.findall(r"\d+", body)),
        ]


    async def pay(arguments: dict[str, Any]) -> str:
        with PAID.open("a") as paid:
            paid.write(f"{arguments['to']} {arguments['amount']}\n")
        return f"paid {arguments['amount']} to {arguments['to']}"


    def is_large(arguments: dict[str, Any]) -> bool:
        return arguments["amount"] > 100
'''

SWARM = entry(
    "bank",
    supervisor(
        "payer", "paying_agent:payer", actions=["pay", "wire", "ask", "consult"], tool_format="completions"
    ),
    actions=[
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
            "name": "wire",
            "function": "python::paying_agent:pay",
            "parameters": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
                "required": ["to", "amount"],
            },
            "needs_approval": {
                "by": ["admin", "user:eve"],
                "not_requester": True,
                "when": "python::paying_agent:is_large",
                "escalate_to": ["user:bob"],
            },
            "approval_timeout": 3600,
        },
        {
            "name": "ask",
            "function": "python::paying_agent:pay",
            "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
        },
        {"name": "consult", "needs_approval": {"by": ["admin"]}},
    ],
    breakpoint_tools=["ask", "consult"],
)


class Bank(ServerProcess):
    """`mail server` with this swarm."""

    def __init__(self, folder: Path) -> None:
        write_project(folder, SWARM, paying_agent=MODULE)
        super().__init__(folder, "--swarm-name", "bank")

    @property
    def paid(self) -> list[str]:
        """The payments so far."""
        path = self.folder / "paid.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
