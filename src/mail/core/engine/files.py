"""Files: callers upload them, messages refer to them, and turns read them and add their own.

upload ─► stored for a day ─► a message or a result refers to it: kept for the task ─► deleted with its last task
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mail.core.engine.pacing import LARGE
from mail.core.protocol.clock import Clock
from mail.core.task.files import (
    LINK_SECONDS,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_FILES_OF_TASK,
    File,
    FileRef,
    file_id,
    files_in,
    is_signed,
    make_link,
    make_reference,
    mentioned,
    place_of,
)
from mail.core.task.ports import Files, Peers
from mail.core.task.task import TaskKey
from mail.core.task.turn_state import Checkpoint
from mail.core.turns.context import TURN
from mail.errors import BadRequest, FileNotFound, MAILError, PayloadTooLarge, StorageFull

logger = logging.getLogger(__name__)

UNUSED_FILES = 50
"""How many files of the largest size a caller may upload without using them."""


class CallerFiles:
    """The files of the callers of a swarm; `max_bytes` is the most that one may have."""

    def __init__(self, files: Files | None, clock: Clock, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._files = files
        self._clock = clock
        self.max_bytes = max_bytes

    async def put(self, instance: str, file: File) -> FileRef:
        """Store a caller's file, for a day or as long as a task refers to it.

        Raises BadRequest for a file that is empty or not what it is declared as, PayloadTooLarge, and StorageFull.
        """
        if len(file.data) > self.max_bytes:
            raise PayloadTooLarge(f"a file may have {self.max_bytes} bytes; this one has {len(file.data)}")
        ref = await _off_loop(make_reference, file.data, file.name, file.type)
        now = self._clock.now().timestamp()
        unused, limit = await self._port.unused_bytes(instance, now=now), UNUSED_FILES * self.max_bytes
        if unused + ref.size > limit:
            raise StorageFull(
                f"{unused} bytes of your uploads are in no message yet, and {limit} are the limit: use them, or wait "
                "until they are deleted, a day after their upload"
            )
        await self._port.put_file(instance, ref, file.data, secret=self._clock.new_id(), now=now)
        return ref

    async def find(self, instance: str, file_id: str) -> FileRef:
        """Return the reference of a caller's file. Raises FileNotFound."""
        found = await self._port.find_file(instance, file_id)
        if found is None:
            raise FileNotFound(
                f"there is no file {file_id[:40]!r}: upload it, and use the id that the answer has"
            )
        return found

    async def read(self, instance: str, file_id: str) -> bytes | None:
        """Return the bytes of a caller's file; None if there is none."""
        return None if self._files is None else await self._files.read_file(instance, file_id)

    async def link(self, instance: str, files: Iterable[FileRef], swarm: str) -> list[FileRef]:
        """Return the references of a caller's files with links, for other swarms; those that are gone have none."""
        until = int(self._clock.now().timestamp()) + LINK_SECONDS
        linked: list[FileRef] = []
        for file in files:
            secret = None if self._files is None else await self._files.read_secret(instance, file.id)
            link = "" if secret is None else make_link(instance, file.id, secret, until)
            linked.append(replace(file, swarm=swarm, link=link) if link else replace(file, origin=""))
        return linked

    async def follow(self, link: str) -> tuple[str, FileRef]:
        """Return whose file a link fetches, and which. Raises FileNotFound for one that is not, or no longer, valid."""
        place = place_of(link)
        if place is not None and self._files is not None and place[2] > self._clock.now().timestamp():
            instance, ref, _ = place
            secret = await self._files.read_secret(instance, ref)
            if secret is not None and is_signed(link, secret):
                return instance, await self.find(instance, ref)
        raise FileNotFound

    async def given(self, instance: str, ids: Iterable[str]) -> list[FileRef]:
        """Return the references of the files of a message. Raises FileNotFound, and BadRequest for too many."""
        unique = list(dict.fromkeys(ids))
        if len(unique) > MAX_FILES:
            raise BadRequest(f"a message may have {MAX_FILES} files, not {len(unique)}")
        return [await self.find(instance, file_id) for file_id in unique]

    async def of_task(self, key: TaskKey) -> dict[str, FileRef]:
        """Return the files that a task refers to, by id."""
        return {} if self._files is None else {each.id: each for each in await self._files.files_of(key)}

    async def keep(self, key: TaskKey, files: Iterable[FileRef]) -> None:
        """Note that a task refers to files. Raises FileNotFound for one that is gone, BadRequest for too many."""
        known = await self.of_task(key)
        for file in files:
            if file.id not in known and len(known) >= MAX_FILES_OF_TASK:
                raise BadRequest(f"a task may refer to {MAX_FILES_OF_TASK} files")
            if not await self._port.keep_file(key, file):
                raise FileNotFound(f"the file {file.id!r} is gone: upload it again")
            known[file.id] = file

    async def drop(self, key: TaskKey) -> None:
        """Forget the files of a deleted task."""
        if self._files is not None:
            await self._files.drop_files(key)

    async def drop_unused(self, instance: str) -> None:
        """Delete the files of a caller to which no task refers."""
        if self._files is not None:
            await self._files.drop_unused(instance)

    def for_task(self, key: TaskKey) -> "TaskFiles | None":
        """Return the files of a task, for one of its turns; None if the database stores no files."""
        return None if self._files is None else TaskFiles(self, key)

    @property
    def are_stored(self) -> bool:
        """Whether the database stores files."""
        return self._files is not None

    @property
    def _port(self) -> Files:
        if self._files is None:
            raise BadRequest("this database stores no files")
        return self._files


