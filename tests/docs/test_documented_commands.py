"""Every command that the documents show is run, and prints what they say it prints. In the full tier, a document whose
commands others run is only parsed.

A document is a session, from top to bottom. Its `sh` blocks are run in a fresh folder; a `text` or `json` block right
after one is expected of it: each of its lines is printed, where `…` stands for anything. A block after "Save this as
`name`" becomes a file. A server that a document starts runs in the background, on a free port.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType

import click
import pytest
from support.engines.aws import has_ministack
from support.processes import forkserver
from support.processes.document_samples import read_blocks
from support.processes.local_aws import LocalAwsProcess
from support.processes.server import TIMEOUT, ServerProcess, environment
from support.services.llm_stub import LLMStub, call, reply
from support.services.llm_stub.script import Turn

from mail.cli.project.bundle import TARGET, copy_swarm
from mail.local_aws.processes import free_port

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "learn").glob("*.md")),
]

_VARIES = [
    (re.compile(r"\d+\.\d ms|(?<=  )\d+(\.\d)? s(?=  )"), "… ms"),
    (re.compile(r"127\.0\.0\.1:\d+"), "…"),
    (re.compile(r" +"), " "),
    (re.compile(r"^admin \(not shown in a log;.*"), "admin mail_admin_…"),  # as a terminal shows it
    (re.compile(r"/ui#sign-in=\S+$"), "/ui"),  # the same
    (re.compile(r"^\(the link works once, .*\)"), "(mail ui makes a link that signs you in)"),  # the same
]

DEV = ["python3", "scripts/dev.py"]
NOT_RUN_HERE = {"test", "setup", "lint"}
"""Commands of scripts/dev.py that have brought us here."""


def says(words: str) -> Turn:
    return reply(call("task_complete", finish_message=words))


MODELS: dict[str, list[Turn]] = {
    "1-hello-model.md": [says("Agents that send each other mail.")],
    "2-tools.md": [reply(call("look_up_price", drink="tea")), says("A tea is 2.50 euros.")],
    "3-two-agents.md": [
        reply(call("send_request", target="searcher", subject="Books", body="books on bees")),
        reply(call("search_library", topic="bees")),
        reply(call("send_response", target="lead", subject="Found", body="volumes 1 and 2")),
        says("We have two books on bees."),
        says("And two on honey."),
    ],
    "4-person-in-the-loop.md": [
        reply(call("refund", order="7", amount=200)),
        says("Your 200 euros are on their way."),
    ],
    "drafts.md": [
        says("Bees are insects that live in colonies."),
        says("Insects that buzz."),
        says("Bees buzz."),
        says("Bees buzz."),
    ],
}
"""What the models of a document say, in order."""


BEFORE = {
    "7-deploy.md": ["mail init my-swarm --no-model", "cd my-swarm"],
    "schedules.md": ["mail server", "export TOKEN=mail_user_..."],
    "versions.md": ["mail server", "mail send --task-id sums '12*(3+4)'"],
}
"""What a document takes from the ones before it."""

RUN_BY_OTHERS = {
    *("1-hello-model.md", "3-two-agents.md", "4-person-in-the-loop.md", "5-watch-and-debug.md", "6-serve.md"),
    *("7-deploy.md", "8-federate.md", "quickstart.md", "security.md", "troubleshooting.md"),
}
"""Documents whose commands others run, too, or tests of the command: the soak tier runs them as they stand."""


def read_commands(block: str) -> list[str]:
    """The commands of a block, less comments; one that is continued in the next line is one."""
    commands: list[str] = []
    for line in block.splitlines():
        if commands and not _is_whole(commands[-1]):
            commands[-1] += "\n" + line
        elif line.strip():
            commands.append(line)
    return commands


def _is_whole(command: str) -> bool:
    if command.endswith("\\"):
        return False
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


class Session:
    """The terminals of somebody who does what a document says."""

    def __init__(self, folder: Path, environ: Mapping[str, str] = MappingProxyType({})) -> None:
        self.folder = self.home = folder
        self.server: ServerProcess | None = None
        self.others: dict[str, ServerProcess] = {}
        self.output = ""
        self.environ = environ
        self.variables: dict[str, str] = dict(environ)
        self.extra: list[forkserver.ForkedProcess] = []
        scripts = folder / ".bin"
        scripts.mkdir()
        for name, module in [("mail", "mail.cli"), ("uvicorn", "uvicorn")]:
            forkserver.write_command(scripts / name, module, environ)
        (scripts / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        (scripts / "python").chmod(0o755)
        (folder / "mail.toml").write_text(
            '[server]\nhost = "127.0.0.1"\n'
        )  # nothing shall listen to the world

    def close(self) -> None:
        for process in self.extra:
            process.kill()
            process.wait(TIMEOUT)
        for server in (self.server, *self.others.values()):
            if server is not None:
                server.kill()

    def do(self, command: str) -> None:
        words = shlex.split(command, comments=True)
        if words[:2] == DEV:
            assert words[2] in (ROOT / "scripts" / "dev.py").read_text(encoding="utf-8")
            if words[2] in NOT_RUN_HERE or words[2:] == ["bench"]:
                return
            words = ["mail", {"run": "server"}.get(words[2], words[2]), *words[3:]]
            command = shlex.join(words)
        if words[:2] == ["mail", "server"] and "8001" in words:
            self._start_another(words[2:])
        elif words[:2] == ["mail", "server"]:
            self._start(words[2:])
        elif words == ["mail", "build"]:
            copy_swarm(self.folder, self.folder / TARGET / "swarm")  # pip has nothing to download for it
        elif words == ["mail", "local-aws"]:
            if not has_ministack():
                pytest.skip("ministack is not installed")
            self.server = LocalAwsProcess(self.folder, "--port", "0", template=self.folder / "template.yaml")
            self.server.start()
            self.output += self.server.output
        elif words[0] == "python" and words[1].endswith(".py"):
            program = [sys.executable, *words[1:]]
            ran = forkserver.run(program, cwd=self.folder, env=environment(self.variables), timeout=TIMEOUT)
            assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
            self.output += ran.stdout
        elif words[0] == "cd":
            self.folder /= words[1]
        elif words[:4] == ["python", "-m", "pip", "install"]:
            pass  # the tests have it
        elif words[0] == "uvicorn":
            self._start_uvicorn(words[1:])
        elif words[0] == "export" and words[1].startswith("MAIL_MINISTACK="):
            pass  # the tests have one
        elif words[0] == "export":
            self._export(words[1].partition("=")[0])
        elif words[:2] == ["kill", "-9"]:
            assert self.server is not None
            assert os.path.expandvars(words[2].replace("$SERVER", self.variables["SERVER"])) == str(
                self.server.process.pid
            )
            self.server.kill()
        elif words[0] != ".":
            self._run(command)

    def _start(self, flags: list[str]) -> None:
        """Start a server in place of the one that runs, as one terminal would; it keeps its tokens."""
        tokens: dict[str, str] = {}
        if self.server is not None:
            tokens = self.server.tokens
            if self.server.process.poll() is None:
                assert self.server.stop() == 0
        kept = [flag for n, flag in enumerate(flags) if "--port" not in (flag, flags[n - 1])]
        self.server = ServerProcess(self.folder, *kept, env=self.environ)
        self.server.start()
        for role, token in tokens.items():
            self.server.tokens.setdefault(role, token)
        self.output += self.server.output

    def _start_another(self, flags: list[str]) -> None:
        """Start a second server in a folder of its own."""
        at = flags.index("--port")
        folder = self.home / flags[at + 1]
        folder.mkdir()
        (folder / "mail.toml").write_bytes((self.home / "mail.toml").read_bytes())
        server = ServerProcess(folder, *flags[:at], *flags[at + 2 :])
        server.start()
        self.others[f"http://localhost:{flags[at + 1]}"] = server
        self.output += server.output

    def _start_uvicorn(self, arguments: list[str]) -> None:
        assert self.server is not None
        self.server.stop()
        port = free_port()
        arguments[arguments.index("--port") + 1] = str(port)
        self.extra.append(
            forkserver.start(
                [sys.executable, "-m", "uvicorn", *arguments], cwd=self.folder, env=environment()
            )
        )
        self.server.url = f"http://127.0.0.1:{port}"
        self._run(f"curl -s --retry 50 --retry-connrefused --retry-delay 1 {self.server.url}/health")

    def _export(self, name: str) -> None:
        assert self.server is not None
        values = {
            "TOKEN": self.server.tokens["user"],
            "MAIL_API_KEY": self.server.tokens["user"],
            "MAIL_SERVER": self.server.url,
            "ADMIN": self.server.tokens["admin"],
            "ALPHA_ADMIN": self.server.tokens["admin"],
            "ALPHA_AGENT": self.server.tokens["agent"],
            "SERVER": str(self.server.process.pid),
        }
        for other in self.others.values():
            values |= {"BETA_ADMIN": other.tokens["admin"], "BETA_AGENT": other.tokens["agent"]}
        self.variables[name] = values[name]

    def _run(self, command: str) -> None:
        default_server: dict[str, str] = {}
        if self.server is not None:
            command = command.replace("http://localhost:8000", self.server.url)
            default_server["MAIL_SERVER"] = self.server.url  # in place of http://localhost:8000, the default
        for url, server in self.others.items():
            command = command.replace(url, server.url)
        path = f"{self.home / '.bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=environment({**default_server, **self.variables, "PATH": path}),
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert '"detail"' not in done.stdout, f"{command}\n{done.stdout}"
        self.output += done.stdout + "\n"


def expect(expected: str, output: str) -> None:
    """Every expected line was printed."""
    printed = [_without_what_varies(line) for line in output.splitlines()]
    for line in expected.splitlines():
        parts = [re.escape(part) for part in _without_what_varies(line).split("…")]
        pattern = re.compile(".*".join(parts))
        assert any(pattern.fullmatch(one) for one in printed), f"not printed: {line}\n\n{output}"


def _without_what_varies(line: str) -> str:
    for pattern, instead in _VARIES:
        line = pattern.sub(instead, line.strip())
    return line


@pytest.fixture
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("the documents use bash and curl")
    document: Path = request.node.callspec.params["document"]
    with LLMStub() if document.name in MODELS else nullcontext() as stub:
        if stub is not None:
            stub.script(*MODELS[document.name])
        session = Session(tmp_path, stub.environ if stub is not None else {})
        yield session
        session.close()
        if stub is not None:
            assert (stub.complaints, stub.is_done) == ([], True)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(each, marks=pytest.mark.soak) if each.name in RUN_BY_OTHERS else each
        for each in DOCUMENTS
    ],
    ids=lambda path: path.name,
)
def test_every_command_works_as_shown(document: Path, session: Session) -> None:
    for command in BEFORE.get(document.name, ()):
        session.do(command)
    for block in read_blocks(document):
        if block.file is not None:
            (session.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            session.output = ""
            for command in read_commands(block.text):
                session.do(command)
        elif block.language in ("text", "json"):
            expect(block.text, session.output)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_of_mail_takes_what_it_is_given(document: Path) -> None:
    from mail.cli.app import app

    blocks = [block.text for block in read_blocks(document) if block.language == "sh"]
    for line in (line for block in blocks for line in read_commands(block)):
        for words in programs_of(line):
            if words[0] == "mail":
                parse(app, words[1:])


def programs_of(line: str) -> Iterator[list[str]]:
    """The words of each program that a line starts."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    program: list[str] = []
    for word in (*words, "|"):
        if set(word) <= set("();<>|&"):
            if program:
                yield program
            program = []
        else:
            program.append(word)


