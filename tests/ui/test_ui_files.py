"""What `GET /ui` serves, as a browser gets it."""

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.http_server import HTTPServer

from mail.http.routes.ui import FOLDER, MEDIA_TYPES
from mail.testing.agents import build_swarm, complete, turns

FILES = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(build_swarm({"supervisor": turns([complete("hi")])})) as server:
        server.client.headers.pop("Authorization")
        yield server


class Tags(HTMLParser):
    """The tags of a page with their attributes, and what is written inside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.inline += data.strip()


@pytest.mark.parametrize("name", FILES)
async def test_each_file_is_served_as_it_is(server: HTTPServer, name: str) -> None:
    response = await server.client.get(f"/ui/{name}")
    assert response.status_code == 200
    assert response.content == (FOLDER / name).read_bytes()
    assert response.headers["content-type"] == MEDIA_TYPES[Path(name).suffix]


async def test_the_page_and_its_policy(server: HTTPServer) -> None:
    response = await server.client.get("/ui")
    assert response.content == (FOLDER / "index.html").read_bytes()
    policy = dict(
        part.strip().partition(" ")[::2] for part in response.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["frame-ancestors"] == "'none'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


async def test_a_known_file_is_not_sent_again(server: HTTPServer) -> None:
    first = await server.client.get("/ui/app.js")
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = await server.client.get("/ui/app.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = await server.client.get("/ui/app.js", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


@pytest.mark.parametrize("name", ["none.js", "..%2Fapp.py", "%2e%2e/app.py", "ui_routes.py", ""])
async def test_nothing_else_is_served(server: HTTPServer, name: str) -> None:
    response = await server.client.get(f"/ui/{name}")
    assert response.status_code == 404
    assert "unknown endpoint" in response.json()["detail"]


def test_no_inline_code_and_nothing_from_elsewhere() -> None:
    page = Tags((FOLDER / "index.html").read_text(encoding="utf-8"))
    assert page.inline == ""
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for link in (attributes.get("src"), attributes.get("href")):
            assert link is None or link.startswith("#") or link.removeprefix("ui/") in FILES


def test_every_field_has_a_label_and_every_id_is_single() -> None:
    tags = Tags((FOLDER / "index.html").read_text(encoding="utf-8")).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    labelled = {attributes["for"] for tag, attributes in tags if tag == "label"}
    fields = {attributes["id"] for tag, attributes in tags if tag in ("input", "select", "textarea")}
    assert fields == labelled
    for _, attributes in tags:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name) is None or attributes[name] in ids


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_scripts_make_no_html_and_import_what_is_there(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    assert all(imported in FILES for imported in re.findall(r'from "\./([^"]+)"', text))
    ids = re.findall(r'id="([^"]+)"', (FOLDER / "index.html").read_text(encoding="utf-8"))
    assert all(used in ids for used in re.findall(r'\$\("([^"]+)"\)', text))
