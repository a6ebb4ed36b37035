"""`mail file upload`, `mail file get`, and `mail send --file`."""

import json
from pathlib import Path

from support.processes.server import ServerProcess

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))


def test_a_file_is_uploaded_sent_and_fetched(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    uploaded = server.mail("file", "upload", "cat.png", "--json", cwd=tmp_path)
    file = json.loads(uploaded.stdout)
    assert file == {"id": file["id"], "name": "cat.png", "type": "image/png", "bytes": len(PNG)}
    sent = server.mail("send", "2**10", "--file", "cat.png", "--task-id", "seen", cwd=tmp_path)
    assert (sent.returncode, sent.stdout) == (0, "2**10 = 1024.\n")
    with server.client() as client:
        items = client.get("/task", params={"task_id": "seen", "items": True}).json()["items"]
    (message,) = [item for item in items if item["kind"] == "message"]
    assert message["files"] == [file]
    fetched = server.mail("file", "get", file["id"], "-o", "copy.png", cwd=tmp_path)
    assert (fetched.returncode, fetched.stdout) == (0, f"{len(PNG)} bytes in copy.png\n")
    assert (tmp_path / "copy.png").read_bytes() == PNG


def test_a_file_that_cannot_be_read_is_named(server: ServerProcess, tmp_path: Path) -> None:
    for words in (("send", "hi", "--file", "gone.png"), ("file", "upload", "gone.png")):
        failed = server.mail(*words, cwd=tmp_path)
        assert (failed.returncode, failed.stderr) == (
            2,
            "mail: gone.png can't be read: No such file or directory\n",
        )
