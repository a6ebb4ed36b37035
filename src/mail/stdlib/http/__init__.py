"""Actions that send HTTP requests."""

from mail.stdlib.http.actions import (
    http_delete,
    http_get,
    http_head,
    http_options,
    http_patch,
    http_post,
    http_put,
    http_request,
)

__all__ = [
    "http_delete",
    "http_get",
    "http_head",
    "http_options",
    "http_patch",
    "http_post",
    "http_put",
    "http_request",
]
