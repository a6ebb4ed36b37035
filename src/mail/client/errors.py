"""The errors of the client.

    MAILClientError (RuntimeError)       in MAILError's tree
    ├── InvalidConnection (ValueError)   the URL or the key is not valid
    ├── InvalidRequest (ValueError)      the request can't be encoded, or asks for something unsupported
    ├── SeveralCalls (ValueError)        several calls wait for approval, and none was named; `calls`
    ├── ServerUnreachable                the request was not sent
    ├── ConnectionLost                   it was sent; whether it arrived is unknown
    ├── RequestTimedOut (TimeoutError)   likewise
    └── BadAnswer                        the server refuses the request; `status`, `detail`
        ├── TooManyRequests              429: retry later; `retry_after`
        ├── QuestionOpen                 409: the task waits for an answer; `pending_tool_calls`
        └── NotJSON (ValueError)         the answer is not from a MAIL server; `content_type`, `body`

An error of the HTTP library is chained as `__cause__`: of aiohttp if the client was given one of its sessions, else
of httpx2.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mail.errors import MAILError

SHOWN_CHARACTERS = 500
"""The length up to which a body that is not JSON is quoted in the error."""


class MAILClientError(MAILError, RuntimeError):
    """The request failed, or its answer is not usable."""


class InvalidConnection(MAILClientError, ValueError):
    """The server's URL or the API key is not valid."""


class InvalidRequest(MAILClientError, ValueError):
    """The request is not valid; nothing was sent."""


class SeveralCalls(MAILClientError, ValueError):
    """Several calls wait for approval, and the decision names none of them; nothing was sent.

    Attributes:
        calls: the calls, as in `pending_tool_calls`.
    """

    def __init__(self, task_id: str, calls: Sequence[Mapping[str, Any]]) -> None:
        lines = (
            f"\n  {call['call_id']}: {call['name']} with {json.dumps(call['arguments'], ensure_ascii=False)}"
            for call in calls
        )
        super().__init__(
            f"{len(calls)} calls of task {task_id!r} wait for approval; give the call_id of one (--call), or decide "
            f"on all (all=True, --all):{''.join(lines)}"
        )
        self.calls = list(calls)


class ServerUnreachable(MAILClientError):
    """The server can't be reached; nothing was sent."""


class ConnectionLost(MAILClientError):
    """The connection broke; whether the server received the request is unknown."""


class RequestTimedOut(MAILClientError, TimeoutError):
    """The server did not answer in time; whether it received the request is unknown."""


class BadAnswer(MAILClientError):
    """The server refuses the request.

    Attributes:
        status: the HTTP status.
        detail: the server's explanation.
    """

    def __init__(self, request: str, status: int, detail: str) -> None:
        super().__init__(detail)
        self.args = (f"{request}: {status} {detail}",)
        self.status = status


class TooManyRequests(BadAnswer):
    """The caller has sent too many requests; this one has changed nothing.

    Attributes:
        retry_after: seconds to wait before a retry; None if the server doesn't say.
    """

    def __init__(self, request: str, status: int, detail: str, retry_after: float | None) -> None:
        when = "" if retry_after is None else f" (retry after {retry_after:g} s)"
        super().__init__(request, status, detail + when)
        self.retry_after = retry_after


class QuestionOpen(BadAnswer):
    """The task waits for an answer, which the message is not; nothing has changed.

    Attributes:
        pending_tool_calls: the calls that wait, as in `GET /task`.
    """

    def __init__(
        self, request: str, status: int, detail: str, pending_tool_calls: list[dict[str, Any]]
    ) -> None:
        super().__init__(request, status, detail)
        self.pending_tool_calls = pending_tool_calls


class NotJSON(BadAnswer, ValueError):
    """The answer is not JSON: it comes from a proxy, or from something other than a MAIL server.

    Attributes:
        content_type: the answer's content type; may be empty.
        body: the whole body.
    """

    def __init__(self, request: str, status: int, content_type: str, body: str) -> None:
        shown = body if len(body) <= SHOWN_CHARACTERS else f"{body[:SHOWN_CHARACTERS]}…"
        super().__init__(
            request, status, f"expected JSON, got {content_type or 'no content type'}: {shown!r}"
        )
        self.content_type = content_type
        self.body = body