def parse(command: click.Command, words: list[str]) -> None:
    """Parse the words of a command as it does before it runs. Raises UsageError."""
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, below, rest = command.resolve_command(click.Context(command), words)
        assert below is not None
        parse(below, rest)
        return
    try:
        command.make_context(command.name, words)
    except click.exceptions.Exit:
        pass  # of --help
    except click.MissingParameter:
        raise
    except click.BadParameter:
        pass  # a file that is not here


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path) if path else document
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(anchor_of, headings), target


def anchor_of(heading: str) -> str:
    """By which a link leads to a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_key_of_the_configuration_is_documented() -> None:
    import tomllib

    from mail.config import MailConfig

    blocks = [block for block in read_blocks(ROOT / "docs" / "configuration.md") if block.language == "toml"]
    documented = tomllib.loads(blocks[0].text)
    defaults = MailConfig.model_validate({"server": {}, "client": {}})
    # tables of entries and the identity provider, of which there are none by default, are comments of the block
    commented = {"auth": {"jwt"}, "budgets": True, "models": True, "schedules": True}
    assert documented == defaults.model_dump(exclude={"server": commented}, exclude_none=True)


def test_every_flag_of_every_command_is_documented() -> None:
    from mail.cli.app import app

    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    context = click.Context(app)
    commands = {}
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        below = getattr(command, "commands", None)  # those of a group, as in `mail token create`
        commands |= {f"{name} {sub}": each for sub, each in below.items()} if below else {name: command}
    for name, command in commands.items():
        assert f"mail {name}" in text
        for parameter in command.params:
            for flag in parameter.opts:
                if flag.startswith("--"):
                    assert flag in text, f"mail {name} {flag}"
