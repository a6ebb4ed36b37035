"""The HTTP API in front of the functions: converts requests to events of payload format 2.0, and results to responses.

https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
"""

import asyncio
import json
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mail.local_aws.functions import LambdaFunction
from mail.local_aws.stack import Cors, Route

INTEGRATION_SECONDS = 30.0
PAYLOAD_BYTES = 6 << 20
"""The size limit of an event and of a result."""

SIGNATURE = "AWS4-HMAC-SHA256 "

_TEXT = re.compile(r"text/|application/(json|javascript|xml|x-www-form-urlencoded|[\w.+-]+\+(json|xml))")
_NOT_PASSED_ON = {"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"}


class HttpApi:
    """An ASGI application that invokes the function of the best matching route."""

    def __init__(self, routes: Sequence[Route], functions: Mapping[str, LambdaFunction]) -> None:
        self._routes = [(route, _pattern(route.path)) for route in sorted(routes, key=_rank)]
        self._functions = functions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        found = self._find(request.method, request.url.path)
        if found is None:
            return _message(404, "Not Found")
        route, parameters = found
        body = await request.body()
        if len(body) > PAYLOAD_BYTES:
            return _message(413, "Request Entity Too Large")
        event = make_event(request, body, route, parameters)
        try:
            async with asyncio.timeout(INTEGRATION_SECONDS):
                done = await self._functions[route.function].invoke(event)
        except TimeoutError:
            return _message(503, "Service Unavailable")
        if not done.succeeded or len(done.payload) > PAYLOAD_BYTES:
            return _message(500, "Internal Server Error")
        return make_response(done.result)

    def _find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        for route, pattern in self._routes:
            fits = pattern.fullmatch(path)
            if fits and route.method in (method, "ANY"):
                return route, fits.groupdict()
        return None


class OnlySigned:
    """A function URL with `AuthType: AWS_IAM`: requires a signature, but can't verify it."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward signed requests, and refuse the rest."""
        authorization = Request(scope).headers.get("authorization", "")
        refusal = Response('{"Message":"Forbidden"}', status_code=403, media_type="application/json")
        application = self._application if authorization.startswith(SIGNATURE) else refusal
        await application(scope, receive, send)


def _rank(route: Route) -> tuple[bool, bool, bool, bool]:
    """Return the rank of a route in API Gateway: routes without variables first, then greedy ones, then $default."""
    return route.path == "$default", "+}" in route.path, "{" in route.path, route.method == "ANY"


def _pattern(path: str) -> re.Pattern[str]:
    if path == "$default":
        return re.compile(r".*")
    escaped = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path))
    return re.compile(re.sub(r"\\\{(\w+)\\\+\\\}", r"(?P<\1>.+)", escaped))


def make_event(request: Request, body: bytes, route: Route, parameters: Mapping[str, str]) -> dict[str, Any]:
    headers: dict[str, list[str]] = {}
    for name, value in request.headers.items():
        headers.setdefault(name, []).append(value)
    cookies = [cookie.strip() for line in headers.pop("cookie", []) for cookie in line.split(";")]
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(request.url.query, keep_blank_values=True):
        query.setdefault(name, []).append(value)
    client = request.client.host if request.client else "127.0.0.1"
    text = _decode(body, request.headers.get("content-type", ""))
    key = route.path if route.path == "$default" else f"{route.method} {route.path}"
    joined = {name: ",".join(values) for name, values in headers.items()}
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": key,
        "rawPath": request.url.path,
        "rawQueryString": request.url.query,
        "headers": {**joined, "x-forwarded-for": client, "x-forwarded-proto": request.url.scheme},
        "requestContext": _context(request, key, client),
        "isBase64Encoded": text is None,
    }
    optional = {
        "cookies": cookies,
        "queryStringParameters": {name: ",".join(values) for name, values in query.items()},
        "pathParameters": dict(parameters),
        "body": b64encode(body).decode() if text is None else text,
    }
    return {**event, **{name: value for name, value in optional.items() if value}}


def _decode(body: bytes, content_type: str) -> str | None:
    """Return a body as text; None for binary bodies, which are sent in Base64."""
    if body and not _TEXT.match(content_type):
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _context(request: Request, key: str, client: str) -> dict[str, Any]:
    now = time.time()
    return {
        "accountId": "000000000000",
        "apiId": "local",
        "domainName": request.url.netloc,
        "domainPrefix": "local",
        "http": {
            "method": request.method,
            "path": request.url.path,
            "protocol": "HTTP/1.1",
            "sourceIp": client,
            "userAgent": request.headers.get("user-agent", ""),
        },
        "requestId": uuid4().hex,
        "routeKey": key,
        "stage": "$default",
        "time": datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S %z"),
        "timeEpoch": int(now * 1000),
    }


def make_response(result: Any) -> Response:
    """Return the HTTP response of a function's result; without a status code, the result is a JSON body."""
    if not isinstance(result, dict) or "statusCode" not in result:
        return JSONResponse(result)
    text = result.get("body") or ""
    try:
        content = b64decode(text) if result.get("isBase64Encoded") else text.encode()
        response = Response(content, status_code=int(result["statusCode"]))
    except (TypeError, ValueError):
        return _message(500, "Internal Server Error")
    for name, value in (result.get("headers") or {}).items():
        if name.lower() not in _NOT_PASSED_ON:
            response.headers[name] = str(value)
    for cookie in result.get("cookies") or ():
        response.headers.append("set-cookie", cookie)
    return response


def _message(status: int, text: str) -> Response:
    return Response(json.dumps({"message": text}), status_code=status, media_type="application/json")


def with_cors(application: ASGIApp, cors: Cors | None) -> ASGIApp:
    """Return the application with CORS middleware, if configured."""
    if cors is None:
        return application
    return CORSMiddleware(
        application,
        allow_origins=cors.origins,
        allow_methods=cors.methods,
        allow_headers=cors.headers,
        expose_headers=cors.exposed,
        max_age=cors.max_age,
    )
