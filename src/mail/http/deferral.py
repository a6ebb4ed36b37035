"""Imports FastAPI without building the models of OpenAPI, which only `GET /openapi.json` needs: a tenth of a cold start."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic._internal._config import config_defaults


@contextmanager
def models_built_on_first_use() -> Iterator[None]:
    """Let pydantic build the models that are defined meanwhile when they are first used.

    Pydantic has a setting for this, `defer_build`, but only per model, and these are FastAPI's own.
    """
    config_defaults["defer_build"] = True
    try:
        yield
    finally:
        config_defaults["defer_build"] = False
