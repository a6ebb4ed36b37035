"""`GET /docs` in debug mode: the OpenAPI document as a page, without scripts and without files of other hosts."""

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from mail.http.routes.ui import HEADERS

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def get_docs(request: Request) -> HTMLResponse:
    """Return the page."""
    return HTMLResponse("\n".join(_page(request.scope["app"].openapi())), headers=HEADERS)


def _page(document: dict[str, Any]) -> Iterator[str]:
    title = escape(document["info"]["title"])
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
    yield f'<link rel="stylesheet" href="ui/base.css"><main><h1>{title}</h1>'
    yield f'<p>{escape(document["info"]["description"])}</p><p><a href="openapi.json">openapi.json</a></p>'
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f"<code>{method.upper()} {escape(path)}</code> {escape(operation['summary'])}"
            yield f"<details><summary>{name}</summary><p>{escape(operation.get('description', ''))}</p><dl>"
            for given in operation.get("parameters", ()):
                yield f"<dt><code>{escape(given['name'])}</code> ({given['in']})"
                yield f"<dd>{escape(given.get('description', ''))}"
            for status, response in operation["responses"].items():
                yield f"<dt>{escape(status)}<dd>{escape(response['description'])}"
            yield "</dl></details>"
    yield "</main>"
