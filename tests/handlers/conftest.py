"""A deployment per module and per kind of code."""

from collections.abc import Iterator

import pytest
from function_stage import Stage, why_not_built
from support.engines.aws import has_ministack
from support.engines.lambda_runtime import HOW_TO_INSTALL, has_emulator


@pytest.fixture(scope="module", params=["source", "built"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A deployment on ministack, with the functions of this checkout and those that `sam build` has made of it."""
    if not has_emulator():
        pytest.skip(HOW_TO_INSTALL)
    if not has_ministack():
        pytest.skip("ministack is not installed; run: python3 scripts/dev.py tools ministack")
    if request.param == "built" and (reason := why_not_built()):
        pytest.skip(reason)
    with Stage(request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_refused(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that no function has asked AWS for what its role doesn't allow."""
    yield
    if "stage" in request.fixturenames:
        assert request.getfixturevalue("stage").gateway.refused == []
