"""Resources: the caller's tasks as their conversations, and the files in them."""

from base64 import b64encode

from mcp_types import (
    BlobResourceContents,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from pydantic_core import to_json

from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Item
from mail.core.engine.watch import read_timeline
from mail.errors import BadRequest, FileNotFound
from mail.http.mcp.content import FILES
from mail.http.runs import ENDS, Runs
from mail.http.task_json import reading

TASKS = "mail://tasks/"
"""Begins the URI of a task."""

JSON_TYPE = "application/json"

PAGE = 50
"""Tasks of a page."""

MAX_BYTES = 256 * 1024
"""The size of a conversation; of a longer one, or of one with many events (`ENDS`), its end is shown."""

COPIES = 4
"""How often a file is in memory while it is sent: its bytes, their base64, and the message in two forms."""

TEMPLATES = ListResourceTemplatesResult(
    resource_templates=[
        ResourceTemplate(
            uri_template=f"{TASKS}{{task_id}}",
            name="task",
            description="A task of yours: its messages, work, questions and answers, as JSON.",
            mime_type=JSON_TYPE,
        ),
        ResourceTemplate(uri_template=f"{FILES}{{file_id}}", name="file", description="A file of yours."),
    ]
)


async def list_resources(runs: Runs, cursor: str | None) -> ListResourcesResult:
    """Return a page of the caller's tasks, the newest first. Raises BadRequest for an invalid cursor."""
    page = await runs.runtime.store.list_tasks(str(runs.principal), limit=PAGE, cursor=cursor)
    tasks = [
        Resource(
            uri=TASKS + task.task_id,
            name=task.task_id,
            title=task.title or None,
            description=f"A task that is {task.status.value}, since {task.started}",
            mime_type=JSON_TYPE,
        )
        for task in page.tasks
    ]
    return ListResourcesResult(resources=tasks, next_cursor=page.cursor)


async def read_resource(runs: Runs, uri: str) -> ReadResourceResult:
    """Return a task of the caller, or a file. Raises TaskNotFound, FileNotFound, and BadRequest for other URIs."""
    if uri.startswith(FILES):
        return ReadResourceResult(contents=[await _file(runs, uri)])
    if not uri.startswith(TASKS):
        raise BadRequest(f"there is no resource {uri[:80]!r}; {TASKS}… is a task and {FILES}… a file")
    task = await runs.load(uri.removeprefix(TASKS))
    first = max(0, task.seq - ENDS)
    reader, pacer = Conversation(), reading(runs.service, runs.request, task, events=ENDS)
    kept: dict[str, tuple[Item, int]] = {}
    size, is_partial = 0, first > 0
    async for event in read_timeline(runs.runtime.store, task.key, pacer, after=first, upto=task.seq):
        for item in reader.read(event):
            size -= kept.pop(item.id, (item, 0))[1]
            kept[item.id] = item, len(to_json(item))
            size += kept[item.id][1]
            while size > MAX_BYTES and len(kept) > 1:
                is_partial = True
                size -= kept.pop(next(iter(kept)))[1]
    shown = {
        "task_id": task.task_id,
        "status": task.status,
        "is_partial": is_partial,
        "items": sorted((item for item, _ in kept.values()), key=lambda item: item.seq),
    }
    return ReadResourceResult(
        contents=[TextResourceContents(uri=uri, mime_type=JSON_TYPE, text=to_json(shown).decode())]
    )


async def _file(runs: Runs, uri: str) -> BlobResourceContents | TextResourceContents:
    instance, files = str(runs.principal), runs.runtime.caller_files
    ref = await files.find(instance, uri.removeprefix(FILES))
    runs.service.holding(runs.request).hold(ref.size * COPIES)
    data = await files.read(instance, ref.id)
    if data is None:
        raise FileNotFound
    if ref.is_text:
        return TextResourceContents(uri=uri, mime_type=ref.type, text=data.decode(errors="replace"))
    return BlobResourceContents(uri=uri, mime_type=ref.type, blob=b64encode(data).decode())
