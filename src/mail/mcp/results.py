"""The results of MCP servers as JSON, cut to what an agent is shown."""

import json
from base64 import b64decode
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

from mail.core.task.files import File, make_reference
from mail.mcp.connection import MAX_PROBLEM
from mail.utils.outcomes import cut

Shown = dict[str, Any]
"""A result as JSON, ready to be shown to an agent."""

MAX_SHOWN = 64 * 1024
"""Characters of a result, or of a listing, that an agent sees."""


class Texts:
    """Limits the characters of the texts of one result together."""

    def __init__(self) -> None:
        self._left = MAX_SHOWN

    def show(self, text: str) -> str:
        """Return the text, cut to what is left of the limit."""
        shown = cut(text, self._left)
        self._left -= min(len(text), self._left)
        return shown


def show_tool_result(result: CallToolResult) -> Shown:
    """Return the result of a tool, without images, audio and files."""
    texts = Texts()
    shown: Shown = {"content": [_block(block, texts) for block in result.content]}
    if result.structured_content is not None:
        size = len(json.dumps(result.structured_content, ensure_ascii=False))
        if size <= MAX_SHOWN:
            shown["structured_content"] = result.structured_content
        else:
            shown["structured_content_not_shown"] = f"{size} characters of JSON"
    return shown


def tool_result(result: CallToolResult, *, has_files: bool) -> list[str | File]:
    """Return the result of a tool: its texts, its images and other files, and structured content as JSON.

    Without `has_files`, as nobody would store them, images and files are in words.
    """
    texts = Texts()
    blocks = [(file_of(block) if has_files else None) or _in_words(block, texts) for block in result.content]
    structured = result.structured_content
    said = "\n".join(block for block in blocks if isinstance(block, str))
    if structured is not None and not _repeats(said, structured):
        blocks.append(texts.show(json.dumps(structured, ensure_ascii=False)))
    return [block for block in blocks if block] or ["(the tool returned nothing)"]


def file_of(block: ContentBlock) -> File | None:
    """Return the file in a block; None for a block without one, or with one that can't be read."""
    match block:
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            name = ""
        case EmbeddedResource(resource=BlobResourceContents(blob=data, mime_type=kind, uri=uri)):
            name = str(uri).rpartition("/")[2]
        case _:
            return None
    try:
        file = File(b64decode(data, validate=True), name, kind or "")
        make_reference(file.data, file.name, file.type)
    except ValueError:  # not what it says it is
        return None
    return file


def _repeats(text: str, structured: Any) -> bool:
    """Return whether the text says what the structured content says, as servers send both."""
    if isinstance(structured, dict) and structured.keys() == {"result"} and structured["result"] == text:
        return True
    try:
        said: object = json.loads(text)
    except ValueError:
        return False
    return structured in (said, {"result": said})


def _in_words(block: ContentBlock, texts: Texts) -> str:
    match block:
        case TextContent():
            return texts.show(block.text)
        case ImageContent() | AudioContent():
            return f"[{block.type}, {block.mime_type}, {_size(block.data)}: not shown]"
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return f"[resource {resource.uri}]\n{texts.show(resource.text)}"
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            return f"[resource {resource.uri}, {resource.mime_type or 'binary'}, {_size(resource.blob)}: not shown]"
        case ResourceLink():
            return f"[link to resource {block.uri}: {block.name}]"
        case _:
            return f"[{block.type}: not shown]"


def show_tool_error(result: CallToolResult) -> str:
    said = [block.text for block in result.content if isinstance(block, TextContent)]
    return cut("\n".join(said), MAX_PROBLEM) or "it failed without a message"


def show_resource(result: ReadResourceResult) -> Shown:
    texts = Texts()
    return {"contents": [_contents(contents, texts) for contents in result.contents]}


def show_prompt(result: GetPromptResult) -> Shown:
    """Return a prompt with its arguments filled in."""
    texts = Texts()
    messages = [{"role": each.role, "content": _block(each.content, texts)} for each in result.messages]
    return {**_given(description=result.description and texts.show(result.description)), "messages": messages}


def show_listing(name: str, items: Iterable[Shown], *, is_partial: bool) -> Shown:
    """Return the items under their name, cut to the limit."""
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
