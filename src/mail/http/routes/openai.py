"""`/v1`: the swarm behind OpenAI's Responses and Chat Completions (`mail.http.openai`), not in the OpenAPI document."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from mail.http.access import AdminOrUser, RoleGate
from mail.http.bodies import JSON
from mail.http.openai.errors import OpenAIRoute
from mail.http.routes.files import get_file

MAX_NUMBER = 2**53

router = APIRouter(prefix="/v1", route_class=OpenAIRoute, include_in_schema=False)
debug_router = APIRouter(route_class=OpenAIRoute, include_in_schema=False)
"""Responses without `/v1`, for any `model`; only in debug mode."""

_gate = RoleGate("admin", "user")

# `mail.http.openai` is imported inside, as it would take a tenth of a function's start


@router.post("/responses")
async def post_responses(request: Request) -> Response:
    """Create a response of a model that is the swarm or one of its entrypoints."""
    from mail.http.openai.endpoints import create_response

    return await create_response(request, await _gate(request), names_model=True)


@debug_router.post("/responses")
async def post_debug_responses(request: Request) -> Response:
    """Create a response, whatever the request's model."""
    from mail.http.openai.endpoints import create_response

    return await create_response(request, await _gate(request), names_model=False)


@router.get("/responses/{response_id:path}")
@debug_router.get("/responses/{response_id:path}")
async def get_responses(
    request: Request,
    response_id: str,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1, le=MAX_NUMBER)] = -1,
) -> Response:
    """Return a response, or stream it."""
    from mail.http.openai.endpoints import get_response

    caller = await _gate(request)
    return await get_response(request, caller, response_id, streams=stream, starting_after=starting_after)


@router.post("/responses/{response_id:path}/cancel")
@debug_router.post("/responses/{response_id:path}/cancel")
async def post_responses_cancel(request: Request, response_id: str) -> Response:
    """Cancel the work on a response."""
    from mail.http.openai.endpoints import cancel_response

    return JSON(await cancel_response(request, await _gate(request), response_id))


@router.delete("/responses/{response_id:path}")
@debug_router.delete("/responses/{response_id:path}")
async def delete_responses(request: Request, response_id: str) -> Response:
    """Delete a response."""
    from mail.http.openai.endpoints import delete_response

    return JSON(await delete_response(request, await _gate(request), response_id))


@router.post("/chat/completions")
async def post_chat_completions(request: Request) -> Response:
    """Create a completion."""
    from mail.http.openai.endpoints import create_completion

    return await create_completion(request, await _gate(request))


@router.post("/conversations")
async def post_conversations(request: Request, _caller: AdminOrUser) -> Response:
    """Create a conversation."""
    from mail.http.openai.endpoints import create_conversation

    return JSON(await create_conversation(request))


@router.get("/models")
async def get_models(request: Request, _caller: AdminOrUser) -> Response:
    """List the models."""
    from mail.http.openai.endpoints import list_models

    return JSON(list_models(request))


@router.get("/models/{name:path}")
async def get_model(request: Request, _caller: AdminOrUser, name: str) -> Response:
    """Return a model."""
    from mail.http.openai import endpoints

    return JSON(endpoints.get_model(request, name))


router.add_api_route("/files/{file_id}/content", get_file)
