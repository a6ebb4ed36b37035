"""How an unfinished turn is kept: everything of it comes back, and nothing of it is kept once per call."""

from typing import Any

import pytest

from mail.core.protocol.calls import AgentToolCall
from mail.core.task.stored import read_checkpoint, write_checkpoint
from mail.core.task.turn_state import Checkpoint, Receipt


def calls(n: int, size: int = 10) -> tuple[AgentToolCall, ...]:
    """Parallel calls of one completion."""
    arguments = {"text": "x" * size}
    completion = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"c{i}", "function": {"name": "t", "arguments": str(arguments)}} for i in range(n)
        ],
    }
    return tuple(
        AgentToolCall(tool_name="t", tool_args=arguments, tool_call_id=f"c{i}", completion=completion)
        for i in range(n)
    )


RESPONSES = AgentToolCall(
    tool_name="t", tool_args={}, tool_call_id="r", responses=[{"type": "function_call", "call_id": "r"}]
)


@pytest.mark.parametrize(
    "made", [(), calls(1), calls(3), (RESPONSES, RESPONSES), (*calls(2), RESPONSES, *calls(1))]
)
def test_all_of_it_comes_back(made: Any) -> None:
    receipts = tuple(
        Receipt(state=Receipt.State.DONE, content="fine") if n % 2 else None for n in range(len(made))
    )
    checkpoint = Checkpoint(text="thinking", calls=made, receipts=receipts)
    assert read_checkpoint(write_checkpoint(checkpoint)) == checkpoint


def test_it_grows_with_what_the_model_said_and_not_with_its_square() -> None:
    sizes = [
        len(write_checkpoint(Checkpoint(text=None, calls=calls(n, 1_000), receipts=(None,) * n)))
        for n in (10, 100)
    ]
    assert sizes[1] < 11 * sizes[0]
