"""The page of a link to one call: without scripts, without files, and without anything else of the task."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from mail.core.protocol.visible_text import printable
from mail.errors import MAILError

_STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}"
    "body{max-width:44rem;margin:2rem auto;padding:0 1rem}"
    "pre{overflow:auto;padding:1rem;border:1px solid;border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere}"
    "code{overflow-wrap:anywhere}input,textarea,button{font:inherit;padding:.5rem 1rem;margin:.25rem 0}"
    "input,textarea{width:100%;box-sizing:border-box}"
)

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}

_DONE = {"approve": "Approved", "answer": "Answered", "reject": "Rejected"}


def form_of(call: Mapping[str, Any]) -> str:
    """Return the page with a call (`mail.core.decisions.reviewers.show_call`), and a form for the decision."""
    facts = {
        "Agent": call["agent"],
        "Asked for by": call["requested_by"],
        "Asked at": call["asked"],
        "Decide by": call["decide_by"] or "any time",
    }
    listed = "".join(f"<dt>{name}<dd>{_text(fact)}" for name, fact in facts.items())
    form = f'<form method="post"><input type="hidden" name="arguments_sha256" value="{call["arguments_sha256"]}">'
    asked = f"{_text(call['question'])} " if call["question"] else ""
    title, says = f"Approve {call['name']}?", f"{asked}It will be called with these arguments:"
    answer, approve = "", '<button name="decision" value="approve">Approve</button> '
    if not call["needs_approval"]:
        title, says = f"Answer {call['name']}?", f"{asked}It asks with these arguments:"
        approve = ""
        answer = (
            '<label>Answer<textarea name="answer" rows="4" required></textarea></label>'
            f'<button name="decision" value="answer">Answer</button></form>{form}'
        )
    return _page(
        title,
        f"<dl>{listed}</dl><p>{says}</p>"
        # in ASCII, so that no character in it is invisible
        f"<pre>{escape(json.dumps(call['arguments'], indent=2))}</pre>"
        f"<p>SHA-256: <code>{call['arguments_sha256']}</code></p>{form}{answer}"
        '<label>Reason, which the agent reads if you reject it<input name="reason" maxlength="1000"></label>'
        f'{approve}<button name="decision" value="reject">Reject</button></form>',
    )


def decided(decision: str) -> str:
    """Return the page after a decision."""
    return _page(_DONE[decision], "<p>Your decision is recorded. You can close this page.</p>")


def problem(error: Exception) -> str:
    """Return the page of an error."""
    detail = error.detail if isinstance(error, MAILError) else "The form is not valid: load its page again."
    return _page("This can’t be done", f"<p>{_text(detail)}</p>")


def _text(text: str) -> str:
    return f"<bdi>{escape(printable(text))}</bdi>"


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(printable(title))}</title><style>{_STYLE}</style><h1>{_text(title)}</h1>{body}"
    )
