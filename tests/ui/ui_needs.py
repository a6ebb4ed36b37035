"""What to do where something that the tests of the page need is not installed."""

import os
from typing import NoReturn

import pytest


def unavailable(what: str) -> NoReturn:
    """Skip here, fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is needed for the tests of the page")
    pytest.skip(f"{what} is not here")
