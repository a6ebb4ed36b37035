"""`mail usage`, against a server whose agents are language models: litellm's prices, of a stand-in for the provider."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.processes.projects import entry, write_project
from support.processes.server import ServerProcess
from support.processes.terminal import Terminal
from support.services.llm_stub import LLMStub, Tokens, call, reply

import mail
from mail.cli.output import Output
from mail.cli.usage import By, read_time, write_csv
from mail.core.task.costs import Usage
from mail.errors import ConfigurationError

PRICED, UNPRICED = "openai/gpt-5-mini", "openai/gpt-of-tomorrow"
COST = 600 * 0.25e-6 + 400 * 0.025e-6 + 100 * 2e-6
"""Of one call: what litellm's table says of tokens read, read from the cache, and written."""


def agent(name: str, llm: str, *others: str) -> dict[str, object]:
    kind = "supervisor:LiteLLMSupervisorFunction" if name == "supervisor" else "base:LiteLLMAgentFunction"
    supervises = name == "supervisor"
    return {
        "name": name,
        "factory": f"python::mail.factories.{kind}",
        "comm_targets": list(others),
        "enable_entrypoint": supervises,
        "can_complete_tasks": supervises,
        "agent_params": {"llm": llm, "system": f"You are the {name}.", "tool_format": "completions"},
    }


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two tasks that have called models."""
    folder = tmp_path_factory.mktemp("paid")
    agents = [agent("supervisor", PRICED, "worker"), agent("worker", UNPRICED, "supervisor")]
    write_project(folder, entry("paid", *agents))
    tokens = Tokens(input=1000, output=100, cached=400)
    ask = call("send_request", target="worker", subject="s", body="b")
    done = call("task_complete", finish_message="fine")
    with LLMStub() as stub, ServerProcess(folder, "--swarm-name", "paid", env=stub.environ) as server:
        stub.script(
            reply(ask, call("await_message", reason="r"), tokens=tokens),
            reply(done, tokens=tokens),
            reply(done, tokens=tokens),
            to="You are the supervisor",
        )
        answer = call("send_response", target="supervisor", subject="s", body="b")
        stub.script(reply(answer, tokens=tokens), to="You are the worker")
        server.ask("hello", task_id="long")
        server.ask("hello", task_id="short")
        assert stub.complaints == []
        yield server


def run_usage(server: ServerProcess, *flags: str, role: str = "user") -> list[list[str]]:
    rows = [line.split("\t") for line in server.prints("usage", *flags, role=role).splitlines()]
    if "--json" in flags:
        return rows
    headings = "calls,tokens in,cached,cache writes,tokens out,hit rate,USD,unpriced"
    assert rows[0][1:] == headings.split(",")
    return rows[1:]


def usd(calls: int) -> str:
    return f"{calls * COST:.4f}"


def test_by_agent(paid: ServerProcess) -> None:
    assert run_usage(paid) == [
        ["supervisor", "3", "3000", "1200", "0", "300", "40%", usd(3), "0"],
        ["worker", "1", "1000", "400", "0", "100", "40%", "0.0000", "1"],
        ["all", "4", "4000", "1600", "0", "400", "40%", usd(3), "1"],
    ]


@pytest.mark.parametrize(
    ("by", "calls"),
    [
        ("model", {PRICED: "3", UNPRICED: "1", "all": "4"}),
        ("caller", {"user:user@paid": "4", "all": "4"}),
        ("task", {"long": "3", "short": "1", "all": "4"}),
    ],
)
def test_by_others(paid: ServerProcess, by: str, calls: dict[str, str]) -> None:
    assert {row[0]: row[1] for row in run_usage(paid, "--by", by)} == calls


def test_of_some_tasks(paid: ServerProcess) -> None:
    assert run_usage(paid, "--task-id", "short")[-1][1] == "1"
    assert run_usage(paid, "--since", "7d")[-1][1] == "4"
    assert run_usage(paid, "--until", "1h")[-1][1] == "0"
    assert run_usage(paid, "--caller", "user:user", role="admin")[-1][1] == "4"
    assert run_usage(paid, role="admin")[-1][1] == "4"


def test_as_json(paid: ServerProcess) -> None:
    (row,) = run_usage(paid, "--json")
    answer = json.loads(row[0])
    assert (answer["tasks"], answer["cursor"]) == (2, None)
    assert answer["models"][PRICED]["cost"] == pytest.approx(3 * COST)
    assert answer["total"]["unpriced_calls"] == 1


def test_as_csv_like_the_page(paid: ServerProcess) -> None:
    done = paid.mail("usage", "--by", "model", "--csv")
    page = (Path(mail.__file__).parent / "http" / "ui" / "admin" / "spending.js").read_text(encoding="utf-8")
    columns = re.findall(r'"(\w+)"', page[: page.index("]")])
    heading, *lines = done.stdout.splitlines()
    assert heading.split(",") == ["model", *columns]
    assert f"{PRICED},3,3000,1200,0,300,0,{3 * COST:.15g},0" in lines
    assert len(lines) == 2


def test_names_in_csv_are_no_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    usage = asdict(Usage(calls=1, cost=0.1 + 0.2))
    write_csv({"agents": {"=1+1": usage, 'a "b", c': usage}}, By.AGENT, Output(sys.stdout))
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines == ["'=1+1,1,0,0,0,0,0,0.3,0", '"a ""b"", c",1,0,0,0,0,0,0.3,0']


def test_by_the_version_of_the_swarm(paid: ServerProcess) -> None:
    (digest, calls, *_), everything = run_usage(paid, "--by", "version")
    assert (calls, everything[1]) == ("4", "4")
    assert run_usage(paid, "--swarm-version", digest)[-1][1] == "4"
    assert run_usage(paid, "--swarm-version", "0" * 12)[-1][1] == "0"


def test_what_is_not_possible_is_said(paid: ServerProcess) -> None:
    for flags, code, told in (
        (("--since", "soon"), 2, "--since: 'soon' is not a time; write how long ago"),
        (("--until", "7x"), 2, "7d"),
        (("--caller", "admin:admin"), 1, "only admins"),
        (("--task-id", "gone"), 1, "no task"),
        (("--by", "hour"), 2, "hour"),
    ):
        done = paid.mail("usage", *flags)
        assert (done.returncode, done.stdout) == (code, "")
        assert told in done.stderr


def test_at_a_terminal(paid: ServerProcess, tmp_path: Path) -> None:
    with Terminal("usage", "--by", "model", cwd=tmp_path, env=paid.caller()) as terminal:
        assert terminal.end() == 0
    lines = terminal.shown.splitlines()
    assert lines[0].split("  ")[0] == "model"
    assert lines[-1] == "2 tasks; 1 call of models without a known price not included"
    with Terminal("usage", "--until", "1h", cwd=tmp_path, env=paid.caller()) as terminal:
        assert terminal.end() == 0
    assert terminal.shown.splitlines() == ["0 tasks, and no calls of models"]


def test_in_the_interactive_client(paid: ServerProcess) -> None:
    lines = (
        "usage --by model\nusage --by task --task-id long --since 1d\nusage --by nothing\nusage --since 7x"
    )
    done = paid.mail("client", given=lines)
    rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    assert [row[:2] for row in rows] == [
        ["model", "calls"], [PRICED, "3"], [UNPRICED, "1"], ["all", "4"],
        ["task", "calls"], ["long", "3"], ["all", "3"],
    ]  # fmt: skip
    refused, moment = done.stderr.splitlines()
    assert "--by" in refused
    assert moment.startswith("mail: --since: '7x' is not a time")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("7d", "2026-01-24T12:00:00+00:00"),
        ("2w", "2026-01-17T12:00:00+00:00"),
        ("90m", "2026-01-31T10:30:00+00:00"),
        ("12h", "2026-01-31T00:00:00+00:00"),
        ("9999w", "1834-06-14T12:00:00+00:00"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T08:00:00Z", "2026-01-01T08:00:00Z"),
        (None, None),
    ],
)
def test_moments(text: str | None, moment: str | None) -> None:
    assert read_time(text, "--since", datetime(2026, 1, 31, 12, tzinfo=UTC)) == moment


@pytest.mark.parametrize("text", ["7x", "7 days", "d", "-7d", "", "99999d", "2026-13-01"])
def test_no_moments(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--until: .*7d"):
        read_time(text, "--until", datetime(2026, 1, 31, 12, tzinfo=UTC))
