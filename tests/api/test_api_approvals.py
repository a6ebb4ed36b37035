"""`needs_approval` of `@action` and `MAILAction`, in a swarm inside a program."""

from typing import Any

import pytest
from pydantic import BaseModel

from mail.api import MAILAction, action
from mail.core.task.task import TaskStatus
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.rig import Rig


class Refund(BaseModel):
    amount: int


def is_large(arguments: dict[str, Any]) -> bool:
    return arguments["amount"] > 100


@action(needs_approval=is_large, approval_timeout=60)
def refund(given: Refund) -> str:
    """Refund an order."""
    return f"refunded {given.amount}"


SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}}


@pytest.mark.parametrize(
    "made",
    [
        refund,
        MAILAction.from_core(refund.to_core()),
        MAILAction(
            "refund", "Refund.", SCHEMA, lambda given: f"refunded {given['amount']}", needs_approval=is_large
        ),
    ],
)
@pytest.mark.parametrize(("amount", "pauses"), [(100, False), (101, True)])
async def test_a_function_of_the_arguments_decides(made: MAILAction, amount: int, pauses: bool) -> None:
    def clerk(view: View) -> Any:
        return [complete(view.results[-1])] if view.results else [call("refund", amount=amount)]

    async with Rig(build_swarm({"clerk": clerk}, actions={"refund": made.to_core()})) as rig:
        outcome = await rig.ask()
        assert (outcome.task.status is TaskStatus.PAUSED) is pauses
        if pauses:
            outcome = await rig.ask(
                "",
                task_id=outcome.key.task_id,
                resume_from="breakpoint_tool_call",
                approvals=[{"decision": "approve"}],
            )
    assert outcome.answer == f"SUCCESS: refunded {amount}"
