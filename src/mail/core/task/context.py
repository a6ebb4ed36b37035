"""What the present code is busy with, for whoever writes the log."""

from contextvars import ContextVar

CURRENT_TASK: ContextVar[str] = ContextVar("CURRENT_TASK", default="")
"""The id of the task that is being worked on; empty where there is none.

Never read to decide what becomes of the task; actions may look up by it what they know of the task they work for.
"""

CURRENT_AGENT: ContextVar[str] = ContextVar("CURRENT_AGENT", default="")
"""The mailbox whose turn is run, and the id of the message that it is for: likewise."""

CURRENT_MESSAGE: ContextVar[str] = ContextVar("CURRENT_MESSAGE", default="")

CURRENT_TRACE: ContextVar[str] = ContextVar("CURRENT_TRACE", default="")
"""The W3C `traceparent` that a request came with; empty where it had none."""

TURN_DEADLINE: ContextVar[float | None] = ContextVar("TURN_DEADLINE", default=None)
"""When the turn that is being run will be cut off, by the event loop's clock; None outside of turns.

An agent function that waits for somebody, such as a model's provider, waits no longer than that.
"""

CURRENT_CALL: ContextVar[str] = ContextVar("CURRENT_CALL", default="")
"""The id of the tool call whose action runs; the same when the action is repeated, so it makes an idempotency key."""
