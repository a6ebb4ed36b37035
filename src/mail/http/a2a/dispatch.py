"""The SDK's reading of requests and writing of responses, for both bindings and versions."""

from functools import cache

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.constants import VERSION_HEADER
from fastapi import Request
from fastapi.responses import Response
from starlette.routing import BaseRoute, Match, Route

from mail.http.a2a.card import PATH, make_card
from mail.http.a2a.handler import REFUSED, REQUEST, SwarmHandler
from mail.http.bodies import JSON, read_body, replayed, room_for_file
from mail.http.service import service_of
from mail.http.sse import SHUTDOWN_GRACE


class _Contexts(ServerCallContextBuilder):
    """Builds what the SDK passes on with each call: the request, and the version that it asks for."""

    def build(self, request: Request) -> ServerCallContext:
        headers = dict(request.headers)
        if (version := request.query_params.get(VERSION_HEADER)) is not None:
            headers.setdefault(VERSION_HEADER.lower(), version)
        return ServerCallContext(state={REQUEST: request, "headers": headers})


@cache
def _routes() -> list[BaseRoute]:
    handler, contexts = SwarmHandler(), _Contexts()
    return [
        *create_jsonrpc_routes(
            handler, PATH, contexts, enable_v0_3_compat=True, shutdown_grace_period=SHUTDOWN_GRACE
        ),
        *create_rest_routes(handler, contexts, True, PATH, shutdown_grace_period=SHUTDOWN_GRACE),
    ]


async def handle(request: Request) -> Response:
    """Answer a request below `PATH`. Raises PayloadTooLarge, RateLimited, and what else is an HTTP status."""
    service = service_of(request)
    body = await read_body(request, service.max_body_bytes + room_for_file(service))
    receive = replayed(request, body)
    for route in _routes():
        match, found = route.matches(request.scope)
        if match is Match.FULL and isinstance(route, Route):
            request.scope.update(found)  # the same dictionary, in which the app finds what the request holds
            response: Response = await route.endpoint(Request(request.scope, receive))
            if (refused := request.scope.get(REFUSED)) is not None:
                raise refused
            return response
    return JSON({"detail": "unknown endpoint of A2A"}, status_code=404)


def public_card(request: Request) -> Response:
    """Answer with the card for everybody, which clients of A2A 0.3 can read, too."""
    return JSON(agent_card_to_dict(make_card(request)), headers={"Cache-Control": "public, max-age=300"})
