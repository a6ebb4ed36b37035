"""Calls of actions that fail again and again with the same error."""

from mail.core.protocol.values import value

FAILING_CALLS = 64
"""The most calls that a task counts, so that it stays small; the one that failed longest ago is dropped first."""

NOTED_FAILURES = 3
"""Failures from which the agent reads how often the call has failed."""

FAILING_CALL_LIMIT = 8
"""Failures after which the agent's turn fails, unless the swarm or the server sets another number."""


@value(kw_only=True)
class FailingCall:
    """A call of an action that has failed with the same error each time since it last succeeded.

    Attributes:
        agent: the agent that makes it.
        call: a digest of the action's name and the arguments.
        error: a digest of the error.
        times: the number of its failures.
    """

    agent: str
    call: str
    error: str
    times: int
