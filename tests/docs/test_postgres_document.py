"""docs/postgres.md and the section of docs/storage.md: the numbers and names in them are those of the code."""

import re

import pytest
from support.processes.document_samples import DOCS

from mail.adapters.postgres.liveness import LIVENESS_SECONDS
from mail.adapters.postgres.notifier import POLL_SECONDS
from mail.adapters.postgres.pool import CONNECTIONS, TIMEOUT
from mail.adapters.postgres.schema import SCHEMA, TABLES
from mail.bootstrap.system import TURN_GRACE_SECONDS
from mail.swarms_json.current import REFRESH_SECONDS

TEXT = " ".join((DOCS / "postgres.md").read_text(encoding="utf-8").split())
STORAGE = (DOCS / "storage.md").read_text(encoding="utf-8")


def test_every_table_is_named() -> None:
    [section] = re.findall(r"^## PostgreSQL$(.*?)^## ", STORAGE, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \| ", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(TABLES)
    assert all(f"TABLE mail.{name} " in SCHEMA for name in TABLES)


WORDS = {3: "three", 5: "five", 9: "nine", 10: "ten"}


@pytest.mark.parametrize(
    "says",
    [
        f"A server opens {WORDS[CONNECTIONS + 1]} at most",
        f"within {LIVENESS_SECONDS:g} to {2 * LIVENESS_SECONDS:g} seconds",
        f"the others come to it within {REFRESH_SECONDS:g} seconds",
        f"its turns have {WORDS[int(TURN_GRACE_SECONDS)]}",
        f"Requests wait for {WORDS[int(TIMEOUT)]} seconds",
        f"also look every {WORDS[int(POLL_SECONDS)]} seconds",
    ],
)
def test_numbers(says: str) -> None:
    assert says in TEXT


def test_columns_that_are_queried_are_there() -> None:
    queries = re.findall(r'-c "SELECT ([^"]*?) FROM mail\.(\w+)', TEXT)
    assert len(queries) == 3
    for columns, table in queries:
        [made] = re.findall(rf"TABLE mail\.{table} \((.*?)\n\)", SCHEMA, re.DOTALL)
        for column in columns.replace(", count(*)", "").split(", "):
            assert re.search(rf"^    {column} ", made, re.MULTILINE), column
