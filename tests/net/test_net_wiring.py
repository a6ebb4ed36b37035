"""How the functions on AWS are connected with other swarms."""

from pathlib import Path

import pytest

from mail.adapters.aws.client import Aws
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.bootstrap.peers import make_router, plays_aws_here, read_secrets
from mail.config import InterswarmConfig, ServerConfig
from mail.config.aws import AwsConfig
from mail.core.engine.documents import ServerDocuments
from mail.core.task.documents import IN_MEMORY
from mail.net.peers import Registry
from mail.net.secrets import EnvironmentTokens, ParameterTokens
from mail.testing.agents import build_swarm
from mail.testing.clock import FakeClock


def registry_of(config: AwsConfig, environ: dict[str, str]) -> Registry:
    swarm = build_swarm({"supervisor": lambda _: []}, description="d")
    with SQLiteDatabase(IN_MEMORY) as database:
        router = make_router(
            swarm,
            ServerDocuments(SQLiteDocuments(database)),
            config.server,
            FakeClock(),
            secrets=read_secrets(environ, Aws().client("ssm"), config.secrets_path),
            is_local=plays_aws_here(environ),
        )
    assert router.local_swarm_name == swarm.name
    return router.swarm_registry


def config(*, secrets: str = "", **interswarm: object) -> AwsConfig:
    server = ServerConfig().model_copy(update={"interswarm": InterswarmConfig.model_validate(interswarm)})
    return AwsConfig(server=server, table="t", secrets_path=secrets)


def test_tokens_come_from_the_environment_and_where_there_is_a_path_from_ssm() -> None:
    registry = registry_of(config(), {"SWARM_AUTH_TOKEN_BETA": "t"})
    assert isinstance(registry._tokens, EnvironmentTokens)
    assert registry._tokens.known("SWARM_AUTH_TOKEN_BETA") == "t"
    registry = registry_of(config(secrets="/mail/prod"), {"SWARM_AUTH_TOKEN_BETA": "t"})
    assert isinstance(registry._tokens, ParameterTokens)
    assert registry._tokens.known("SWARM_AUTH_TOKEN_BETA") == "t"


@pytest.mark.parametrize(
    ("environ", "settings", "allowed"),
    [
        ({}, {}, False),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}, {}, True),
        ({"AWS_ENDPOINT_URL": "https://vpce.example"}, {}, False),
        ({}, {"allow_private_addresses": True}, True),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}, {"allow_private_addresses": False}, False),
    ],
)
def test_private_addresses(environ: dict[str, str], settings: dict[str, object], allowed: bool) -> None:
    assert registry_of(config(**settings), environ).http.allow_private is allowed


def test_settings_reach_the_registry() -> None:
    registry = registry_of(
        config(base_url="https://alpha.example/", health_check_seconds=7.0, volatile_seconds=8.0), {}
    )
    assert (registry.local_base_url, registry.health_check_seconds, registry.volatile_seconds) == (
        "https://alpha.example",
        7.0,
        8.0,
    )


def test_the_path_is_that_of_the_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"MAIL_TABLE": "t", "MAIL_SECRETS_PATH": "/mail/prod"}
    assert AwsConfig.from_environ(environ).secrets_path == "/mail/prod"
    assert AwsConfig.from_environ({"MAIL_TABLE": "t"}).secrets_path == ""
