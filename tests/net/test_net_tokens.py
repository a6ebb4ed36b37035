"""Tokens by reference."""

import pytest
from support.engines.aws import make_client

from mail.adapters.aws.client import Parameters
from mail.errors import BadRequest
from mail.net.secrets import EnvironmentTokens, ParameterTokens, reference_for, variable_for, variable_in


@pytest.mark.parametrize(
    ("swarm", "variable"),
    [
        ("beta", "SWARM_AUTH_TOKEN_BETA"),
        ("swarm-beta", "SWARM_AUTH_TOKEN_SWARM_BETA"),
        ("Beta.2 é", "SWARM_AUTH_TOKEN_BETA_2__"),
    ],
)
def test_each_swarm_has_a_variable(swarm: str, variable: str) -> None:
    assert variable_for(swarm) == variable
    assert reference_for(swarm, None) == reference_for(swarm, "t0ken") == f"${{{variable}}}"
    assert variable_in(f"${{{variable}}}") == variable


@pytest.mark.parametrize("text", ["", "t0ken", "$SWARM_AUTH_TOKEN_B", "${}", "x${A}", "${A}x", "${A-B}"])
def test_what_is_no_reference(text: str) -> None:
    assert variable_in(text) is None


def test_references_lead_to_tokens_only() -> None:
    assert reference_for("beta", "${SWARM_AUTH_TOKEN_ALL}") == "${SWARM_AUTH_TOKEN_ALL}"
    with pytest.raises(BadRequest, match="begin with SWARM_AUTH_TOKEN_"):
        reference_for("beta", "${OPENAI_API_KEY}")


async def test_environment() -> None:
    tokens = EnvironmentTokens({"A": "x", "B": ""})
    assert [tokens.known(name) for name in "ABC"] == ["x", None, None]
    assert [await tokens.find(name) for name in "ABC"] == ["x", None, None]


async def test_the_environment_is_that_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = EnvironmentTokens()
    assert tokens.known("SWARM_AUTH_TOKEN_X") is None
    monkeypatch.setenv("SWARM_AUTH_TOKEN_X", "x")
    assert tokens.known("SWARM_AUTH_TOKEN_X") == "x"


@pytest.mark.soak
async def test_parameters_are_read_when_needed_and_for_a_while() -> None:
    client = make_client("moto", "ssm")
    now = 0.0
    tokens = ParameterTokens(
        Parameters(client, "/net-test/secrets/"), {"SWARM_AUTH_TOKEN_E": "e"}, clock=lambda: now
    )
    name = "/net-test/secrets/SWARM_AUTH_TOKEN_P"
    try:
        assert await tokens.find("SWARM_AUTH_TOKEN_E") == "e"
        assert await tokens.find("SWARM_AUTH_TOKEN_P") is None
        await client.call("put_parameter", Name=name, Value="p", Type="SecureString")
        assert await tokens.find("SWARM_AUTH_TOKEN_P") is None
        now = 61.0
        assert await tokens.find("SWARM_AUTH_TOKEN_P") == "p"
        assert tokens.known("SWARM_AUTH_TOKEN_P") == "p"
        await client.call("put_parameter", Name=name, Value="q", Type="SecureString", Overwrite=True)
        assert await tokens.find("SWARM_AUTH_TOKEN_P") == "p"
        now = 122.0
        assert await tokens.find("SWARM_AUTH_TOKEN_P") == "q"
        await client.call("delete_parameter", Name=name)
        now = 183.0
        assert await tokens.find("SWARM_AUTH_TOKEN_P") is None
    finally:
        client.close()
