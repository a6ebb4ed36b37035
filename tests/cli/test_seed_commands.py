"""Every `mail …` command line of the documents that this project implements does what they say.

They name hosts and ports that aren't here: a server is started for them, on a free port of this machine, and
`example.com` is asked by way of a proxy that isn't there.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import forkserver
from support.processes.server import ServerProcess, environment, run_mail
from support.seeds import blocks

SHELLS = ("", "bash", "sh", "shell")
PROMPT = "mail> "
NO_WAY_OUT = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "", "NO_PROXY": "127.0.0.1,localhost"}

pytestmark = pytest.mark.skipif(not blocks(), reason="the seeds are not at hand")


def read_commands(code: str) -> Iterator[str]:
    """The `mail` commands of a block, less comments; what is continued on the next line is one."""
    for line in code.replace("\\\n", " ").splitlines():
        command = re.sub(r"^\s*uv run (-m )?", lambda found: "python -m " if found[1] else "", line).strip()
        if command.startswith(PROMPT):
            yield command
        elif re.match(r"(mail|python -m mail\S*)(\s|$)", command):
            yield shlex.join(shlex.split(command, comments=True))


def commands() -> list[str]:
    """All of them, each once."""
    found = (each for block in blocks() if block.language in SHELLS for each in read_commands(block.code))
    return list(dict.fromkeys(found))


def lines(start: str) -> list[str]:
    return [command for command in commands() if re.match(rf"{start}(\s|$)", command)]


def test_none_is_missed() -> None:
    kinds = {"server", "client", "version", "ping", "db-init", "register"}
    tested = [*lines("python -m mail.server"), *lines("mail>")]
    tested += [command for kind in kinds for command in lines(f"mail {kind}")]
    assert sorted(tested) == sorted(commands())
    assert len(tested) >= 20
    assert all(lines(f"mail {kind}") for kind in kinds)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the swarms that the documents name."""
    source = tmp_path / "swarms.json"
    done = subprocess.run(
        [sys.executable, "-c", "from mail.swarms_json.load import PACKAGED_SOURCE as p; print(p)"],
        capture_output=True,
        text=True,
        check=True,
    )
    (example,) = json.loads(Path(done.stdout.strip()).read_text(encoding="utf-8"))[:1]
    names = (example["name"], "swarm-alpha", "swarm-beta")
    source.write_text(json.dumps([{**example, "name": name} for name in names]), encoding="utf-8")
    return tmp_path


@pytest.mark.soak(on=("8001", "8000", "reload"))
@pytest.mark.parametrize("command", [*lines("mail server"), *lines("python -m mail.server")])
def test_server(folder: Path, command: str) -> None:
    words = shlex.split(command)
    flags = words[3:] if words[0] == "python" else words[2:]
    here = {"--port": "0", "--host": "127.0.0.1"}  # nothing shall listen to the world
    flags = [here.get(before, flag) for before, flag in zip(["", *flags], flags, strict=False)]
    token = run_mail("token", "create", "--role", "user", "--id", "user", cwd=folder).stdout.strip()
    with ServerProcess(folder, *flags) as server:
        server.tokens["user"] = token
        if words[0] == "python":
            server.kill()
            server.command = (sys.executable, "-m", "mail.server")
            server.start()
        assert server.ask("1+1") == "1+1 = 2."
        with server.client() as client:
            name = flags[flags.index("--swarm-name") + 1] if "--swarm-name" in flags else "example-no-proxy"
            assert client.get("/health").json()["swarm_name"] == name
        assert server.stop() == 0


