"""docs/storage.md: what it says of databases holds; its commands for SQLite are run by `test_documented_commands`."""

import re
from pathlib import Path

import pytest
from support.engines.aws import aws_environment, endpoint
from support.engines.dynamodb import ENGINES
from support.processes.document_samples import DOCS
from support.processes.server import run_mail

from mail.adapters.sqlite.database import TABLES, SQLiteDatabase

TEXT = (DOCS / "storage.md").read_text(encoding="utf-8")


def test_every_table_is_named() -> None:
    shown = re.findall(r"^(\w+) +OK$", TEXT, re.MULTILINE)
    assert tuple(shown) == TABLES


def test_a_newer_schema_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    with SQLiteDatabase(path) as database:
        database.connection.execute("PRAGMA user_version = 99")
        database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    assert run_mail("db-init", cwd=tmp_path).returncode == 2
    assert path.read_bytes() == before


@pytest.mark.skipif(not ENGINES, reason="no engine of DynamoDB's kind is set up")
def test_a_table_on_dynamodb(tmp_path: Path) -> None:
    assert "mail db-init --database dynamodb://mail" in TEXT
    environment = aws_environment(endpoint("ministack"))
    command = ("db-init", "--database", "dynamodb://mail")
    for _ in range(2):  # it may be repeated
        done = run_mail(*command, cwd=tmp_path, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert "dynamodb://mail is ready" in done.stdout
