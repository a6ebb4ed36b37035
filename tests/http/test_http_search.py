"""`GET /tasks?q=…`."""

from httpx2 import Response
from support.processes.http_server import HTTPServer

from mail.core.task.search import Searched


async def search(server: HTTPServer, **query: object) -> Response:
    """The answer, when the index has everything."""
    while True:
        found = await server.client.get("/tasks", params={"fields": "summary", **query})  # type: ignore[dict-item]
        if found.headers.get("X-Searched") != Searched.SOME_TEXTS:
            return found


async def test_plain_text_finds_tasks_by_their_texts_and_answers(server: HTTPServer) -> None:
    await server.ask(body="what is 2**77?", task_id="long-talk")
    await server.ask(body="東京はどこですか", task_id="other")
    for query, expected in (("2**77", ["long-talk"]), ("long-talk", ["long-talk"]), ("東京", ["other"])):
        found = await search(server, q=query)
        assert list(found.json()) == expected
        assert found.headers["X-Searched"] == "texts"
    assert list((await search(server, q="you said")).json()) == ["other", "long-talk"], "the answers"
    assert list((await search(server, q="New Message")).json()) == [], "nobody has written that subject"
    assert "X-Searched" not in (await search(server)).headers


async def test_a_search_has_pages_and_filters(server: HTTPServer) -> None:
    for n in range(3):
        await server.ask(body="a sum", task_id=f"task-{n}")
    await server.ask(body="another sum", task_id="task-0")
    first = await search(server, q="sum", limit=2)
    assert list(first.json()) == ["task-0", "task-2"]
    assert "q=sum" in first.headers["Link"]
    rest = await search(server, q="sum", limit=2, cursor=first.headers["X-Next-Cursor"])
    assert list(rest.json()) == ["task-1"]
    assert "X-Next-Cursor" not in rest.headers
    changed = first.json()["task-2"]["updated"]
    assert list((await search(server, since=changed)).json()) == ["task-0", "task-2"]
    assert list((await search(server, until=changed)).json()) == ["task-1"]
    assert list((await search(server, q="", status="running")).json()) == []
    assert list((await search(server, min_cost=0.01)).json()) == []
    assert first.json()["task-0"]["excerpt"][1::2][-1] == "sum"
    assert "excerpt" not in (await search(server, q="task-1")).json()["task-1"], "only its id has that"
    assert "excerpt" not in (await search(server, q="")).json()["task-1"]
    whole = await search(server, q="another", fields="")
    assert whole.status_code == 400
    record = (await server.client.get("/tasks", params={"q": "another"})).json()["task-0"]
    assert record["excerpt"][1::2] == ["another"]
    events = record["events"]
    assert events[-1]["event"] == "task_complete"


async def test_nobody_searches_the_tasks_of_others(server: HTTPServer) -> None:
    await server.ask(body="a secret word", task_id="hers")
    admin = server.headers("admin")
    found = await server.client.get("/tasks", params={"q": "secret", "fields": "summary"}, headers=admin)
    assert (found.status_code, found.json()) == (200, {})
    for whose in ({"caller": "user:ann"}, {"all": "true"}):
        params = {"q": "secret", "fields": "summary", **whose}
        refused = await server.client.get("/tasks", params=params, headers=admin)
        assert refused.status_code == 400
        assert refused.json()["detail"] == "q: only your own tasks are searched; leave out caller and all"


async def test_bad_requests(server: HTTPServer) -> None:
    for query in (
        {"q": " ".join(map(str, range(20)))},
        {"since": "soon"},
        {"q": "x", "cursor": "1"},
        {"min_cost": "-1"},
    ):
        assert (await server.client.get("/tasks", params=query)).status_code in (400, 422), query
