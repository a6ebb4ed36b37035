"""A stand-in for Ollama, on HTTP."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.services.loopback import Handler, serve


@contextmanager
def ollama(**answer: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the URL of a server whose models answer each request with this tool call, and the list of requests."""
    asked: list[dict[str, Any]] = []

    class Ollama(Handler):
        def respond(self) -> None:
            body = json.loads(self.body())
            replies: dict[str, dict[str, Any]] = {
                "/api/show": {
                    "capabilities": ["completion", "tools"],
                    "template": "{{ .Tools }}",
                    "model_info": {},
                },
                "/api/chat": {
                    "model": body.get("model"),
                    "created_at": "2026-01-01T00:00:00Z",
                    "message": {"role": "assistant", "content": "", "tool_calls": [{"function": answer}]},
                    "done": True,
                    "done_reason": "stop",
                    "prompt_eval_count": 1,
                    "eval_count": 1,
                },
            }
            if self.path == "/api/chat":
                asked.append(body)
            text = json.dumps(replies.get(self.path, {})).encode()
            self.answer(200 if self.path in replies else 404, text, {"Content-Type": "application/json"})

    with serve(Ollama) as url:
        yield url, asked
