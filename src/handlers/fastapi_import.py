"""FastAPI, imported without the models of OpenAPI, which only `GET /openapi.json` needs: a tenth of a cold start.

FastAPI has no setting for that. Nor does it need to import pydantic 1 for a look at each parameter of a route: no
parameter of these is a model of pydantic 1. A version of FastAPI that can't be imported so is imported as it is.
"""

import logging
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

MODELS = "fastapi.openapi.models"

logger = logging.getLogger("mail.handlers.fastapi_import")


class _StandIn(type):
    """Stands for a model of OpenAPI in FastAPI's annotations; making or reading one imports the models."""

    def __call__(cls, *arguments: Any, **fields: Any) -> Any:
        if not arguments and not fields:  # FastAPI makes a default argument of one
            return super().__call__()
        return getattr(_models(), cls.__name__)(*arguments, **fields)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(getattr(_models(), cls.__name__), name)


def _stand_in(name: str) -> _StandIn:
    if name.startswith("_"):
        raise AttributeError(name)
    return _StandIn(name, (), {})


def _models() -> ModuleType:
    if not hasattr(sys.modules[MODELS], "__file__"):
        del sys.modules[MODELS]
    return import_module(MODELS)


def _import() -> None:
    models = ModuleType(MODELS)
    models.__getattr__ = _stand_in  # type: ignore[method-assign]
    sys.modules.setdefault(MODELS, models)
    try:
        import_module("fastapi")
    except Exception:
        logger.warning("FastAPI can't be imported without the models of OpenAPI", exc_info=True)
        for name in [name for name in sys.modules if name.partition(".")[0] == "fastapi"]:
            del sys.modules[name]
        import_module("fastapi")
    compat: Any = sys.modules.get("fastapi._compat.shared")
    if hasattr(compat, "is_pydantic_v1_model_class"):
        compat.is_pydantic_v1_model_class = lambda _: False


_import()

from fastapi import APIRouter, Request  # noqa: E402

__all__ = ["APIRouter", "Request"]
