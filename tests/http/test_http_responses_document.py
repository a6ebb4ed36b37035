"""The samples of docs/responses.md run, in their order, and print what it says; only the port is another one."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.processes.server import ServerProcess

pytestmark = pytest.mark.full

DOCUMENT = Path(__file__).parents[2] / "docs" / "responses.md"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVE_AS = re.compile(r"Save this as `([\w.]+)`:\s*\Z")


def test_every_sample_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    server = ServerProcess(tmp_path, "--debug")
    namespace: dict[str, Any] = {}
    printed = ""
    expected = 0
    with server:
        monkeypatch.setenv("TOKEN", server.tokens["user"])
        for block in _BLOCK.finditer(text):
            language, code = block.groups()
            if file := _SAVE_AS.search(text[: block.start()]):
                (tmp_path / file[1]).write_text(code, encoding="utf-8")
            elif flags := re.match(r"mail server --debug (.+)", code):
                assert server.stop() == 0
                server.flags = ("--debug", *flags[1].split(), "--port", server.url.rpartition(":")[2])
                server.start()
            elif language == "python":
                exec(code.replace("http://localhost:8000", server.url), namespace)
                printed = capsys.readouterr().out
            elif language == "console":
                pattern = re.escape(code).replace("…", ".*")
                assert re.fullmatch(pattern, printed), printed
                expected += 1
        namespace["client"].close()
    assert expected == 4
