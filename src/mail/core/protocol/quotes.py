"""What agents quote: models repeat a text as they have read it, and it is passed on as its author wrote it."""

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.xml import Markup


class ShownText:
    """The user turns that an agent was called with, between the elements of `markup`."""

    def __init__(self, messages: Sequence[Mapping[str, Any]], markup: Markup) -> None:
        self._messages = messages
        self._markup = markup

    def unquote(self, text: str) -> str:
        """Return what the agent has written, with the tags that it has quoted as their authors wrote them."""
        return self._markup.unquote(text, self._turns) if "&" in text else text

    def unquote_call(self, call: AgentToolCall) -> AgentToolCall:
        """Return a call of the agent, with the tags in its arguments as their authors wrote them."""
        for each in call.tool_args.values():
            if type(each) is not str or "&" in each:
                args = self._unquote_value(call.tool_args)
                return call if args is call.tool_args else AgentToolCall(**{**call, "tool_args": args})
        return call

    def _unquote_value(self, value: Any) -> Any:
        """Return a value of JSON with its texts unquoted; the value itself if that changes nothing."""
        if isinstance(value, str):
            return self.unquote(value)
        if isinstance(value, dict):
            changed = {}
            for key, each in value.items():
                if isinstance(each, str) and "&" not in each:
                    continue
                written = self._unquote_value(each)
                if written is not each:
                    changed[key] = written
            return {**value, **changed} if changed else value
        if isinstance(value, list):
            items = [self._unquote_value(each) for each in value]
            return value if all(map(is_, items, value)) else items
        return value

    @property
    def _turns(self) -> list[str]:
        contents = (message.get("content") for message in self._messages if message.get("role") == "user")
        return [content for content in contents if isinstance(content, str)]
