"""HTTP servers on loopback whose answers a test writes itself."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType


class Handler(BaseHTTPRequestHandler):
    """Handles a request, `GET` or `POST`: write `respond` with `body` and `answer`."""

    def respond(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def body(self) -> bytes:
        """Read the body of the request."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(
        self, status: int = 200, body: bytes = b"", headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Write a whole answer."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests in a thread, and yield the server's URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
