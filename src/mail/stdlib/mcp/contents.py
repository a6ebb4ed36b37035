"""What MCP servers return, as agents read it: texts up to a limit, and of images, sounds and files what they are."""

import json
from collections.abc import Iterable
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from mail.stdlib.outcomes import cut

MAX_SHOWN = 64 * 1024
"""Characters of all texts of a result, and of a listing, that an agent is shown."""

Shown = dict[str, Any]


class Texts:
    """The texts of one result, which share the limit."""

    def __init__(self) -> None:
        self._left = MAX_SHOWN

    def show(self, text: str) -> str:
        """The text, as much of it as there is room for."""
        shown = cut(text, self._left)
        self._left -= min(len(text), self._left)
        return shown


def tool_result(result: CallToolResult) -> Shown:
    """The result of a tool."""
    texts = Texts()
    shown: Shown = {"content": [_block(block, texts) for block in result.content]}
    if result.structured_content is not None:
        size = len(json.dumps(result.structured_content, ensure_ascii=False))
        if size <= MAX_SHOWN:
            shown["structured_content"] = result.structured_content
        else:
            shown["structured_content_not_shown"] = f"{size} characters of JSON"
    return shown


def tool_error(result: CallToolResult) -> str:
    """What a tool says of its failure."""
    said = [block.text for block in result.content if isinstance(block, TextContent)]
    return "\n".join(said) or "it failed, and doesn't say why"


def resource(result: ReadResourceResult) -> Shown:
    """A resource that was read."""
    texts = Texts()
    return {"contents": [_contents(contents, texts) for contents in result.contents]}


def prompt(result: GetPromptResult) -> Shown:
    """A prompt, filled in."""
    texts = Texts()
    messages = [{"role": each.role, "content": _block(each.content, texts)} for each in result.messages]
    return {**_given(description=result.description and texts.show(result.description)), "messages": messages}


def listing(name: str, items: Iterable[Shown], *, is_partial: bool) -> Shown:
    """The items under their name, as many as there is room for."""
    shown: list[Shown] = []
    left = MAX_SHOWN
    for item in items:
        left -= len(json.dumps(item, ensure_ascii=False))
        if left < 0:
            is_partial = True
            break
        shown.append(item)
    return {name: shown, **({"is_partial": True} if is_partial else {})}


def _block(block: ContentBlock, texts: Texts) -> Shown:
    match block:
        case TextContent():
            return {"type": "text", "text": texts.show(block.text)}
        case ImageContent() | AudioContent():
            return {"type": block.type, "mime_type": block.mime_type, "not_shown": _size(block.data)}
        case EmbeddedResource():
            return {"type": "resource", **_contents(block.resource, texts)}
        case ResourceLink():
            return {
                "type": "resource_link",
                "uri": block.uri,
                "name": block.name,
                **_given(mime_type=block.mime_type),
            }


def _contents(contents: TextResourceContents | BlobResourceContents, texts: Texts) -> Shown:
    known = {"uri": contents.uri, **_given(mime_type=contents.mime_type)}
    if isinstance(contents, TextResourceContents):
        return {**known, "text": texts.show(contents.text)}
    return {**known, "not_shown": _size(contents.blob)}


def _size(base64: str) -> str:
    return f"{len(base64.rstrip('=')) * 3 // 4} bytes"


def _given(**fields: Any) -> Shown:
    return {name: value for name, value in fields.items() if value is not None}
