"""`/files`, and messages with files: uploaded, sent, passed on, answered with, and deleted."""

import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from support.processes.http_server import HTTPServer

from mail.core.decisions.caller_limits import CallerLimits
from mail.core.task.change import TaskChange
from mail.core.task.files import File, FileRef, make_reference
from mail.core.task.swarm import ActionCore, History
from mail.core.task.task import Task, TaskKey
from mail.core.turns.context import TURN
from mail.errors import PayloadTooLarge
from mail.testing.agents import Call, View, build_swarm, call, complete

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
DRAWN = PNG + b"drawn"


class Studio:
    """An agent that shows each file to a painter, who draws one."""

    def __init__(self) -> None:
        self.read: list[History] = []

    async def lead(self, view: View) -> list[Call]:
        self.read.append(view.history)
        mail = view.mail
        if mail.sender_type == "user":
            return [call("send_request", target="painter", subject="Paint", body=f"Like this: {mail.body}")]
        return [complete(mail.body)]

    async def painter(self, view: View) -> list[Call]:
        self.read.append(view.history)
        if view.mail.sender_type == "agent":
            return [call("draw")]
        return [call("send_response", target="lead", subject="Painted", body=f"Look: {view.mail.body}")]


async def draw(_arguments: dict[str, Any]) -> str:
    files = TURN.get().files
    assert files is not None
    return (await files.add(File(DRAWN, "drawn.png"))).in_words


@pytest.fixture
def studio() -> Studio:
    return Studio()


@pytest.fixture
async def server(studio: Studio) -> AsyncIterator[HTTPServer]:
    swarm = build_swarm(
        {"lead": studio.lead, "painter": studio.painter}, actions={"draw": ActionCore("draw", draw)}
    )
    async with HTTPServer(swarm) as server:
        yield server


async def upload(server: HTTPServer, data: bytes = PNG, name: str = "cat.png", **headers: str) -> Any:
    answer = await server.client.post("/files", params={"name": name}, content=data, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


def files_read(history: History) -> list[str]:
    """The names of the files that an agent has read in its last message."""
    return [each["name"] for each in history[-1].get("files", [])]


async def test_a_file_goes_to_an_agent_to_another_one_and_back_to_the_caller(
    server: HTTPServer, studio: Studio
) -> None:
    file = await upload(server)
    answer = await server.ask(body=f"a cat, file:{file['id']}", files=[file["id"]], task_id="t")
    asked, passed, drew, answered = studio.read
    assert [files_read(each) for each in (asked, passed, drew, answered)] == [
        ["cat.png"],
        ["cat.png"],
        ["drawn.png"],
        ["drawn.png"],
    ]
    events = await server.rig.store.read_events(TaskKey("user:ann@example", "t"))
    final = [event.message for event in events if event.message is not None][-1]
    drawn = await upload(server, DRAWN)  # the same bytes have the same id
    assert f"file:{drawn['id']}" in answer["response"]
    assert final.message.routing_info is not None
    (sent,) = final.message.routing_info["files"]
    assert sent == {"id": drawn["id"], "name": "drawn.png", "type": "image/png", "bytes": len(DRAWN)}


async def test_the_bytes_come_back_as_they_were_and_only_to_their_owner(server: HTTPServer) -> None:
    file = await upload(server)
    answer = await server.client.get(f"/files/{file['id']}")
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, PNG, "image/png")
    assert answer.headers["content-disposition"] == "inline; filename*=UTF-8''cat.png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    other = await server.client.get(f"/files/{file['id']}", headers=server.headers("admin"))
    assert other.status_code == 404


async def test_a_page_is_saved_and_not_shown(server: HTTPServer) -> None:
    file = await upload(server, b"<script>alert(1)</script>", "page.html", **{"content-type": "text/html"})
    answer = await server.client.get(f"/files/{file['id']}")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"


