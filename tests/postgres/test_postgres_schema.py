"""The tables: who makes them, and where they can't be made."""

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from support.engines.postgres import PASSWORD, drop_database, execute, postgres_server

from mail.adapters.postgres import schema
from mail.adapters.postgres.schema import SCHEMA_VERSION, TABLES, prepare
from mail.adapters.postgres.urls import read
from mail.core.protocol.error_text import hide_credentials
from mail.errors import ConfigurationError

NEW = "mail_new"


@pytest.fixture
def new() -> Iterator[str]:
    """A database without tables."""
    server = postgres_server()
    execute(server.url(), SQL("CREATE DATABASE {} TEMPLATE template0").format(Identifier(NEW)))
    yield server.url(NEW)
    drop_database(server.url(NEW))


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'mail'").fetchall()
    return {name for (name,) in rows}


def test_the_tables_are_those_that_are_told(new: str) -> None:
    prepare(new)
    assert tables(new) == set(TABLES)


def test_several_servers_that_start_at_once_make_them_once(new: str) -> None:
    failures: list[BaseException] = []

    def start() -> None:
        try:
            prepare(new)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert tables(new) == set(TABLES)


def test_tables_of_an_earlier_version_are_migrated(new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a version that is made up, as there is no second one yet."""
    prepare(new)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(
        schema,
        "MIGRATIONS",
        {
            1: "CREATE TABLE mail.notes (id integer); INSERT INTO mail.notes VALUES (7)",
            2: "ALTER TABLE mail.notes RENAME COLUMN id TO number",
        },
    )
    for _ in range(2):  # the second finds nothing to do
        prepare(new)
        with psycopg.connect(new) as connection:
            assert connection.execute("SELECT number FROM mail.notes").fetchall() == [(7,)]
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 4)
    with pytest.raises(ConfigurationError, match="schema version 3, this program needs 4"):
        prepare(new)


def test_tables_of_a_newer_version_are_left_as_they_are(new: str) -> None:
    prepare(new)
    with psycopg.connect(new, autocommit=True) as connection:
        connection.execute("UPDATE mail.settings SET value = '99' WHERE name = 'schema_version'")
    with pytest.raises(ConfigurationError, match=f"schema version 99, this program needs {SCHEMA_VERSION}"):
        prepare(new)


def test_tables_of_somebody_else_are_left_alone(new: str) -> None:
    with psycopg.connect(new, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA mail")
        connection.execute("CREATE TABLE mail.letters (id integer)")
    with pytest.raises(ConfigurationError, match="tables of another program"):
        prepare(new)
    assert tables(new) == {"letters"}


def test_a_schema_that_the_operator_has_made_is_used(new: str) -> None:
    with psycopg.connect(new, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA mail")
    prepare(new)


def test_who_may_not_make_them_is_told_so(new: str) -> None:
    server = postgres_server()
    execute(server.url(), SQL("CREATE ROLE guest LOGIN PASSWORD 'guest'"))
    guest = f"postgresql://guest:guest@127.0.0.1:{server.port}/{NEW}"
    try:
        with pytest.raises(ConfigurationError, match="permission denied"):
            prepare(guest)
    finally:
        execute(server.url(), SQL("DROP ROLE guest"))


def test_whoever_may_only_use_them_can(new: str) -> None:
    """The tables are made by an owner; servers need no right to make any."""
    server = postgres_server()
    prepare(new)
    execute(server.url(), SQL("CREATE ROLE worker LOGIN PASSWORD 'worker'"))
    try:
        for grant in (
            SQL("GRANT USAGE ON SCHEMA mail TO worker"),
            SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA mail TO worker"),
        ):
            execute(new, grant)
        prepare(f"postgresql://worker:worker@127.0.0.1:{server.port}/{NEW}")
        execute(new, SQL("DROP OWNED BY worker"))
    finally:
        execute(server.url(), SQL("DROP ROLE worker"))


def test_an_encoding_that_cannot_hold_all_text() -> None:
    server = postgres_server()
    execute(server.url(), SQL("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0"))
    try:
        with pytest.raises(ConfigurationError, match="LATIN1"):
            prepare(server.url("latin"))
    finally:
        drop_database(server.url("latin"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db.example:5433/mail", "postgresql://db.example:5433/mail"),
        ("postgres://ann:s3cret@one,two/mail?sslmode=require", "postgres://one,two/mail"),
        ("postgresql://ann:s3c/ret@host/mail", "postgresql://host/mail"),
        ("postgresql://ann:s3?cr@et@host/mail", "postgresql://…"),
        ("postgresql://ann:s3#cr@et@host/mail", "postgresql://…"),
        ("postgresql://host/mail?password=s3cret", "postgresql://host/mail"),
        ("postgresql://host/mail?password=s3@cret", "postgresql://…"),
        ("postgresql:///mail", "postgresql:///mail"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert hide_credentials(url) == shown


def test_what_the_url_says_goes_before_the_defaults() -> None:
    given = read("postgresql://ann@host/mail?connect_timeout=2&target_session_attrs=any")
    assert (given["connect_timeout"], given["target_session_attrs"]) == ("2", "any")
    assert given["application_name"] == "mail"
    assert read(postgres_server().url())["password"] == PASSWORD


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret/x@h/d",
        "postgresql://u:s3cret@x@h/d",
        "postgresql://h/d?s3cret=1",
        "postgresql://h:s3cret/d",
    ],
)
def test_what_cannot_be_a_url_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read(url)
    assert "s3cret" not in refusal.value.detail
