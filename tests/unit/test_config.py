"""mail.toml, the environment, and command-line overrides."""

import logging
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from pydantic import ValidationError

from mail.auth.claims import JWTSettings
from mail.bootstrap.system import read_swarm
from mail.config import ClientConfig, ConnectionsConfig, ServerConfig, StorageConfig, SwarmConfig, load_config
from mail.core.task.webhooks import RETRY_SECONDS
from mail.errors import ConfigurationError

WriteFile = Callable[..., Path]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAIL_CONFIG_PATH", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def write_file(text: str, name: str = "mail.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


class TestDefaults:
    """The literal defaults of seed 000, docs/configuration.md."""

    def test_without_a_file(self) -> None:
        assert load_config().model_dump() == {
            "server": {
                "port": 8000,
                "host": "0.0.0.0",
                "reload": False,
                "debug": False,
                "cors_origins": [],
                "mail_host": "localhost",
                "swarm": {
                    "name": "example-no-proxy",
                    "source": "swarms.json",
                    "registry": "registries/example-no-proxy.json",
                    "description": None,
                    "keywords": None,
                    "public": None,
                },
                "settings": {
                    "task_message_limit": 15,
                    "failing_call_limit": 8,
                    "print_llm_streams": True,
                    "turn_seconds": 840.0,
                    "turn_concurrency": "auto",
                    "action_threads": 64,
                    "lease_seconds": 40.0,
                    "max_body_bytes": 4 * 1024 * 1024,
                    "allowed_imports": ["mail.examples", "mail.factories", "mail.stdlib"],
                },
                "limits": {
                    "requests_per_second": 50.0,
                    "request_burst": 200,
                    "running_tasks": 100,
                    "waiting_tasks": 100_000,
                    "mailbox_depth": 1000,
                    "task_bytes": 64 * 1024 * 1024,
                    "caller_bytes": 10 * 1024**3,
                    "file_bytes": 20 * 1024 * 1024,
                    "streams": None,
                    "memory": 128 * 1024 * 1024,
                    "mail_submissions": 20,
                },
                "connections": {
                    "total": 8192,
                    "per_address": 4096,
                    "head_seconds": 10.0,
                    "body_seconds": 30.0,
                    "idle_seconds": 5,
                    "stall_seconds": 120.0,
                },
                "telemetry": {
                    "metrics": "off",
                    "traces": False,
                    "content": "off",
                    "redact": "",
                    "log_format": "text",
                },
                "storage": {
                    "database": "auto",
                    "synchronous": "normal",
                    "retention_days": 0,
                    "keep": "nothing",
                    "audit_days": 400,
                },
                "webhooks": {"allow_private_addresses": False, "retry_seconds": list(RETRY_SECONDS)},
                "interswarm": {
                    "base_url": "",
                    "allow_private_addresses": "auto",
                    "request_timeout": 30.0,
                    "health_check_seconds": 30.0,
                    "volatile_seconds": 86_400.0,
                    "hop_limit": 8,
                    "card_key": "",
                    "entrypoints_only": False,
                    "unreachable_seconds": 30.0,
                },
                "auth": {"jwt": JWTSettings().model_dump(), "break_glass": False},
                "models": {},
                "schedules": [],
                "budgets": {},
            },
            "client": {"timeout": 3600.0, "verbose": False},
        }

    def test_for_keys_that_the_file_lacks(self, write: WriteFile) -> None:
        write("[server]\nport = 1\n[server.swarm]\nname = 'x'")
        server = load_config().server
        assert (server.port, server.swarm.name) == (1, "x")
        assert (server.host, server.swarm.source) == ("0.0.0.0", "swarms.json")

    def test_of_the_repository_differ_only_in_host(self) -> None:
        repository = Path(__file__).parents[2] / "mail.toml"
        assert load_config(repository).server == load_config().server.with_overrides(host="127.0.0.1")
        assert load_config(repository).client == load_config().client

    def test_no_arguments_means_the_values_of_the_file(self, write: WriteFile) -> None:
        write("[server]\nport = 1\n[client]\ntimeout = 5\nverbose = true")
        assert ServerConfig().port == 1
        assert ClientConfig() == ClientConfig(timeout=5.0, verbose=True)
        assert ClientConfig(timeout=120.0) == ClientConfig(timeout=120.0, verbose=True)

    def test_arguments_go_before_the_file(self, write: WriteFile) -> None:
        write("[server]\nport = 1\n[server.swarm]\nname = 'file'\nsource = 'file.json'")
        config = ServerConfig(swarm={"name": "argument"})  # type: ignore[arg-type]
        assert (config.port, config.swarm.name, config.swarm.source) == (1, "argument", "file.json")
        whole = ServerConfig(swarm=SwarmConfig(name="whole"))
        assert whole.swarm == SwarmConfig(name="whole", source="swarms.json")


