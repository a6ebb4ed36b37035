"""What a person gives as the results of breakpoint tools, matched with the calls that wait for them."""

import json
from typing import Any

from pydantic_core import from_json

from mail.core.task.turn_state import PausedCall
from mail.errors import BadBreakpointResult


def read_results(given: Any, calls: tuple[PausedCall, ...]) -> dict[str, str]:
    """Match what the user gave with the calls that wait: call id to content.

    `given` is a JSON string, an object `{"content"}`, a list `[{"call_id", "content"}]`, or plain text
    (SPEC, section 8). Raises BadBreakpointResult unless every waiting call gets exactly one result.
    """
    value = _parse(given)
    if isinstance(value, list) and all(isinstance(item, dict) and "content" in item for item in value):
        results = _read_list(value, calls)
    elif len(calls) > 1:
        raise BadBreakpointResult(
            f'{len(calls)} tool calls wait; give a list of {{"call_id": …, "content": …}} for: {_ids(calls)}'
        )
    elif isinstance(value, dict) and "content" in value:
        results = _read_list([value], calls)
    else:
        results = {
            calls[0].call_id: _text(given if isinstance(given, str) and not isinstance(value, str) else value)
        }
    if results.keys() != {call.call_id for call in calls}:
        raise BadBreakpointResult(f"results are for {_join(results)}, but these calls wait: {_ids(calls)}")
    return results


def _read_list(items: list[dict[str, Any]], calls: tuple[PausedCall, ...]) -> dict[str, str]:
    results: dict[str, str] = {}
    for item in items:
        call_id = item.get("call_id", item.get("id"))
        # Where only one call waits, its result can't be meant for another: clients send stale or no ids with it. But the
        # answer to an appeal comes from somebody who has read that very question.
        if len(calls) == 1 and (call_id is None or calls[0].asks is None):
            call_id = calls[0].call_id
        if call_id is None:
            raise BadBreakpointResult(f"a result lacks its call_id, one of: {_ids(calls)}")
        if str(call_id) in results:
            raise BadBreakpointResult(f"call_id {call_id!r} has two results")
        results[str(call_id)] = _text(item["content"])
    return results


def _parse(given: Any) -> Any:
    if given is None:
        raise BadBreakpointResult("kwargs.breakpoint_tool_call_result is missing")
    if not isinstance(given, str):
        return given
    try:
        return from_json(given, allow_inf_nan=False)  # unlike json.loads, refuses what can't be stored
    except (ValueError, TypeError):  # TypeError: text that has no form in UTF-8
        return given


def _text(content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadBreakpointResult(f"a result holds text that has no form in UTF-8: {error}") from error
    return text


def _ids(calls: tuple[PausedCall, ...]) -> str:
    return _join({call.call_id: "" for call in calls})


def _join(results: dict[str, str]) -> str:
    return ", ".join(repr(call_id) for call_id in results) or "no call"
