"""What a browser loads before the page shows something: its size, without starting one."""

import re
from posixpath import dirname, join, normpath

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mail.http.routes.ui import PAGE, assets, router

KILOBYTES = 150
"""As sent, compressed."""

_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?from "(\.[^"]+)"', re.MULTILINE)


def first_view() -> dict[str, bytes]:
    """The files that the page and its modules load at once; `import(…)` loads others when they are needed."""
    files = {name: asset.content for name, asset in assets().items()}
    found = {PAGE: files[PAGE]}
    waiting = re.findall(r'(?:src|href)="ui/([^"]+\.(?:js|css))"', files[PAGE].decode())
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = files[name]
        if name.endswith(".js"):
            waiting += [normpath(join(dirname(name), each)) for each in _IMPORT.findall(files[name].decode())]
    return found


APP = FastAPI()
APP.include_router(router)
PAGES = TestClient(APP)


def test_the_first_view_is_small() -> None:
    with PAGES as client:
        sizes = {name: int(client.get(f"/ui/{name}").headers["content-length"]) for name in first_view()}
    assert sum(sizes.values()) <= KILOBYTES * 1024, sorted(sizes.items(), key=lambda each: -each[1])[:10]


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("", False),
        ("*", False),
    ],
)
def test_files_are_compressed_for_those_who_take_it(accepted: str, is_packed: bool) -> None:
    with PAGES as client:
        answer = client.get("/ui/app/app.js", headers={"accept-encoding": accepted})
        assert answer.content == assets()["app/app.js"].content
        assert (answer.headers.get("content-encoding") == "gzip", answer.headers["vary"]) == (
            is_packed,
            "Accept-Encoding",
        )
        again = client.get("/ui/app/app.js", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_tabs_are_loaded_when_they_are_opened() -> None:
    first = first_view().keys()
    assert "app/app.js" in first
    assert "vendor/preact.js" in first
    for later in (
        "admin/admin.js",
        "graph/graph.js",
        "trace/trace.js",
        "vendor/dagre.js",
        "components/colours.js",
    ):
        assert later in assets()
        assert later not in first
