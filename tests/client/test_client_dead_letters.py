"""The client's methods for dead letters."""

from client_stage import Recorder
from starlette.responses import JSONResponse

from mail.client import MAILClient


async def test_all_are_asked_for_until_there_are_no_more() -> None:
    """A server that does only some at a time says where to go on."""
    parts = [
        {"redriven": [{"seq": 1}], "failed": [], "next_cursor": "c"},
        {"redriven": [{"seq": 2}], "failed": [{"reason": "no"}], "next_cursor": None},
    ]
    recorder = Recorder(lambda _request: JSONResponse(parts[len(recorder.requests) - 1]))
    async with recorder.serve() as url, MAILClient(url, api_key="k") as client:
        answer = await client.redrive_dead_letters(all=True, caller="user:ann@example")
    assert answer == {"redriven": [{"seq": 1}, {"seq": 2}], "failed": [{"reason": "no"}]}
    asked = {"caller": "user:ann@example", "all": True}
    assert recorder.bodies == [asked, {**asked, "cursor": "c"}]


async def test_pages_of_a_list() -> None:
    parts = [{"dead_letters": [{"seq": n}], "next_cursor": c} for n, c in ((1, "c"), (2, "d"), (3, None))]
    recorder = Recorder(lambda _request: JSONResponse(parts[(len(recorder.requests) - 1) % 3]))
    async with recorder.serve() as url, MAILClient(url, api_key="k") as client:
        assert [each["seq"] for each in await client.get_dead_letters()] == [1, 2, 3]
        assert [each["seq"] for each in await client.get_dead_letters(limit=2)] == [1, 2]
    queries = [request.url.query for request in recorder.requests]
    assert queries == ["", "cursor=c", "cursor=d", "limit=2", "limit=2&cursor=c"]
