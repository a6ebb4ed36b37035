"""`mail init`: what it writes runs, with a model or without, as JSON and as Python."""

import os
import sys
from pathlib import Path

import pytest
from support.processes import forkserver
from support.processes.server import PLUGINS, PYTEST, ServerProcess, run_mail
from support.processes.terminal import Terminal
from support.services.llm_stub import LLMStub, call, reply
from support.services.ollama_stub import ollama

from mail.core.protocol.mail_tools import MAIL_TOOLS

VARIANTS = [
    ("--no-model",),
    ("--no-model", "--python"),
    ("--model", "openai/gpt-5-mini"),
    ("--model", "openai/gpt-5-mini", "--python"),
]


def init(folder: Path, *arguments: str) -> list[str]:
    """Create a project, and return the lines that say what comes next."""
    done = run_mail("init", folder.name, *arguments, cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def script(stub: LLMStub) -> None:
    stub.script(
        reply(call("send_request", target="calendar", subject="Date", body="Which day?")),
        reply(call("task_complete", finish_message="It is Friday.")),
        to="You answer questions",
    )
    stub.script(
        reply(call("today")),
        reply(call("send_response", target="assistant", subject="Date", body="Friday")),
        to="You know the date",
    )


@pytest.mark.soak(on="--python")
@pytest.mark.parametrize("arguments", VARIANTS, ids=" ".join)
def test_a_project_answers_and_passes_its_test(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    folder = tmp_path / "my-swarm"
    shown = init(folder, *arguments)
    assert shown[0] == "Created my-swarm in my-swarm. Next:"
    assert (shown[1], shown[-1], len(shown) <= 4) == ("  cd my-swarm", "  mail server", True)
    tested = forkserver.run(
        [sys.executable, *PYTEST],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "OPENAI"))}
        | PLUGINS,
    )
    assert "1 passed" in tested.stdout, tested.stdout
    with LLMStub() as stub:
        script(stub)
        with ServerProcess(folder, env=stub.environ) as server:
            answer = server.ask("hello")
        assert answer == ("HELLO" if "--no-model" in arguments else "It is Friday.")
        assert stub.is_done or "--no-model" in arguments
        assert stub.complaints == []


def test_a_project_with_ollama(tmp_path: Path) -> None:
    assert "  export OLLAMA_API_BASE=http://localhost:11434" in init(
        tmp_path / "local", "--model", "ollama/llama3.2"
    )
    with ollama(name="task_complete", arguments={"finish_message": "Hi!"}) as (url, asked):
        with ServerProcess(tmp_path / "local", env={"OLLAMA_API_BASE": url}) as server:
            assert server.ask("hello") == "Hi!"
        assert asked[0]["model"] == "llama3.2"
        assert "task_complete" in {tool["function"]["name"] for tool in asked[0]["tools"]}


def test_it_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "mail.toml").write_text("mine")
    done = run_mail("init", ".", "--no-model", cwd=tmp_path)
    assert (done.returncode, "already has mail.toml; nothing was written" in done.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mail.toml"]


@pytest.mark.parametrize("arguments", [("1st",), ("a b",), ("x", "--model", "openai/x", "--no-model")])
def test_what_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run_mail("init", *arguments, cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert list(tmp_path.iterdir()) == []


UNKNOWN = "no provider is known for the model 'gpt5'"


def test_an_unknown_model_is_an_error_in_a_script(tmp_path: Path) -> None:
    done = run_mail("init", "team", "--model", "gpt5", cwd=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert UNKNOWN in done.stderr
    assert "Did you mean 'gpt-5'?" in done.stderr
    assert "Nothing was written" in done.stderr


def test_an_unknown_model_is_used_if_it_must_be(tmp_path: Path) -> None:
    init(tmp_path / "team", "--model", "gpt5", "--force")
    assert '"llm": "gpt5"' in (tmp_path / "team" / "swarms.json").read_text()


@pytest.mark.parametrize(("answer", "code"), [("n", 1), pytest.param("y", 0, marks=pytest.mark.soak)])
def test_a_terminal_asks_about_an_unknown_model(tmp_path: Path, answer: str, code: int) -> None:
    with Terminal("init", "team", "--model", "openai/gpt5", cwd=tmp_path) as terminal:
        terminal.expect("Did you mean 'openai/gpt-5'? Use 'openai/gpt5' anyway? [y/N]")
        terminal.type(f"{answer}\r")
        assert terminal.end() == code
    assert (tmp_path / "team").exists() == (code == 0)


@pytest.mark.soak
def test_prompts_say_nothing_of_the_protocol(tmp_path: Path) -> None:
    for arguments in VARIANTS[2:]:
        folder = tmp_path / f"team{len(arguments)}"
        init(folder, *arguments)
        texts = [path.read_text() for path in folder.iterdir() if path.name.startswith(("swarms", "team"))]
        assert not any(tool in text for text in texts for tool in MAIL_TOOLS)


def test_the_file_of_variables_is_read(tmp_path: Path) -> None:
    """The key of a project's `.env` reaches the model; the environment's address of the provider wins."""
    init(tmp_path / "team", "--model", "openai/gpt-5-mini")
    (tmp_path / "team" / ".env").write_text(
        "OPENAI_API_KEY=sk-of-the-file\nOPENAI_API_BASE=http://localhost:1\n"
    )
    with LLMStub() as stub:
        stub.script(reply(call("task_complete", finish_message="It is Friday.")))
        environ = {name: value for name, value in stub.environ.items() if name != "OPENAI_API_KEY"}
        with ServerProcess(tmp_path / "team", env=environ) as server:
            assert server.ask("hello") == "It is Friday."
        assert {request.key for request in stub.requests} == {"sk-of-the-file"}


def test_a_file_of_variables_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"KEY=\xff\xfe")
    done = run_mail("version", cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert done.stderr.startswith("mail: .env can't be read: ")


def test_a_build_needs_a_project(tmp_path: Path) -> None:
    done = run_mail("build", cwd=tmp_path)
    assert (done.returncode, "run mail init" in done.stderr) == (2, True)


def test_modules_have_names_of_their_own(tmp_path: Path) -> None:
    init(tmp_path / "json", "--no-model")
    assert (tmp_path / "json" / "json_swarm.py").exists()


def test_the_example_with_a_key(tmp_path: Path) -> None:
    """`OPENAI_API_KEY=… mail server --swarm-name example`, as the README has it."""
    with LLMStub() as stub:
        stub.script(reply(call("task_complete", finish_message="4")))
        with ServerProcess(tmp_path, "--swarm-name", "example", env=stub.environ) as server:
            assert server.ask("2 + 2") == "4"
