"""The view of a turn: what an agent read and replied, and its tools."""

import json
from collections.abc import Iterator, Mapping
from textwrap import indent
from typing import Any

from mail.cli.output import Output, counted, one_line, price
from mail.cli.views.events import titled
from mail.cli.views.live import SHORT, duration

_INDENT = " " * 12


def show_turn(turn: Mapping[str, Any], output: Output) -> None:
    """Print a turn."""
    output.text(f"Turn of {one_line(turn['agent'])} in task {turn['task_id']}", style="bold")
    for name, value in _facts(turn, output):
        output.text(f"{name:<10}  {value}")
    omitted = (
        f", without {counted(turn['omitted'], 'older entry', 'older entries')}" if turn["omitted"] else ""
    )
    _show_entries(f"What it read{omitted}", turn["history"], output)
    if turn["output"] is None:
        output.text("\nAdded nothing to its history; the events tell what it did", style="bold")
    else:
        _show_entries("Its reply, and the results of its calls", turn["output"], output)


def _facts(turn: Mapping[str, Any], output: Output) -> Iterator[tuple[str, str]]:
    yield "events", f"{turn['first']} to {turn['last']}"
    yield "committed", output.time(turn["committed"])
    if timing := turn["timing"]:
        if timing["seconds"] >= SHORT:
            yield "lasted", duration(timing["seconds"])
        for call in timing.get("model_calls", ()):
            attempts = call.get("attempts", 1)
            more = f", {attempts} attempts" if attempts > 1 else ""
            yield "model call", f"{one_line(call['model'])} {duration(call['seconds'])}{more}"
    if usage := turn["usage"]:
        tokens = f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out"
        yield "usage", f"{counted(usage['calls'], 'model call')}, {tokens}, {price(usage)}"
    for queued in turn["mail"]:
        mail = queued["message"]["message"]
        whom = ", ".join(each["address"] for each in mail.get("recipients") or [mail["recipient"]])
        text = titled(one_line(mail["subject"]), one_line(mail["body"]))
        yield "mail", f"{one_line(mail['sender']['address'])} → {one_line(whom)}  {text}"
    if setup := turn["setup"]:
        if setup["version"]:
            code = f", code {setup['code']}" if setup["code"] else ""
            since = "" if setup["is_present"] else "; another one runs now"
            yield "version", one_line(f"{setup['name']} ({setup['version']}{code}){since}")
        if setup["model"]:
            yield "model", one_line(setup["model"])
        tools = [one_line((tool.get("function") or tool).get("name", "")) for tool in setup["tools"]]
        yield "tools", ", ".join([*tools, *(["those of MCP servers"] if setup["has_more_tools"] else [])])
        if setup["system"]:
            yield "system", indent(setup["system"], _INDENT).lstrip()


def _show_entries(title: str, entries: list[Mapping[str, Any]], output: Output) -> None:
    output.text(f"\n{title}", style="bold")
    for entry in entries:
        for name, text in _parts(entry):
            output.text(f"{name:<10}  {indent(text, _INDENT).lstrip()}")


def _parts(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what an entry of a history has, of either API of models: who or what it is from, and its text."""
    match entry:
        case {"type": "function_call", "name": name, "arguments": arguments}:
            yield "call", f"{name} {arguments}"
        case {"type": "function_call_output", "output": result} | {"role": "tool", "content": result}:
            yield "result", _text(result)
        case {"type": "reasoning"}:
            yield "reasoning", _text(entry.get("summary")) or _text(entry.get("content")) or "(not readable)"
        case {"role": role}:
            if text := _text(entry.get("content")):
                yield str(role), text
            for call in entry.get("tool_calls") or ():
                yield "call", f"{call['function']['name']} {call['function']['arguments']}"
        case _:
            yield str(entry.get("type", "entry")), json.dumps(entry, ensure_ascii=False)


def _text(content: Any) -> str:
    """Return the text of a content: a string, or a list of parts."""
    if isinstance(content, list):
        return "\n".join(
            str(part["text"])
            if isinstance(part, dict) and "text" in part
            else json.dumps(part, ensure_ascii=False)
            for part in content
        )
    return "" if content is None else str(content)
