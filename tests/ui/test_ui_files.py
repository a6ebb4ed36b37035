"""What `GET /ui` serves, as a browser gets it."""

import re
from collections.abc import AsyncIterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from support.processes.http_server import HTTPServer

from mail.http.routes.ui import FOLDER, MEDIA_TYPES
from mail.testing.agents import build_swarm, complete, turns

FILES = sorted(
    path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES
)
SCRIPTS = [name for name in FILES if name.endswith(".js")]
VENDOR = FOLDER / "vendor"
OWN_SCRIPTS = [name for name in SCRIPTS if not name.startswith("vendor/")]
IMPORTS = re.compile(r'(?:from|import) ?"([^"]+)"')


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


async def test_each_file_is_served_as_it_is(server: HTTPServer) -> None:
    for name in FILES:
        response = await server.client.get(f"/ui/{name}")
        assert response.status_code == 200, name
        assert response.content == (FOLDER / name).read_bytes(), name
        assert response.headers["content-type"] == MEDIA_TYPES[Path(name).suffix], name


async def test_the_page_and_its_policy(server: HTTPServer) -> None:
    response = await server.client.get("/ui")
    assert b'<script type="module" src="ui/v-' in response.content
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
    first = await server.client.get("/ui/app/app.js")
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    bare = tag.removeprefix("W/")
    for known in (bare, f"W/{bare}", f'"other", {tag}'):
        again = await server.client.get("/ui/app/app.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = await server.client.get("/ui/app/app.js", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


async def test_what_the_page_loads_may_be_kept_for_ever(server: HTTPServer) -> None:
    html = (await server.client.get("/ui")).text
    links = re.findall(r'(?:src|href)="(ui/[^"]+)"', html)
    assert len(links) > 3
    for link in links:
        response = await server.client.get(f"/{link}")
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
    other = await server.client.get("/ui/v-0123456789abcdef/app/app.js")
    assert other.content == (FOLDER / "app/app.js").read_bytes()
    assert other.headers["cache-control"] == "no-cache", "a page of another version gets today's files, once"


@pytest.mark.parametrize(
    "name", ["none.js", "..%2Fapp.py", "%2e%2e/app.py", "app/..%2F..%2Fapp.py", "app", "vendor/README.md", ""]
)
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


def test_scripts_make_no_html() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bimport\((?!\"\.)"
    )
    for name in OWN_SCRIPTS:
        assert not forbidden.search((FOLDER / name).read_text(encoding="utf-8")), name


def test_scripts_import_what_is_there() -> None:
    for name in SCRIPTS:
        for imported in IMPORTS.findall((FOLDER / name).read_text(encoding="utf-8")):
            assert imported.startswith("."), f"{name} imports {imported}"
            assert (FOLDER / name).parent.joinpath(imported).resolve().is_file(), f"{name} imports {imported}"


def test_each_vendored_library_is_the_published_one_and_has_its_licence() -> None:
    rows = re.findall(
        r"`([^`]+\.js)` \| `[^`]+` \| `([0-9a-f]{64})`", (VENDOR / "README.md").read_text(encoding="utf-8")
    )
    assert sorted(name for name, _ in rows) == sorted(path.name for path in VENDOR.glob("*.js"))
    for name, digest in rows:
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
        assert (VENDOR / name).with_suffix(".LICENSE.txt").read_text(encoding="utf-8").strip(), name


def test_the_wheel_has_every_file_of_the_page(tmp_path: Path) -> None:
    builder = WheelBuilder(str(FOLDER.parents[3]))
    included = {file.distribution_path for file in builder.recurse_included_files()}
    page = {path for path in FOLDER.rglob("*") if path.is_file()}
    assert {f"mail/http/ui/{path.relative_to(FOLDER).as_posix()}" for path in page} <= included


@pytest.mark.parametrize("path", ["/ui", "/ui/html.js"])
async def test_its_headers_alone(server: HTTPServer, path: str) -> None:
    shown, headers = await server.client.get(path), await server.client.head(path)
    assert (headers.status_code, headers.content) == (200, b"")
    assert headers.headers["etag"] == shown.headers["etag"]
