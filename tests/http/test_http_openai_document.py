"""The samples of docs/openai.md run, in their order, and print what it says; only the port is another one."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.processes.document_samples import DOCS, read_blocks
from support.processes.server import ServerProcess

pytestmark = pytest.mark.full


def test_every_sample_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ServerProcess(tmp_path)
    namespace: dict[str, Any] = {}
    printed = ""
    expected = 0
    with server:
        monkeypatch.setenv("TOKEN", server.tokens["user"])
        for block in read_blocks(DOCS / "openai.md"):
            if block.file:
                (tmp_path / block.file).write_text(block.text, encoding="utf-8")
            elif flags := re.match(r"mail server (.+)", block.text):
                assert server.stop() == 0
                server.flags = (*flags[1].split(), "--port", server.url.rpartition(":")[2])
                server.start()
            elif block.language == "python":
                exec(block.text.replace("http://localhost:8000", server.url), namespace)
                printed = capsys.readouterr().out
            elif block.language == "console":
                pattern = re.escape(block.text).replace("…", ".*")
                assert re.fullmatch(pattern, printed), printed
                expected += 1
        namespace["client"].close()
    assert expected == 5
