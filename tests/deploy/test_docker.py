"""Dockerfile, .dockerignore and compose.yaml. No engine is here to build or start them, so this is what can be known
without one: that what they name is there, that the rules which matter hold, that the files which the image is made of
are enough for the package, and that the two swarms work together as they are configured.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pytest
import yaml
from support.processes.server import ServerProcess, run_mail

import mail
from mail.config import load_config

ROOT = Path(__file__).resolve().parents[2]


class Instruction(NamedTuple):
    name: str
    flags: tuple[str, ...]
    words: list[str]
    text: str


def read_dockerfile() -> list[Instruction]:
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.partition(" ")
        flags = re.match(r"(?:--\S+\s+)*", rest.strip())
        assert flags is not None
        words = rest.strip()[flags.end() :]
        listed = json.loads(words) if words.startswith("[") else shlex.split(words)
        found.append(Instruction(name, tuple(flags[0].split()), listed, rest))
    return found


DOCKERFILE = read_dockerfile()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
ARGS = dict(each.text.strip().split("=", 1) for each in DOCKERFILE if each.name == "ARG")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SWARMS = ("alpha", "beta")


def instructions(name: str) -> list[Instruction]:
    return [each for each in DOCKERFILE if each.name == name]


def stage(name: str) -> list[Instruction]:
    """The instructions of a stage; the last one is built where none is named."""
    begins = [n for n, each in enumerate(DOCKERFILE) if each.name == "FROM"] + [len(DOCKERFILE)]
    (begin,) = [n for n in begins[:-1] if DOCKERFILE[n].words[-1] == name]
    return DOCKERFILE[begin : begins[begins.index(begin) + 1]]


def is_in_context(path: str) -> bool:
    """Whether .dockerignore lets a path through: the last pattern that matches it, or a folder above it, decides."""
    is_in = True
    folders = [str(parent) for parent in PurePosixPath(path).parents if str(parent) != "."]
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            form = _regex(pattern.removeprefix("!"))
            if any(form.fullmatch(name) for name in (path, *folders)):
                is_in = pattern.startswith("!")
    return is_in


def _regex(pattern: str) -> re.Pattern[str]:
    """A pattern of .dockerignore: `**/` stands for any folders, `*` for what is in one."""
    form = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
    return re.compile(form.replace(r"\[", "[").replace(r"\]", "]"))


def copied_sources() -> list[str]:
    return [
        source.rstrip("/")
        for copy in instructions("COPY")
        if not any(flag.startswith("--from=") for flag in copy.flags)
        for source in copy.words[:-1]
    ]


class TestDockerfile:
    def test_it_knows_no_other_instructions_than_docker(self) -> None:
        known = {
            "ARG",
            "CMD",
            "COPY",
            "ENTRYPOINT",
            "ENV",
            "EXPOSE",
            "FROM",
            "HEALTHCHECK",
            "RUN",
            "STOPSIGNAL",
            "USER",
            "VOLUME",
            "WORKDIR",
        }
        assert {each.name for each in DOCKERFILE} <= known

    def test_bases_have_a_version_and_are_one(self) -> None:
        bases = [each.words[0] for each in instructions("FROM")]
        assert bases == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}", "run", "run"]
        assert [each.words[2] for each in instructions("FROM")][-2:] == ["worker", "server"]
        assert re.fullmatch(r"python:3\.1[2-9][\w.]*-slim-\w+(@sha256:[0-9a-f]{64})?", ARGS["PYTHON_IMAGE"])

    def test_stages_that_are_copied_from_are_there(self) -> None:
        stages = {each.words[2] for each in instructions("FROM") if len(each.words) == 3}
        taken = {
            flag.removeprefix("--from=")
            for copy in instructions("COPY")
            for flag in copy.flags
            if "from" in flag
        }
        assert taken == {"build"} < stages

    @pytest.mark.parametrize("source", copied_sources())
    def test_what_is_copied_is_there_and_in_the_context(self, source: str) -> None:
        assert (ROOT / source).exists()
        assert is_in_context(source)

    @pytest.mark.parametrize(
        "path",
        [
            ".git/config",
            ".env",
            "mail.db",
            "tests/conftest.py",
            ".venv/bin/python",
            "src/mail/__pycache__/x.pyc",
        ],
    )
    def test_nothing_else_is_in_the_context(self, path: str) -> None:
        assert not is_in_context(path)

    def test_it_runs_as_nobody_in_particular(self) -> None:
        users = [each.words[0] for each in instructions("USER")]
        assert len(users) == 1
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[0])
        names = [each.name for each in stage("run")]
        assert "RUN" not in names[names.index("USER") :]
        assert not {"RUN", "USER"} & {each.name for name in ("worker", "server") for each in stage(name)}

    def test_nothing_secret_is_built_in(self) -> None:
        for each in (*instructions("ARG"), *instructions("ENV")):
            assert not re.search(r"TOKEN|PASSWORD|SECRET|KEY|DATABASE_URL", each.text)

    def test_its_extras_are_those_of_the_package(self) -> None:
        package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = package["optional-dependencies"].keys()
        assert set(ARGS["EXTRAS"].split(",")) <= extras
        for extra in extras:
            assert (ROOT / "requirements" / f"extra-{extra}.txt").exists()

    def test_nothing_is_installed_without_a_hash(self) -> None:
        """The package itself is built without downloads."""
        downloads = re.findall(
            r"pip (?:install|wheel|download)[^&]*", " && ".join(each.text for each in instructions("RUN"))
        )
        assert len(downloads) == 4
        for command in downloads:
            assert (
                "--require-hashes" in command
                or {"--no-deps", "--no-build-isolation"} <= set(command.split())
                or {"--no-deps", "--no-index"} <= set(command.split())
            )

    @pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "requirements").glob("*.txt")))
    def test_pins_are_packages_with_hashes_and_what_is_tested(self, name: str) -> None:
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8").replace("\\\n", "")
        pins = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
        tested = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
        for pin in pins:
            assert re.fullmatch(
                r"[\w.-]+(\[[\w, -]+\])?==\S+( *;[^\\]+?)?( +--hash=sha256:[0-9a-f]{64})+ *", pin
            )
            assert name.startswith(("tools-", "build", "lowest")) or f"\n{pin.split()[0]} " in f"\n{tested}"

    @pytest.mark.parametrize("name", ["ENTRYPOINT", "CMD"])
    def test_what_it_runs_gets_signals(self, name: str) -> None:
        """A list of words is run without a shell in between, which would keep SIGTERM to itself."""
        for each in instructions(name):
            assert each.text.strip().startswith("[")

    def test_the_health_check_and_the_command_are_commands_that_work(self, tmp_path: Path) -> None:
        (check,) = instructions("HEALTHCHECK")
        (entry,), (of_worker, command) = instructions("ENTRYPOINT"), instructions("CMD")
        ask = json.loads(check.text.partition("CMD ")[2])
        assert ask[:2] == ["python", "-c"]
        assert entry.words == ["mail"]
        assert command.words[0] == "server"
        port = command.words[command.words.index("--port") + 1]
        assert f"'http://127.0.0.1:{port}/live'" in ask[2]
        assert [each.words for each in instructions("EXPOSE")] == [[port]]
        assert of_worker.words == ["worker", "--port", port]
        flags = [*command.words[1:-1], "0"]
        with ServerProcess(tmp_path, *flags) as server:
            here = ask[2].replace(f"http://127.0.0.1:{port}", server.url.replace("localhost", "127.0.0.1"))
            assert subprocess.run([sys.executable, "-c", here], check=False).returncode == 0
        assert subprocess.run([sys.executable, "-c", here], check=False, capture_output=True).returncode == 1


@pytest.mark.soak
def test_the_package_can_be_built_of_what_is_copied(tmp_path: Path) -> None:
    for source in copied_sources():
        target = tmp_path / "context" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(
                ROOT / source, target, symlinks=True, ignore=ignored
            )  # Docker copies links as well
        else:
            shutil.copy(ROOT / source, target)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        "out",
        "./context",
    ]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "out").glob("mail_serverless-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "mail/server/app.py" in names
    data = {"mail/examples/swarms.json", "mail/core/protocol/protocol.md"}
    data |= {
        f"mail/cli/project/{name}"
        for name in ("template.yaml", "worker.yaml", "run.sh", "files/mail.toml.txt")
    }
    assert data <= set(names)
    top = {name.partition("/")[0] for name in names if not name.partition("/")[0].endswith(".dist-info")}
    assert top == {"mail"}
    assert "mail/local_aws/deployed/handlers/turn.py" in names
    assert not [name for name in names if "__pycache__" in name]


class TestCompose:
    """What the Compose Specification asks for, as far as it matters here (https://github.com/compose-spec)."""

    def test_its_keys_are_known(self) -> None:
        top = {"name", "services", "networks", "volumes", "configs", "secrets"}
        assert {key for key in COMPOSE if not key.startswith("x-")} <= top
        of_service = {
            "build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image", "init", "networks",
            "ports", "pull_policy", "read_only", "restart", "security_opt", "stop_grace_period", "tmpfs", "volumes",
        }  # fmt: skip
        for service in SERVICES.values():
            assert service.keys() <= of_service

    def test_images_have_a_version(self) -> None:
        for service in SERVICES.values():
            name, colon, tag = service["image"].rpartition(":")
            assert (bool(name), colon, tag != "latest") == (True, ":", True)
        assert {SERVICES[name]["image"] for name in SWARMS} == {f"mail:{mail.__version__}"}

    def test_what_is_named_is_there(self) -> None:
        for service in SERVICES.values():
            assert set(service.get("networks", ())) <= COMPOSE["networks"].keys()
            for other, how in service.get("depends_on", {}).items():
                assert other in SERVICES
                if how["condition"] == "service_healthy":
                    assert "healthcheck" in SERVICES[other] or SERVICES[other].get("build")
            for volume in service.get("volumes", ()):
                source, target, *mode = volume.split(":")
                assert target.startswith("/")
                assert mode in ([], ["ro"])
                if source.startswith("."):
                    assert (ROOT / source).exists()
                    assert mode == ["ro"]
                else:
                    assert source in COMPOSE["volumes"]

    @pytest.mark.parametrize("name", SWARMS)
    def test_swarms_have_no_more_rights_than_they_need(self, name: str) -> None:
        service = SERVICES[name]
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert "no-new-privileges:true" in service["security_opt"]
        assert service["build"]["context"] == "."
        (port,) = service["ports"]
        assert port.startswith("127.0.0.1:")
        assert port.endswith(":8000")
        assert any(volume.endswith(":/data") for volume in service["volumes"])

    def test_ports_are_each_ones_own(self) -> None:
        published = [port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", ())]
        assert len(published) == len(set(published)) == 2

    def test_secrets_come_from_the_environment(self) -> None:
        for service in SERVICES.values():
            for key, value in service["environment"].items():
                if re.search("PASSWORD|TOKEN|DATABASE_URL", key):
                    assert re.search(r"\$\{\w+", value), key
        assert SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
        assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()

    def test_each_swarm_has_a_database_that_is_made(self) -> None:
        made = {SERVICES["postgres"]["environment"]["POSTGRES_DB"]}
        for script in (ROOT / "docker" / "postgres").glob("*.sql"):
            made |= set(
                re.findall(r"^CREATE DATABASE (\w+)", script.read_text(encoding="utf-8"), re.MULTILINE)
            )
        urls = [SERVICES[name]["environment"]["DATABASE_URL"] for name in SWARMS]
        assert {url.rpartition("/")[2] for url in urls} == made
        assert all(
            re.fullmatch(r"postgresql://mail:\$\{POSTGRES_PASSWORD\}@postgres:5432/\w+", url) for url in urls
        )


def test_the_document_says_what_is_there() -> None:
    text = (ROOT / "docs" / "docker.md").read_text(encoding="utf-8")
    for name in SWARMS:
        assert f"`docker/{name}.toml`" in text
        (port,) = SERVICES[name]["ports"]
        assert f"http://localhost:{port.split(':')[1]}/swarms" in text
        assert f'"base_url": "http://{name}:8000"' in text
        assert f"SWARM_AUTH_TOKEN_SWARM_{name.upper()}=" in text
    assert set(re.findall(r"mail:\d[\w.]*", text)) == {SERVICES["alpha"]["image"]}


class TestItsSwarms:
    @pytest.mark.parametrize("name", SWARMS)
    def test_their_configuration_says_who_and_where_they_are(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DATABASE_URL", raising=False)
        config = load_config(ROOT / "docker" / f"{name}.toml").server
        assert config.swarm.name == f"swarm-{name}"
        assert config.swarm.registry.startswith("/data/")
        assert config.interswarm.base_url == f"http://{name}:8000"
        mounted = f"./docker/{name}.toml:{SERVICES[name]['environment']['MAIL_CONFIG_PATH']}:ro"
        assert mounted in SERVICES[name]["volumes"]

    def test_they_work_together(self, tmp_path: Path) -> None:
        """By their own configuration, with an SQLite file each and an address of this machine."""
        folders = {name: tmp_path / name for name in SWARMS}
        tokens = {}
        for name, folder in folders.items():
            folder.mkdir()
            other = "beta" if name == "alpha" else "alpha"
            create = ("token", "create", "--role")
            tokens[name] = run_mail(*create, "agent", "--id", f"swarm-{other}", cwd=folder).stdout.strip()
        servers: dict[str, ServerProcess] = {}
        for name, folder in folders.items():
            (theirs,) = (key for key in SERVICES[name]["environment"] if key.startswith("SWARM_AUTH_TOKEN_"))
            other = theirs.rpartition("_")[2].lower()
            assert other != name
            config = (ROOT / "docker" / f"{name}.toml").read_text(encoding="utf-8")
            config = config.replace("/data/", f"{folder}/").replace(f"http://{name}:8000", "")
            (folder / "mail.toml").write_text(config, encoding="utf-8")
            servers[name] = ServerProcess(folder, "--host", "127.0.0.1", env={theirs: tokens[other]})
        with servers["alpha"] as alpha, servers["beta"] as beta:
            for server, other, where in ((alpha, "beta", beta), (beta, "alpha", alpha)):
                for role in ("admin", "user"):
                    made = run_mail("token", "create", "--role", role, "--id", role, cwd=server.folder)
                    server.tokens[role] = made.stdout.strip()
                with server.client("admin") as client:
                    body = {"name": f"swarm-{other}", "base_url": where.url, "volatile": False}
                    assert client.post("/swarms", json=body).status_code == 200
            assert "12*(3+4) = 84." in alpha.ask("weather in Tokyo and 12*(3+4)", task_id="t")
            assert alpha.task("t")["remote_swarms"] == ["swarm-beta"]