@pytest.mark.parametrize(
    ("data", "name", "content_type", "detail"),
    [
        (b"", "a.png", "image/png", "the file is empty"),
        (
            b"GIF89a...",
            "a.png",
            "image/png",
            "the file is declared as image/png, but its first bytes show image/gif",
        ),
        (
            b"hello",
            "a.png",
            "image/png",
            "the file is declared as image/png, but its first bytes show something else",
        ),
        (b"hello", "a.txt", "text", "'text' is not a media type such as image/png"),
        (
            b"hello",
            "a\tb",
            "text/plain",
            "the name of a file has at most 255 characters, all of them printable",
        ),
    ],
)
async def test_what_is_no_file_is_refused(
    server: HTTPServer, data: bytes, name: str, content_type: str, detail: str
) -> None:
    answer = await server.client.post(
        "/files", params={"name": name}, content=data, headers={"content-type": content_type}
    )
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)


async def test_a_file_that_is_too_large_is_refused_while_it_arrives(studio: Studio) -> None:
    async with HTTPServer(build_swarm({"lead": studio.lead})) as server:
        server.rig.runtime.caller_files.max_bytes = 1000
        answer = await server.client.post("/files", content=PNG)
        assert answer.status_code == 413


async def test_a_long_file_is_read_off_the_event_loop(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []

    def refer(data: bytes, *names: str) -> FileRef:
        threads.append(threading.current_thread() is threading.main_thread())
        return make_reference(data, *names)

    monkeypatch.setattr("mail.core.engine.files.make_reference", refer)
    long = "xé".encode() * 200_000
    for data, kind in ((long, "text/plain"), (long[:-1], "application/octet-stream"), (PNG, "image/png")):
        assert (await server.client.post("/files", content=data)).json()["type"] == kind
    assert threads == [False, False, True]


async def test_a_message_with_a_file_that_there_is_not_is_refused_and_leaves_nothing(
    server: HTTPServer,
) -> None:
    file = await upload(server)
    answer = await server.post(body="hello", files=[file["id"], "f" * 32], task_id="t")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        f"there is no file '{'f' * 32}': upload it, and use the id that the answer has",
    )
    assert (await server.client.get("/task", params={"task_id": "t"})).status_code == 404
    many = await server.post(body="hello", files=[f"{n:032x}" for n in range(11)])
    assert many.status_code == 400


async def test_a_new_task_that_is_refused_refers_to_no_file(server: HTTPServer) -> None:
    file, runtime = await upload(server), server.rig.runtime
    key, commit = TaskKey("user:ann@example", "t"), runtime.store.commit

    async def refuse(_change: Any) -> None:
        assert await runtime.caller_files.of_task(key)
        raise PayloadTooLarge("too much")

    runtime.store.commit = refuse  # type: ignore[method-assign]
    assert (await server.post(body="a cat", files=[file["id"]], task_id="t")).status_code == 413
    assert await runtime.caller_files.of_task(key) == {}
    runtime.store.commit = commit  # type: ignore[method-assign]


async def test_a_new_task_keeps_its_files_while_one_of_its_id_is_deleted(server: HTTPServer) -> None:
    file, runtime = await upload(server), server.rig.runtime
    await server.ask(body="a cat", files=[file["id"]], task_id="t")
    await server.ask(body="another", files=[file["id"]], task_id="other")
    key, delete, commit = TaskKey("user:ann@example", "t"), runtime.store.delete, runtime.store.commit
    begin = partial(server.post, body="a new cat", files=[file["id"]], task_id="t")

    async def begin_first(task: Task) -> None:
        """Delete the task, and have a new one of its id begin before anything else."""
        await delete(task)
        assert (await begin()).status_code == 200

    runtime.store.delete = begin_first  # type: ignore[method-assign]
    assert (await server.client.delete("/task", params={"task_id": "t"})).status_code == 200
    assert file["id"] in await runtime.caller_files.of_task(key)

    runtime.store.delete = delete  # type: ignore[method-assign]
    assert (await server.client.delete("/task", params={"task_id": "t"})).status_code == 200

    async def drop_first(change: TaskChange) -> None:
        """Commit a new task after a deletion has dropped the files of its id."""
        if change.expected_version == 0:
            await runtime.caller_files.drop(key)
        await commit(change)

    runtime.store.commit = drop_first  # type: ignore[method-assign]
    assert (await begin()).status_code == 200
    assert file["id"] in await runtime.caller_files.of_task(key)


