"""JSON in and out.

Bodies are read here and not by FastAPI, so that nobody without a key can make the server read one, a large
one is refused while it arrives, and text that can't be stored (lone surrogates, invalid UTF-8) never gets in.
"""

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import ClientDisconnect

from mail.core.protocol.mail_tools import explain
from mail.errors import BadRequest, PayloadTooLarge
from mail.http.service import service_of


class JSON(Response):
    """A response whose content is any value that JSON can hold."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The content as JSON; bytes count as JSON already."""
        return content if isinstance(content, bytes) else to_json(content)


class JSONBody[Model: BaseModel]:
    """FastAPI dependency: the request's body, read as a model.

    Put it behind the caller in a route's signature, so that the caller is checked first. With
    `optional=True` a request without a body is read as `{}`.
    """

    def __init__(self, model: type[Model], *, optional: bool = False) -> None:
        self.model = model
        self._optional = optional

    async def __call__(self, request: Request) -> Model:
        body = await _read(request, service_of(request).max_body_bytes)
        if not body and self._optional:
            return self.model()
        try:
            value = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise BadRequest(f"the request body must be JSON in UTF-8: {error}") from error
        try:
            return self.model.model_validate(value)
        except ValidationError as error:
            raise BadRequest(f"the request body is not valid: {explain(error)}") from error

    def docs(self) -> dict[str, Any]:
        """What OpenAPI says of it, as `openapi_extra` of a route."""
        schema = {"$ref": f"#/components/schemas/{self.model.__name__}"}
        content = {"application/json": {"schema": schema}}
        return {"requestBody": {"required": not self._optional, "content": content}}


async def _read(request: Request, limit: int) -> bytes:
    too_large = PayloadTooLarge(f"the request body is larger than {limit} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise too_large
    except ClientDisconnect:
        raise BadRequest("the connection was closed before the request body ended") from None
    return bytes(body)
