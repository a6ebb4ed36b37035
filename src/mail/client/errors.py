"""What can go wrong when a server is asked.

    MAILClientError (RuntimeError)       of MAILError's tree
    ├── InvalidConnection (ValueError)   nothing can be asked with this URL or key
    ├── InvalidRequest (ValueError)      this can't be sent: no JSON can hold it, or it asks for what is not to be had
    ├── ServerUnreachable                the request was not sent
    ├── ConnectionLost                   it was sent; whether it arrived is not known
    ├── RequestTimedOut (TimeoutError)   likewise
    └── BadAnswer                        the server refuses; `status`, `detail`
        ├── TooManyRequests              429: later it may not; `retry_after`
        └── NotJSON (ValueError)         somebody else answers; `content_type`, `body`

The HTTP library's own error, where there was one, is chained as `__cause__`.
"""

from mail.errors import MAILError

SHOWN_CHARACTERS = 500
"""How much of a body that is no JSON is part of the error's text."""


class MAILClientError(MAILError, RuntimeError):
    """The server could not be asked, or gave no answer that can be used."""


class InvalidConnection(MAILClientError, ValueError):
    """The server's URL or the API key is not valid."""


class InvalidRequest(MAILClientError, ValueError):
    """The request can't be sent as it is; nothing was sent."""


class ServerUnreachable(MAILClientError):
    """There is no connection to the server; nothing was sent."""


class ConnectionLost(MAILClientError):
    """The connection broke; whether the server has the request is not known."""


class RequestTimedOut(MAILClientError, TimeoutError):
    """The server did not answer in time; whether it has the request is not known."""


class BadAnswer(MAILClientError):
    """The server refuses the request.

    Attributes:
        status: of the HTTP answer.
        detail: what the server says is wrong.
    """

    def __init__(self, request: str, status: int, detail: str) -> None:
        super().__init__(detail)
        self.args = (f"{request}: {status} {detail}",)
        self.status = status


class TooManyRequests(BadAnswer):
    """The server has enough to do for this caller; the request has changed nothing there.

    Attributes:
        retry_after: after how many seconds to ask again; None where the server doesn't say.
    """

    def __init__(self, request: str, status: int, detail: str, retry_after: float | None) -> None:
        when = "" if retry_after is None else f" (ask again after {retry_after:g} s)"
        super().__init__(request, status, detail + when)
        self.retry_after = retry_after


class NotJSON(BadAnswer, ValueError):
    """The answer is no JSON: it comes from a proxy, or from something that is no MAIL server.

    Attributes:
        content_type: what the answer says it is; empty where it says nothing.
        body: all of it.
    """

    def __init__(self, request: str, status: int, content_type: str, body: str) -> None:
        shown = body if len(body) <= SHOWN_CHARACTERS else f"{body[:SHOWN_CHARACTERS]}…"
        super().__init__(request, status, f"not JSON but {content_type or 'of no content type'}: {shown!r}")
        self.content_type = content_type
        self.body = body