async def test_a_fork_counts_the_files_of_its_task(server: HTTPServer) -> None:
    file = await upload(server, PNG + bytes(200_000))
    await server.ask(body="a cat", files=[file["id"]], task_id="t")
    server.rig.runtime.caller_limits = CallerLimits(task_bytes=200_000)
    answer = await server.client.post("/task/fork", json={"task_id": "t"})
    assert answer.status_code == 413, answer.text


async def test_a_file_is_deleted_with_the_last_task_that_refers_to_it(server: HTTPServer) -> None:
    file = await upload(server)
    for task_id in ("one", "two"):
        await server.ask(body="a cat", files=[file["id"]], task_id=task_id)
    fork = (await server.client.post("/task/fork", json={"task_id": "two"})).json()["task_id"]
    for task_id, status in (("one", 200), ("two", 200), (fork, 404)):
        deleted = await server.client.delete("/task", params={"task_id": task_id})
        assert deleted.status_code == 200, deleted.text
        assert (await server.client.get(f"/files/{file['id']}")).status_code == status


async def test_a_task_that_would_be_too_large_with_its_files_is_refused(server: HTTPServer) -> None:
    file = await upload(server, PNG + bytes(200_000))
    server.rig.runtime.caller_limits = CallerLimits(task_bytes=100_000)
    answer = await server.post(body="a cat", files=[file["id"]], task_id="t")
    assert answer.status_code == 413
    assert (await server.client.get("/task", params={"task_id": "t"})).status_code == 404


async def test_uploads_that_nobody_uses_are_limited(studio: Studio) -> None:
    async with HTTPServer(build_swarm({"lead": studio.lead})) as server:
        server.rig.runtime.caller_files.max_bytes = 100
        for n in range(50):
            await upload(server, b"x" * 97 + f"{n:03}".encode(), "x.txt")
        answer = await server.client.post("/files", content=b"y" * 100)
        assert (answer.status_code, answer.json()["detail"].split(":")[0]) == (
            413,
            "5000 bytes of your uploads are in no message yet, and 5000 are the limit",
        )


async def test_a_picture_of_five_megabytes_is_stored_once_however_many_turns_see_it() -> None:
    turns = 0

    async def lead(view: View) -> list[Call]:
        nonlocal turns
        turns += 1
        if turns >= 50:
            return [complete("seen")]
        return [call("send_request", target="painter", subject="Again", body=f"Look at file:{picture['id']}")]

    async def painter(view: View) -> list[Call]:
        nonlocal turns
        turns += 1
        assert files_read(view.history) == ["large.png"]
        return [
            call("send_response", target="lead", subject="Seen", body=f"I have seen file:{picture['id']}")
        ]

    async with HTTPServer(build_swarm({"lead": lead, "painter": painter})) as server:
        picture = await upload(server, PNG + bytes(5_000_000), "large.png")
        await server.ask(body="look", files=[picture["id"]], task_id="t", kwargs={"max_steps": 100})
        largest = server.rig.database.execute(
            "SELECT max(length(state) + length(events) + coalesce(length(history), 0)) FROM commits"
        )
        assert largest[0][0] < 10_000
        assert server.rig.database.execute("SELECT count(*), sum(length(data)) FROM files") == [
            (1, len(PNG) + 5_000_000)
        ]
    assert turns >= 50


async def test_a_link_needs_no_key_and_strangers_may_guess_only_so_often(server: HTTPServer) -> None:
    file = await upload(server)
    files = server.rig.runtime.caller_files
    (linked,) = await files.link(
        "user:ann@example", [await files.find("user:ann@example", file["id"])], "example"
    )
    no_key = {"Authorization": ""}
    answer = await server.client.get(f"/files/shared/{linked.link}", headers=no_key)
    assert (answer.status_code, answer.content) == (200, PNG)
    held: list[int] = []
    read = files.read

    async def read_and_see(instance: str, file_id: str) -> bytes | None:
        held.append(server.service.account._bytes.total())
        return await read(instance, file_id)

    files.read = read_and_see  # type: ignore[method-assign]
    for path, headers in ((f"/files/shared/{linked.link}", no_key), (f"/files/{file['id']}", {})):
        assert (await server.client.get(path, headers=headers)).content == PNG
    assert held == [len(PNG)] * 2
    for wrong in ("x", linked.link[:-1], file["id"]):
        assert (await server.client.get(f"/files/shared/{wrong}", headers=no_key)).status_code == 404
