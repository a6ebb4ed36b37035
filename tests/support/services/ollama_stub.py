"""A stand-in for Ollama, on HTTP."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@contextmanager
def ollama(**answer: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the URL of a server whose models answer each request with this tool call, and the list of requests."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
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
            self.send_response(200 if self.path in replies else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
