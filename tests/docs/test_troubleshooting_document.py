"""docs/troubleshooting.md: what it quotes is what the server, the commands and the factories say."""

import re
from pathlib import Path

import httpx2
import pytest
from support.processes.document_samples import DOCS, ROOT
from support.processes.server import ServerProcess, run_mail

TEXT = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")


TOO_MUCH = {
    *("requests a second", "of your tasks are running", "of your tasks wait for results"),
    *("messages or more wait for", "has stored", "the tasks of", "your requests hold", "you are reading"),
}


def quoted(section: str) -> list[str]:
    """What the first column of a section's table quotes, its longest piece without `…` each."""
    [body] = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    cells = [row.split(" | ")[0] for row in re.findall(r"^\| (.*) \|$", body, re.MULTILINE)]
    quotes = [quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]
    return [max(quote.split("…"), key=len).strip() for quote in quotes]


@pytest.mark.soak
def test_what_a_server_says_that_does_not_start(server: ServerProcess, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    (tmp_path / "bad.toml").write_text("[server]\nprt = 1\n")
    (tmp_path / "target.json").write_text(swarm('"comm_targets": ["nobody"]'))
    (tmp_path / "action.json").write_text(swarm('"comm_targets": [], "actions": ["nothing"]'))
    (tmp_path / "broken_module.py").write_text("raise ValueError('no')\n")
    (tmp_path / "broken.json").write_text(swarm('"comm_targets": []', factory="python::broken_module:agent"))
    fixed = '"comm_targets": [], "agent_params": {"sytem": "x"}'
    (tmp_path / "fixed_module.py").write_text(
        "def agent(name, comm_targets, tools, enable_entrypoint, enable_interswarm, can_complete_tasks, tool_format, "
        "user_token, system=None): ...\n"
    )
    (tmp_path / "params.json").write_text(swarm(fixed, factory="python::fixed_module:agent"))
    (tmp_path / "module.json").write_text(swarm('"comm_targets": []', factory="python::missing_module:agent"))
    newer = run_mail("db-init", "--database", "newer.db", cwd=tmp_path)
    assert newer.returncode == 0
    set_version(tmp_path / "newer.db", 99)
    said = [
        run_mail("server", "--port", "0", *flags, cwd=folder, env=env).stderr
        for folder, flags, env in [
            (tmp_path, ["--config", "bad.toml"], {}),
            (server.folder, [], {}),
            (tmp_path, ["--host", "127.0.0.1", "--port", port], {}),
            (tmp_path, ["--swarm-name", "nope"], {}),
            (tmp_path, [], {"DATABASE_URL": "postgresql://u:p@127.0.0.1:9/d"}),
            (tmp_path, ["--swarm-name", "one", "--swarm-source", "target.json"], {}),
            (tmp_path, ["--swarm-name", "one", "--swarm-source", "action.json"], {}),
            (tmp_path, ["--swarm-name", "one", "--swarm-source", "broken.json"], {}),
            (tmp_path, ["--swarm-name", "one", "--swarm-source", "params.json"], {}),
            (tmp_path, ["--swarm-name", "one", "--swarm-source", "module.json"], {}),
            (tmp_path, ["--database", "newer.db"], {}),
        ]
    ]
    quotes = quoted("The server doesn't start")
    assert len(quotes) == len(said)
    for quote in quotes:
        assert any(quote in text for text in said), (quote, said)


def swarm(agent: str, factory: str = "python::mail.examples.rule_based:MathAgent") -> str:
    return (
        '[{"name": "one", "version": "1", "entrypoint": "a", "agents": [{"name": "a", '
        f'"factory": "{factory}", "enable_entrypoint": true, "can_complete_tasks": true, {agent}}}]}}]'
    )


def set_version(database: Path, version: int) -> None:
    import sqlite3

    connection = sqlite3.connect(database)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def test_what_is_refused(server: ServerProcess) -> None:
    def ask(path: str, content: str | bytes | None = None, token: str | None = server.tokens["user"]) -> str:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        method = "GET" if content is None else "POST"
        answer = httpx2.request(method, server.url + path, content=content, headers=headers, timeout=60)
        return str(answer.json().get("detail", answer.text))

    ask("/message", '{"body": "1+1", "task_id": "done"}')
    ask("/message", '{"body": "ask a human: may I?", "task_id": "question"}')
    said = [
        ask("/message", '{"body": ""}'),
        ask("/message", "{body: 1}"),
        ask("/message", '{"boddy": "x"}'),
        ask("/message", '{"body": "x", "task_id": "question"}'),
        ask("/message", '{"body": "x", "entrypoint": "math"}'),
        ask("/message", '{"body": "x", "task_id": "none", "resume_from": "user_response"}'),
        ask("/message", '{"task_id": "done", "resume_from": "breakpoint_tool_call"}'),
        ask("/task?task_id=none"),
        ask("/webhooks", '{"url": "https://example.com", "secret_ref": "${WEBHOOK_SECRET_NONE}"}'),
        ask("/message", b"x" * 5_000_000),
        ask("/whoami", token="nonsense"),
        ask("/whoami", token=None),
        ask("/health", '{"status": "x"}'),
        ask("/nowhere"),
        run_mail("ping", "http://127.0.0.1:9", cwd=server.folder).stdout,
        ask("/message", '{"body": "2+2", "kwargs": {"max_steps": 1}}'),
        ask("/interswarm/message", '{"body": "2+2", "targets": ["math@beta"]}'),
        ask("/task/stream?task_id=done&last_event_id=999"),
    ]
    quotes = [
        *(quote for quote in quoted("A message is refused") if quote not in TOO_MUCH),
        "Cannot connect to",
        "the API key is not valid",
        "Send a valid API key",
        "this endpoint is for the role",
        "unknown endpoint",
        "This task has used up its",
        "is not registered",
        "the task has no event",
    ]
    for quote in quotes:
        assert quote in TEXT
        assert any(quote in text for text in said), (quote, said)


def test_what_is_too_much(tmp_path: Path) -> None:
    env = {"MAIL_REQUESTS_PER_SECOND": "0.001", "MAIL_REQUEST_BURST": "1"}
    with ServerProcess(tmp_path, env=env) as server:
        refused = [server.post("1+1") for _ in range(2)][-1]
    assert refused.status_code == 429
    core = ROOT / "src" / "mail" / "core"
    source = [
        (core / room / "caller_limits.py").read_text(encoding="utf-8") for room in ("decisions", "engine")
    ]
    source.append((ROOT / "src" / "mail" / "http" / "account.py").read_text(encoding="utf-8"))
    said = "".join([refused.json()["detail"], *source])
    assert set(quoted("A message is refused")) >= TOO_MUCH
    # test_caller_limits.py, test_task_size.py and test_http_limits.py bring the others about
    for quote in TOO_MUCH:
        assert quote in said


@pytest.mark.parametrize("quote", quoted("Agents with a model"))
def test_what_agents_with_a_model_say(quote: str) -> None:
    """These come from providers' failures, which tests/factories brings about; here only that they are so worded."""
    folder = ROOT / "src" / "mail" / "factories"
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    assert quote.replace("LITELLM_PROXY_API_BASE", "{PROXY_VARIABLE}") in source


@pytest.mark.parametrize(
    "quote", ["The task did not finish within its time limit.", "authentication token missing for swarm"]
)
def test_what_the_engine_says(quote: str) -> None:
    assert quote in TEXT
    assert any(quote in path.read_text(encoding="utf-8") for path in (ROOT / "src" / "mail").rglob("*.py"))
