"""FastAPI as functions import it: without the models of OpenAPI, and without pydantic 1.

FastAPI imports pydantic 1 for a look at each parameter of a route: no parameter of these is a model of it.
"""

import sys
from typing import Any

from mail.http.deferral import import_fastapi

import_fastapi()
compat: Any = sys.modules.get("fastapi._compat.shared")
if hasattr(compat, "is_pydantic_v1_model_class"):
    compat.is_pydantic_v1_model_class = lambda _: False

from fastapi import APIRouter, Request  # noqa: E402

__all__ = ["APIRouter", "Request"]
