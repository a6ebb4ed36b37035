"""Context variables that tell which task, agent and call the running code works for; used by logs and actions."""

from contextvars import ContextVar

CURRENT_TASK: ContextVar[str] = ContextVar("CURRENT_TASK", default="")
"""The id of the current task; empty if there is none. Decisions never depend on it; actions may use it as a key."""

CURRENT_AGENT: ContextVar[str] = ContextVar("CURRENT_AGENT", default="")
"""The mailbox of the turn that is running."""

CURRENT_MESSAGE: ContextVar[str] = ContextVar("CURRENT_MESSAGE", default="")
"""The id of the message that the turn processes."""

CURRENT_TRACE: ContextVar[str] = ContextVar("CURRENT_TRACE", default="")
"""The W3C `traceparent` of the current request; empty if it has none."""

TURN_DEADLINE: ContextVar[float | None] = ContextVar("TURN_DEADLINE", default=None)
"""When the running turn times out, by the event loop's clock; None outside of turns.

Agent functions wait for model providers no longer than that.
"""

CURRENT_CALL: ContextVar[str] = ContextVar("CURRENT_CALL", default="")
"""The id of the tool call that runs the current action. A repeated action has the same id: an idempotency key."""

CURRENT_CALLER: ContextVar[str] = ContextVar("CURRENT_CALLER", default="")
"""The instance (`TaskKey.instance`) that the running action works for; callers share threads fairly."""
