"""Requests that are wrong for certain, as the bytes that go over the wire.

`bad_requests(seed, keys)` yields requests without an end; every one of them must be refused and change nothing.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any
from urllib.parse import quote

GOOD: dict[str, Any] = {
    "body": "hello",
    "subject": "Subject",
    "msg_type": "request",
    "entrypoint": "supervisor",
    "show_events": True,
    "stream": False,
    "task_id": "no-such-task",
    "kwargs": {"max_steps": 5, "timeout": 10.5},
}
TEXTS = [
    "",
    "x",
    "supervisor@",
    "all",
    "\x00",
    "é",
    "🦜",
    "\u2028",
    "../..",
    "' OR 1=1 --",
    "%s%n",
    "<from>",
    "a" * 5000,
]
WRONG: dict[str, list[Any]] = {
    "body": [1, True, [], {}, ["x"], "", None],
    "subject": [1, False, [], {}],
    "msg_type": ["", "REQUEST", "broadcast_complete", 1, [], {}],
    "entrypoint": [1, [], {}, *TEXTS],
    "show_events": ["perhaps", 2, [], {}, 0.5],
    "stream": ["perhaps", -1, [], {}],
    "task_id": ["", 1, [], {}, "a\nb", "a#b", "\x7f", "x" * 257],
    "resume_from": ["", "start", 1, [], {}, "user_response", "breakpoint_tool_call"],
    "kwargs": [1, "x", [], True],
}
WRONG_OPTIONS: dict[str, list[Any]] = {
    "max_steps": [0, -1, 10**7, 10**30, 1.5, "x", [], {}],
    "timeout": [0, -1, 1e8, "x", [], {}],
}
SURROGATES = [r"\ud800", r"\udc00", r"\udfff", r"\ud800\ud800", r"\udc00\ud800", r"\ud8", r"\ud800x"]
NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "9" * 5000, "01", "1.", "+1", "0x1", "1e", "--1"]
NO_KEYS = [
    "",
    "Bearer",
    "Bearer x y",
    "Basic YTpi",
    "Bearer mail_user_guess",
    "bearer \t",
    "Digest x",
    "Bearer null",
]
PATHS = [
    "/nope",
    "/message/",
    "/messages",
    "/task/",
    "/task/stream/",
    "/tasks/x",
    "//",
    "/..",
    "/%2e%2e/",
    "/%00",
    "/swarmed",
    "/%ff",
]
QUERIES = [
    "/tasks?limit=0", "/tasks?limit=1001", "/tasks?limit=x", "/tasks?limit=", "/tasks?limit=1e3", "/tasks?status=lost",
    "/tasks?status=", "/tasks?cursor=%00", "/tasks?cursor=-1", "/tasks?cursor=%ff", "/tasks?cursor=" + "9" * 300,
    "/task", "/task?task_id=", "/task?task_id=a%0Ab", "/task?task_id=a%23b", "/task?task_id=%00", "/task?task=1",
    "/task/stream", "/task/stream?task_id=", "/task/stream?task_id=no-such-task&last_event_id=x",
    "/task/stream?task_id=no-such-task&last_event_id=-1", "/task/stream?task_id=done&last_event_id=99",
    "/task/stream?task_id=no-such-task",
]  # fmt: skip


class BadRequests:
    """One kind of bad request per method; `keys` are those of the roles."""

    def __init__(self, random: Random, keys: Mapping[str, str]) -> None:
        self._random = random
        self._keys = keys
        self._kinds: list[Callable[[], bytes]] = [
            self.wrong_field,
            self.wrong_option,
            self.cut_off,
            self.noise,
            self.invalid_utf_8,
            self.surrogate,
            self.no_number,
            self.nested,
            self.no_key,
            self.wrong_role,
            self.unknown_path,
            self.wrong_method,
            self.wrong_query,
            self.unknown_task,
            self.wrong_health,
            self.too_large,
            self.no_http,
        ]

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self._random.choice(self._kinds)()

    def wrong_field(self) -> bytes:
        field = self._pick(list(WRONG))
        return self._message({**GOOD, field: self._pick(WRONG[field])})

    def wrong_option(self) -> bytes:
        option = self._pick(list(WRONG_OPTIONS))
        return self._message({**GOOD, "kwargs": {option: self._pick(WRONG_OPTIONS[option])}})

    def cut_off(self) -> bytes:
        text = json.dumps(GOOD).encode()
        return self._post(text[: self._random.randrange(len(text))])

    def noise(self) -> bytes:
        noise = self._random.randbytes(self._random.randrange(1, 200))
        return self._post(noise + b"\xff")

    def invalid_utf_8(self) -> bytes:
        text = bytearray(json.dumps(GOOD).encode())
        text[self._random.randrange(len(text))] = self._random.randrange(0x80, 0x100)
        return self._post(bytes(text))

    def surrogate(self) -> bytes:
        broken = self._pick(SURROGATES)
        field = self._pick(["body", "subject", "task_id", "entrypoint"])
        texts = [
            f'{{"body": "x", "{broken}": 1}}',
            f'{{"body": "x", "{field}": "a{broken}"}}',
            f'{{"body": "x", "kwargs": {{"breakpoint_tool_call_result": ["{broken}"]}}}}',
            f'{{"body": "x", "kwargs": {{"any": {{"{broken}": 1}}}}}}',
        ]
        return self._post(self._pick(texts).encode())

    def no_number(self) -> bytes:
        number = self._pick(NO_NUMBERS)
        place = self._pick(
            ['{"body": "x", "other": %s}', '{"body": "x", "kwargs": {"timeout": %s}}', "%s", '{"body": %s}']
        )
        return self._post((place % number).encode())

    def nested(self) -> bytes:
        depth = self._random.randrange(300, 20_000)
        opening = self._pick([b"[", b'{"a":'])
        end = self._pick([b"", b"1" + (b"]" if opening == b"[" else b"}") * depth + b"}"])
        return self._post(b'{"body": "x", "other": ' + opening * depth + end)

    def no_key(self) -> bytes:
        return self._post(json.dumps(GOOD).encode(), {"Authorization": self._pick(NO_KEYS)})

    def wrong_role(self) -> bytes:
        role, path = self._pick([("agent", "/message"), ("agent", "/health"), ("user", "/health")])
        body = b'{"status": "taken over"}' if path == "/health" else json.dumps(GOOD).encode()
        return self._request("POST", path, body, {"Authorization": f"Bearer {self._keys[role]}"})

    def unknown_path(self) -> bytes:
        return self._request(self._pick(["GET", "POST", "PUT"]), self._pick(PATHS), b"{}")

    def wrong_method(self) -> bytes:
        method = self._pick(["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "X"])
        path = self._pick(
            ["/", "/health", "/whoami", "/status", "/message", "/tasks", "/task", "/task/stream"]
        )
        return self._request(method, path, json.dumps(GOOD).encode())

    def wrong_query(self) -> bytes:
        return self._request("GET", self._pick(QUERIES), b"")

    def unknown_task(self) -> bytes:
        name = self._pick(TEXTS) + str(self._random.random())
        if self._random.random() < 0.5:
            return self._request("GET", f"/task?task_id={quote(name)}", b"")
        body = json.dumps({"task_id": self._pick([name, 1, None, [], ""])}).encode()
        return self._request("GET", "/task", body)

    def wrong_health(self) -> bytes:
        body = self._pick(
            [{}, [], {"status": 1}, {"status": ""}, {"status": "\n"}, {"status": "x" * 300}, None]
        )
        headers = {"Authorization": f"Bearer {self._keys['admin']}"}
        return self._request("POST", "/health", json.dumps(body).encode(), headers)

    def too_large(self) -> bytes:
        length = self._pick([4 * 1024 * 1024 + 1, 10**9, 10**18])
        return self._request("POST", "/message", b"", {"Content-Length": str(length)})

    def no_http(self) -> bytes:
        return self._pick(
            [
                self._random.randbytes(self._random.randrange(1, 400)) + b"\r\n\r\n",
                b"GET\r\n\r\n",
                b"GET / HTTP/x\r\n\r\n",
                b"POST /message HTTP/1.1\r\n\r\n",
                b"POST /message HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                b"POST /message HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
                b"POST /message HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                b"GET / HTTP/1.1\r\nHost: x\r\nBroken header\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n",
                b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            ]
        )

    def _pick[T](self, choices: list[T]) -> T:
        return self._random.choice(choices)

    def _message(self, fields: dict[str, Any]) -> bytes:
        return self._post(json.dumps(fields).encode())

    def _post(self, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        return self._request("POST", "/message", body, headers)

    def _request(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> bytes:
        fields = {
            "Host": "x",
            "Authorization": f"Bearer {self._keys['user']}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in fields.items()
        )
        return head.encode("latin-1") + b"\r\n" + body