@pytest.mark.parametrize("command", lines("mail client"))
def test_client(server: ServerProcess, tmp_path: Path, command: str) -> None:
    command = command.replace("http://localhost:8000", server.url).replace("'$", "'")
    words = [re.sub(r"^(USER_)?TOKEN$", server.tokens["user"], word) for word in shlex.split(command)]
    done = forkserver.run(
        [sys.executable, "-m", "mail.cli", *words[1:]],
        cwd=tmp_path,
        env=environment({**NO_WAY_OUT, "MAIL_SERVER": server.url}),
        given="ping\n" + ("whoami\n" if "--api-key" in words else ""),
    )
    if any(word.startswith("swarm://") for word in words):
        assert (done.returncode, done.stderr) == (1, "mail: cannot connect to https://example.com\n")
        return
    assert done.returncode == 0, done.stderr
    assert "swarm example-no-proxy" in done.stdout
    assert ("user (user)" in done.stdout) is ("--api-key" in words)


@pytest.mark.parametrize("command", lines("mail ping"))
def test_ping(server: ServerProcess, tmp_path: Path, command: str) -> None:
    words = shlex.split(command.replace("http://localhost:8000", server.url))
    done = run_mail(*words[1:], cwd=tmp_path, env={**NO_WAY_OUT, "MAIL_SERVER": server.url})
    if any(word.startswith("swarm://") for word in words):
        assert (done.returncode, done.stdout) == (1, "✗ Cannot connect to https://example.com\n")
    else:
        assert (done.returncode, done.stdout) == (0, "✓ example-no-proxy is healthy\n")


def test_client_and_ping_without_a_url_take_that_of_the_environment(tmp_path: Path) -> None:
    server = {"MAIL_SERVER": "http://127.0.0.1:9"}
    for command in (("client", "-c", "ping"), ("ping",)):
        done = run_mail(*command, cwd=tmp_path, env=server)
        assert done.returncode == 1
        assert "annot connect to http://127.0.0.1:9" in done.stdout + done.stderr
        assert "MAIL_SERVER" in run_mail(command[0], "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "words", [["responses"], ["responses", "hi", "[]"], ["http://localhost", "--json", "responses", "hi"]]
)
def test_what_is_to_be_written_for_client_responses(tmp_path: Path, words: list[str]) -> None:
    """The documents write `mail client responses …` for the command `responses` at the client's prompt."""
    done = run_mail("client", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "mail client URL -c 'responses …'" in done.stderr


@pytest.mark.parametrize("command", [*lines("mail version"), *lines("mail db-init")])
def test_version_and_tables(tmp_path: Path, command: str) -> None:
    done = run_mail(*shlex.split(command)[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "protocol 1.3" in done.stdout or " OK" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the steps are printed")
@pytest.mark.parametrize("command", lines("mail register"))
def test_register(tmp_path: Path, command: str) -> None:
    """It gets as far as this machine lets it: without xdg-utils to the file, and says so."""
    done = run_mail(*shlex.split(command)[1:], cwd=tmp_path, env={"XDG_DATA_HOME": str(tmp_path)})
    assert (tmp_path / "applications" / "mail-swarm.desktop").is_file()
    assert done.returncode == 0 or "install xdg-utils" in done.stderr


@pytest.fixture(scope="module")
def debugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with what is for debugging, and a task `weather-123` that waits for a human."""
    with ServerProcess(tmp_path_factory.mktemp("debugged"), "--debug") as running:
        running.ask("ask a human: may I?", task_id="weather-123")
        yield running


@pytest.mark.parametrize("line", lines("mail>"))
def test_lines_at_the_prompt(debugged: ServerProcess, tmp_path: Path, line: str) -> None:
    if "breakpoint_tool_call" in line:
        (call,) = debugged.task("weather-123")["pending_tool_calls"]
        line = line.replace("bp-1", call["call_id"])
    key = debugged.tokens["user"]
    typed = line.removeprefix(PROMPT)
    done = run_mail("client", debugged.url, "--api-key", key, "--json", "-c", typed, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    last = json.loads(done.stdout.splitlines()[-1])
    match shlex.split(typed)[0]:
        case "message":
            assert last["response"]
        case "message-stream":
            assert (last["event"], last["data"]["response"]) == ("task_complete", "Forecast: sunny")
        case "responses":
            assert last["object"] == "response"