class TaskFiles:
    """The files of a task, for one of its turns."""

    def __init__(self, files: CallerFiles, key: TaskKey) -> None:
        self._files = files
        self._key = key
        self._added: dict[str, int] = {}

    async def read(self, file_id: str) -> bytes | None:
        """Return the bytes of a file; None if it is gone."""
        return await self._files.read(self._key.instance, file_id)

    async def find(self, file_id: str) -> FileRef | None:
        """Return the reference of a file of the task; None if the task doesn't refer to it."""
        return (await self._files.of_task(self._key)).get(file_id)

    async def add(self, file: File) -> FileRef:
        """Store a file of the running call for the task. Raises as `CallerFiles.put` and `CallerFiles.keep` do."""
        ref = await self._files.put(self._key.instance, file)
        if ref.id not in await self._files.of_task(self._key):
            await self._files.keep(self._key, [ref])
            place = TURN.get().call.place
            self._added[place] = self._added.get(place, 0) + ref.size
        return ref

    async def fetch(self, prompts: Iterable[Mapping[str, Any]], peers: Peers) -> None:
        """Fetch and keep the files of messages that are still at other swarms; log those that can't be fetched."""
        for file in [file for entry in prompts for file in files_in(entry) if file.link]:
            if file.size > self._files.max_bytes or await self.find(file.id) is not None:
                continue
            try:
                data = await peers.fetch_file(file)
                if await _off_loop(file_id, data) != file.id:
                    raise BadRequest("it is another file")
                stored = await self._files.put(self._key.instance, File(data, file.name))
                await self._files.keep(self._key, [stored])
            except MAILError as error:
                logger.warning("file %s of swarm %s can't be fetched: %s", file.id, file.swarm, error.detail)

    def added_by(self, call_place: str) -> int:
        """Return the bytes of the files that a call has added (`CurrentCall.place`)."""
        return self._added.get(call_place, 0)

    async def among(self, refs: Sequence[str]) -> dict[str, FileRef]:
        """Return the files of the task with these ids, by id."""
        known = await self._files.of_task(self._key)
        return {ref: known[ref] for ref in refs if ref in known}


async def _off_loop[T](work: Callable[..., T], data: bytes, *names: str) -> T:
    """Do work on the bytes of a file, in a thread if it is long."""
    return work(data, *names) if len(data) <= LARGE else await asyncio.to_thread(work, data, *names)


def mentions(output: Checkpoint) -> list[str]:
    """Return the ids of the files that a turn's output mentions: in words, arguments or results."""
    texts = [output.text or ""]
    texts += [text for call in output.calls for text in call.tool_args.values() if isinstance(text, str)]
    texts += [receipt.content for receipt in output.receipts if receipt is not None]
    return mentioned(texts)