class TestPlaces:
    def test_environment_names_another_file(self, write: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
        write("[server]\nport = 1")
        monkeypatch.setenv("MAIL_CONFIG_PATH", str(write("[server]\nport = 2", "other.toml")))
        assert ServerConfig().port == 2

    def test_explicit_path_goes_first(self, write: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAIL_CONFIG_PATH", str(write("[server]\nport = 2", "other.toml")))
        assert load_config(write("[server]\nport = 3", "third.toml")).server.port == 3

    def test_explicit_path_must_exist(self) -> None:
        with pytest.raises(ConfigurationError, match=r"nowhere.toml: this configuration file does not exist"):
            load_config("nowhere.toml")

    def test_absent_file_in_the_environment_means_defaults(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("MAIL_CONFIG_PATH", "nowhere.toml")
        with caplog.at_level(logging.WARNING):
            assert load_config().server.port == 8000
        assert "nowhere.toml" in caplog.text


def test_tables_of_other_programs_are_ignored(write: WriteFile, caplog: pytest.LogCaptureFixture) -> None:
    write("[deploy]\nregion = 'eu'\n[tool.mine]\na = 1\n[server]\nport = 3")
    assert (load_config().server.port, ServerConfig().port) == (3, 3)
    assert caplog.messages == ["mail.toml: ignored tables that are not MAIL's: [deploy], [tool]"]


def test_the_description_of_the_swarm(write: WriteFile) -> None:
    write('[server.swarm]\ndescription = "Ours."\nkeywords = ["a"]\npublic = true')
    config = load_config().server
    swarm, entry = read_swarm(config)
    assert (swarm.description, swarm.keywords, swarm.public) == ("Ours.", ("a",), True)
    assert entry is not None
    assert swarm.agents.keys() == {agent.name for agent in entry.agents}


def test_an_aiohttp_timeout_counts_as_its_total() -> None:
    assert ClientConfig(timeout=aiohttp.ClientTimeout(total=5)).timeout == 5.0  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        ClientConfig(timeout=aiohttp.ClientTimeout(total=None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[server]\nprot = 1", "server.prot: unknown key. Did you mean 'port'"),
        ("[server.swarm]\nzzz = 1", "server.swarm.zzz: .* known keys are name, source, registry"),
        ("[sever]", "sever: .*Did you mean 'server'"),
        ("[server]\nport = '8000'", "server.port: .*integer"),
        ("[server]\nport = 70000", "server.port: .*65535"),
        ("[server]\nreload = 1", "server.reload: .*boolean"),
        ("[server]\nmail_host = 'Mail.example'", "server.mail_host.*such as mail.example.com"),
        ("[server]\ncors_origins = ['localhost:3000']", "server.cors_origins.*such as http://localhost:3000"),
        ("[server]\ncors_origins = ['http://a/page']", "server.cors_origins.*without a path"),
        ("[server.settings]\ntask_message_limit = 0", "server.settings.task_message_limit: .*greater"),
        ("[server.settings]\nturn_concurrency = 0", "server.settings.turn_concurrency"),
        ('[server.settings]\nturn_concurrency = "many"', "server.settings.turn_concurrency"),
        ("[server.settings]\naction_threads = 0", "server.settings.action_threads: .*greater"),
        ("[server.settings]\nturn_seconds = inf", "server.settings.turn_seconds: .*finite"),
        ("[server.storage]\nsynchronous = 'off'", "server.storage.synchronous: .*'normal' or 'full'"),
        (
            "[server.storage]\ndatabase = 'mysql://u:secret@h/d'",
            "server.storage.database: mysql:// is not a known",
        ),
        ("[client]\ntimeout = 'soon'", "client.timeout: .*number"),
        ("server = 3", "server: .*dictionary"),
        ("port = 1", "port: unknown key; known keys are server, client"),
        ("[server.mine]", "server.mine: unknown key"),
        ("port =", "is not valid TOML"),
    ],
)
def test_problems_name_file_key_and_remedy(write: WriteFile, text: str, complaint: str) -> None:
    write(text)
    with pytest.raises(ConfigurationError, match=f"^mail.toml: {complaint}") as raised:
        load_config()
    assert "secret" not in str(raised.value)
    with pytest.raises(ConfigurationError):
        ServerConfig()


def test_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "mail.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"not valid TOML"):
        load_config()


def test_registry_has_a_second_name(write: WriteFile) -> None:
    write("[server.swarm]\nregistry_file = 'r.json'")
    assert load_config().server.swarm.registry == "r.json"
    assert ServerConfig.model_validate({"swarm": {"registry_file": "s.json"}}).swarm.registry == "s.json"


class TestDatabase:
    @pytest.mark.parametrize(
        ("setting", "database"),
        [
            ("data/mail.db", "data/mail.db"),
            (":memory:", ":memory:"),
            ("none", ":memory:"),
            ("None", ":memory:"),
            ("sqlite:///relative.db", "relative.db"),
            ("sqlite:////absolute/m%20ail.db", "/absolute/m ail.db"),
            ("sqlite:///:memory:", ":memory:"),
            ("dynamodb://mail-Table-1", "dynamodb://mail-Table-1"),
            ("postgresql://u:p%40ss@h:5433/d", "postgresql://u:p%40ss@h:5433/d"),
            ("postgres://h/d", "postgres://h/d"),
            ("postgresql+asyncpg://u:p@h/d", "postgresql://u:p@h/d"),
        ],
    )
    def test_meaning(self, setting: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert StorageConfig(database=setting).database == database
        monkeypatch.setenv("DATABASE_URL", setting)
        assert load_config().server.storage.database == database

    @pytest.mark.parametrize(
        "url",
        [
            "mysql+asyncpg://u:secret@h/d",
            "postgresql+asyncpg://",
            "postgresql://",
            "dynamodb://",
            "mysql://u:secret@h",
        ],
    )
    def test_engines_that_are_not_there(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DATABASE_URL", url)
        with pytest.raises(
            ConfigurationError,
            match=(
                r"^DATABASE_URL: .*use a path, sqlite:///path, "
                r"postgresql://user@host/database, dynamodb://table, or none"
            ),
        ) as raised:
            load_config()
        assert "secret" not in str(raised.value)

    def test_a_password_is_not_shown(self) -> None:
        storage = StorageConfig(database="postgresql://u:secret@h:5433/d")
        assert storage.shown == "postgresql://h:5433/d"
        assert storage.engine == "postgres"
        assert StorageConfig(database="u:secret@h.db").shown == "u:secret@h.db"
        assert StorageConfig(database="mail.db").engine == "sqlite"

    def test_flag_before_environment_before_file(
        self, write: WriteFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write("[server.storage]\ndatabase = 'file.db'\nsynchronous = 'full'")
        assert load_config().server.storage.database == "file.db"
        monkeypatch.setenv("DATABASE_URL", "sqlite:///environment.db")
        server = load_config().server
        assert server.storage == StorageConfig(database="environment.db", synchronous="full")
        assert server.with_overrides(database="flag.db").storage.database == "flag.db"


class TestOverrides:
    def test_given_values_replace(self) -> None:
        config = ServerConfig().with_overrides(
            host="h",
            port=1,
            reload=True,
            debug=True,
            swarm_name="n",
            swarm_source="s",
            swarm_registry="r",
            print_llm_streams=False,
            database="none",
        )
        assert (config.host, config.port, config.reload, config.debug) == ("h", 1, True, True)
        assert config.swarm == SwarmConfig(name="n", source="s", registry="r")
        assert not config.settings.print_llm_streams
        assert config.storage.database == ":memory:"

    def test_none_keeps(self, write: WriteFile) -> None:
        write("[server]\nport = 1\nreload = true\n[server.settings]\nprint_llm_streams = false")
        config = load_config().server
        assert config.with_overrides() == config
        assert not config.with_overrides(reload=False).reload

    def test_wrong_values_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"port: .*65535"):
            ServerConfig().with_overrides(port=70000)


def test_frozen() -> None:
    with pytest.raises(ValidationError):
        ServerConfig().port = 3  # type: ignore[misc]


class TestEnvironment:
    """Variables that go before the file."""

    def test_limits(self, write: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
        write("[server.limits]\nrunning_tasks = 7\nmailbox_depth = 8\n[server.settings]\nmax_body_bytes = 9")
        monkeypatch.setenv("MAIL_REQUESTS_PER_SECOND", "2.5")
        monkeypatch.setenv("MAIL_RUNNING_TASKS", "none")
        monkeypatch.setenv("MAIL_REQUEST_BURST", "0")
        monkeypatch.setenv("MAIL_MAX_BODY_BYTES", "1000")
        monkeypatch.setenv("MAIL_TASK_BYTES", "2000")
        server = ServerConfig()
        assert (server.limits.requests_per_second, server.limits.running_tasks) == (2.5, 0)
        assert (server.limits.mailbox_depth, server.settings.max_body_bytes) == (8, 1000)
        assert (server.limits.request_burst, server.limits.task_bytes) == (0, 2000)

    def test_connections(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, text in {
            "CONNECTIONS": "100",
            "CONNECTIONS_PER_ADDRESS": "none",
            "HEAD_SECONDS": "1.5",
            "BODY_SECONDS": "0",
            "IDLE_SECONDS": "7",
            "STALL_SECONDS": "none",
        }.items():
            monkeypatch.setenv(f"MAIL_{name}", text)
        assert ServerConfig().connections == ConnectionsConfig(
            total=100,
            per_address=0,
            head_seconds=1.5,
            body_seconds=0.0,
            idle_seconds=7,
            stall_seconds=0.0,
        )

    def test_telemetry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAIL_METRICS", "public")
        monkeypatch.setenv("MAIL_TRACES", "true")
        monkeypatch.setenv("MAIL_LOG_FORMAT", "JSON")
        telemetry = ServerConfig().telemetry
        assert (telemetry.metrics, telemetry.traces, telemetry.log_format) == ("public", True, "json")

    def test_identity(self, write: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
        write('[server.auth.jwt]\nissuer = "https://id.example/A"\nadmins = ["ops"]\nrole_claim = "groups"\n')
        monkeypatch.setenv("MAIL_JWT_ISSUER", "https://id.example/Pool")
        monkeypatch.setenv("MAIL_JWT_AUDIENCE", "Mail")
        given = {
            "issuer": "https://id.example/Pool",
            "audience": "Mail",
            "admins": ("ops",),
            "role_claim": "groups",
        }
        assert ServerConfig().auth.jwt == JWTSettings.model_validate(given)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("MAIL_RUNNING_TASKS", "many"),
            ("MAIL_RUNNING_TASKS", "1.5"),
            ("MAIL_MAILBOX_DEPTH", "-1"),
            ("MAIL_REQUESTS_PER_SECOND", "inf"),
            ("MAIL_REQUESTS_PER_SECOND", "nan"),
            ("MAIL_REQUEST_BURST", "-1"),
            ("MAIL_MAX_BODY_BYTES", "none"),
            ("MAIL_CONNECTIONS", "-1"),
            ("MAIL_IDLE_SECONDS", "0.5"),
            ("MAIL_METRICS", "everybody"),
            ("MAIL_TRACES", "perhaps"),
            ("MAIL_LOG_FORMAT", "xml"),
        ],
    )
    def test_what_makes_no_sense(self, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, text)
        with pytest.raises(ConfigurationError, match=name):
            load_config()
