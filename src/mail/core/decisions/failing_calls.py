"""Counting calls of actions that fail again and again. Pure functions.

The same call has the same name and arguments, whatever the order of their keys. It is counted across turns and within
one, until it succeeds or fails with another error; a call that succeeds is never counted, however often it is made.
"""

import json
from hashlib import sha256

from mail.core.protocol.calls import AgentToolCall
from mail.core.task.failing_calls import FAILING_CALLS, NOTED_FAILURES, FailingCall


def count_call(
    known: tuple[FailingCall, ...], agent: str, call: AgentToolCall, error: str | None
) -> tuple[tuple[FailingCall, ...], int]:
    """Return the failing calls after a call that ended with `error`, None for success, and how often it has failed."""
    digest = _digest(json.dumps([call.tool_name, call.tool_args], sort_keys=True))
    before = next((each for each in known if (each.agent, each.call) == (agent, digest)), None)
    others = known if before is None else tuple(each for each in known if each is not before)
    if error is None:
        return others, 0
    text = _digest(error)
    times = before.times + 1 if before is not None and before.error == text else 1
    return (*others, FailingCall(agent=agent, call=digest, error=text, times=times))[-FAILING_CALLS:], times


def note_failures(times: int, limit: int) -> str:
    """Return what the agent reads behind the error of a call that failed so often; nothing for the first failures."""
    if times < NOTED_FAILURES:
        return ""
    note = f"\nThis call has failed {times} times with the same error; don't repeat it unchanged."
    return f"{note} After {limit} failures your turn fails." if limit else note


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
