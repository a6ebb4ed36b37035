"""Files on the page: attached to a message, shown or saved from messages and answers."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from studio_page import expect, send, sign_in, status_of
from studio_server import StudioServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
NOTES = b"Buy tea.\n"


def attach(page: "Page", *files: tuple[str, str, bytes]) -> None:
    chosen = [{"name": name, "mimeType": kind, "buffer": data} for name, kind, data in files]
    page.get_by_label("Files to attach").set_input_files(chosen)  # type: ignore[arg-type]


def test_a_picture_is_shown_and_another_file_is_saved(
    page: "Page", studio: StudioServer, shoot: "Callable[[str], None]"
) -> None:
    sign_in(page, studio)
    attach(
        page,
        ("dot.png", "image/png", PNG),
        ("notes.txt", "text/plain", NOTES),
        ("gone.txt", "text/plain", b"x"),
    )
    attached = page.get_by_role("list", name="Files of the message")
    expect(attached.get_by_role("listitem")).to_contain_text(["dot.png", "notes.txt", "gone.txt"])
    page.get_by_role("button", name="Remove gone.txt").click()
    expect(attached.get_by_role("listitem")).to_have_count(2)
    send(page, "show me")
    expect(status_of(page)).to_have_text("completed")
    for article in (
        page.get_by_role("article", name="Message from you"),
        page.get_by_role("article", name="Answer"),
    ):
        picture = article.get_by_role("img", name="dot.png")
        expect(picture).to_be_visible()
        assert picture.evaluate("(image) => image.naturalWidth") == 1
        expect(article.get_by_role("button", name="notes.txt")).to_be_visible()
    shoot("files")
    with page.expect_download() as download:
        page.get_by_role("button", name="notes.txt").first.click()
    assert download.value.suggested_filename == "notes.txt"
    assert Path(download.value.path()).read_bytes() == NOTES
    expect(attached).to_have_count(0)


def test_a_file_that_is_refused_is_named(page: "Page", studio: StudioServer) -> None:
    sign_in(page, studio)
    attach(page, ("broken.png", "image/png", NOTES))
    expect(page.get_by_role("alert")).to_contain_text("broken.png: the file is declared as image/png")
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium logs the 400
