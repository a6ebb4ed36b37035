"""The tables in PostgreSQL, in a schema of their own, and their migrations."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import LiteralString
from uuid import UUID

import psycopg

from mail.adapters.postgres.pool import one_line
from mail.adapters.postgres.urls import read
from mail.adapters.shared.statements import Dialect
from mail.core.protocol.error_text import hide_credentials
from mail.core.task.task import TaskKey
from mail.errors import ConfigurationError

SCHEMA_VERSION = 1

DIALECT = Dialect("mail.", parameter="%({})s", merge="{} || {}", json="jsonb", each="json_array_elements")

LOCK = 0x6D61696C
"""The advisory lock under which tables are created, so that servers that start together do so one by one."""

# A task's row is its lock: every change of a task locks that row first, and reads the rest afterwards. Each commit
# writes it, and it is short (because of `fillfactor`, a new row stays on the page of the old one). `born` numbers
# tasks in the order in which they began, and `due` is the first of a task's deadline and the ends of its parks. A
# waiting message is a row of `inbox`, with the checkpoint of the turn that reads it. A commit is a row of `commits`,
# which only a commit without events amends: its events, what it adds to a history, its response, the task's state
# after it, and which mail it delivered (`delivered`) and consumed (`read`), so that a task can be read as it was after
# any commit (`mail.adapters.shared.snapshots`). `owner` is the server that has a lease; one with a `park` belongs to
# nobody. `wake_ups` is the queue: it has hints, so that it is not logged, and empty after a crash of PostgreSQL. Its
# `round` is what makes callers take turns. `searched` and `texts` are the index for searches, written beside the turns
# (`mail.adapters.postgres.search`): they have no column that a turn changes.
SCHEMA: LiteralString = """
CREATE SCHEMA IF NOT EXISTS mail;
CREATE TABLE mail.settings (
    name text PRIMARY KEY,
    value text NOT NULL
);
CREATE TABLE mail.tasks (
    id uuid PRIMARY KEY,
    born bigint GENERATED ALWAYS AS IDENTITY,
    instance text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    status text NOT NULL,
    due double precision,
    delivering boolean NOT NULL,
    dead boolean NOT NULL,
    updated text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    version integer NOT NULL,
    bytes bigint NOT NULL,
    state text NOT NULL
) WITH (fillfactor = 60);
CREATE INDEX tasks_of_instance ON mail.tasks (instance, born);
CREATE INDEX tasks_in_order ON mail.tasks (born);
CREATE INDEX running_tasks ON mail.tasks (due) WHERE status = 'running';
CREATE INDEX due_tasks ON mail.tasks (due) WHERE status <> 'running' AND due IS NOT NULL;
CREATE INDEX running_tasks_of_instance ON mail.tasks (instance) WHERE status = 'running';
CREATE INDEX delivering_tasks ON mail.tasks (id) WHERE delivering;
CREATE INDEX tasks_with_dead_letters ON mail.tasks (instance, born) WHERE dead;
CREATE TABLE mail.inbox (
    task uuid NOT NULL,
    mailbox text COLLATE "C" NOT NULL,
    tier smallint NOT NULL,
    seq integer NOT NULL,
    message text NOT NULL,
    checkpoint text,
    PRIMARY KEY (task, mailbox, tier, seq)
);
CREATE TABLE mail.leases (
    task uuid NOT NULL,
    mailbox text COLLATE "C" NOT NULL,
    token text NOT NULL,
    expires double precision NOT NULL,
    owner integer,
    park text,
    PRIMARY KEY (task, mailbox)
);
CREATE INDEX leases_of_servers ON mail.leases (owner);
CREATE TABLE mail.commits (
    task uuid NOT NULL,
    seq integer NOT NULL,
    agent text,
    n integer,
    ended integer,
    delivered text,
    read text,
    state text NOT NULL,
    events text NOT NULL,
    history text,
    response text,
    PRIMARY KEY (task, seq)
);
CREATE UNIQUE INDEX histories ON mail.commits (task, agent, n) WHERE agent IS NOT NULL;
CREATE UNIQUE INDEX responses ON mail.commits (task, ended) WHERE ended IS NOT NULL;
CREATE TABLE mail.waits (
    task uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    due double precision,
    record text NOT NULL,
    PRIMARY KEY (task, id)
);
CREATE INDEX waits_in_order ON mail.waits (task, due, id) WHERE due IS NOT NULL;
CREATE TABLE mail.asks (
    who text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    task uuid NOT NULL,
    PRIMARY KEY (who, id)
);
CREATE INDEX asks_of_tasks ON mail.asks (task);
CREATE TABLE mail.contents (
    task uuid NOT NULL,
    ref text COLLATE "C" NOT NULL,
    content text NOT NULL,
    PRIMARY KEY (task, ref)
);
CREATE TABLE mail.searched (
    task uuid PRIMARY KEY,
    instance text COLLATE "C" NOT NULL,
    born bigint NOT NULL,
    seq integer NOT NULL,
    last_part integer NOT NULL,
    updated text COLLATE "C" NOT NULL,
    status text NOT NULL,
    cost double precision NOT NULL
);
CREATE INDEX searched_as_updated ON mail.searched (instance, updated, born);
CREATE INDEX searched_by_status ON mail.searched (instance, status, updated, born);
CREATE TABLE mail.texts (
    task uuid NOT NULL,
    part integer NOT NULL,
    original text NOT NULL,
    text text COLLATE "C" NOT NULL,
    grams tsvector NOT NULL,
    PRIMARY KEY (task, part)
);
CREATE INDEX texts_by_gram ON mail.texts USING gin (grams);
CREATE UNLOGGED TABLE mail.wake_ups (
    task uuid NOT NULL,
    mailbox text COLLATE "C" NOT NULL,
    tier smallint NOT NULL,
    swarm text NOT NULL,
    is_delivery boolean NOT NULL,
    place bigint NOT NULL,
    not_before double precision NOT NULL,
    instance text NOT NULL,
    task_id text NOT NULL,
    round bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (task, mailbox, tier)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
CREATE INDEX wake_ups_in_order ON mail.wake_ups (swarm, is_delivery, tier, round, place);
CREATE INDEX wake_ups_of_callers ON mail.wake_ups (swarm, tier, instance, round) WHERE NOT is_delivery;
CREATE TABLE mail.servers (
    id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    started timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE mail.documents (
    kind text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    fields jsonb NOT NULL,
    expires double precision,
    PRIMARY KEY (kind, owner, name)
) WITH (fillfactor = 80);
CREATE INDEX expired_documents ON mail.documents (kind, expires) WHERE expires IS NOT NULL;
CREATE TABLE mail.files (
    instance text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    size bigint NOT NULL,
    secret text NOT NULL,
    until double precision,
    kept integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (instance, id)
);
CREATE INDEX unused_files ON mail.files (until) WHERE until IS NOT NULL;
CREATE TABLE mail.task_files (
    instance text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    size bigint NOT NULL,
    PRIMARY KEY (instance, task_id, id)
);
CREATE INDEX tasks_of_files ON mail.task_files (instance, id);
CREATE TABLE mail.rows (
    place text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    entered text COLLATE "C",
    sent text COLLATE "C",
    text text NOT NULL,
    PRIMARY KEY (place, name)
);
CREATE INDEX rows_as_entered ON mail.rows (place, entered, name) WHERE entered IS NOT NULL;
CREATE INDEX rows_as_sent ON mail.rows (place, sent, name) WHERE sent IS NOT NULL;
"""

MIGRATIONS: dict[int, LiteralString] = {}
"""The migration from each earlier version of the schema to the next."""

TABLES: tuple[str, ...] = tuple(re.findall(r"TABLE mail\.(\w+)", SCHEMA))

VERSION = "schema_version"
"""The setting with the version of the schema."""


def task_number(key: TaskKey) -> UUID:
    """Return the id of a task: the first half of a digest of its key, so that no query is needed to find it."""
    text = "\0".join(key).encode(errors="surrogatepass")
    return UUID(bytes=sha256(text).digest()[:16])


def prepare(url: str) -> None:
    """Create or migrate the tables. Safe to repeat, also by several servers at the same time.

    Raises ConfigurationError if the database can't be used; the message says what to change.
    """
    with connected(url) as connection, connection.transaction():
        (encoding,) = connection.execute("SHOW server_encoding").fetchone() or ("",)
        if encoding != "UTF8":
            raise ConfigurationError(
                f"{hide_credentials(url)} is encoded in {encoding} and can't store all text; create one with: "
                "createdb --encoding UTF8 --template template0 …"
            )
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        _migrate(connection, hide_credentials(url))


def _migrate(connection: psycopg.Connection, name: str) -> None:
    version = _version(connection, name)
    steps: list[LiteralString | None]
    if version == 0:
        steps = [SCHEMA]
    else:
        steps = [MIGRATIONS.get(number) for number in range(version, SCHEMA_VERSION)]
    if version > SCHEMA_VERSION or None in steps:
        raise ConfigurationError(
            f"{name} has schema version {version}, this program needs {SCHEMA_VERSION}; "
            "use another database or another version of this program"
        )
    for step in steps:
        connection.execute(step or "")
    if steps:
        connection.execute(
            "INSERT INTO mail.settings (name, value) VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (VERSION, str(SCHEMA_VERSION)),
        )


def _version(connection: psycopg.Connection, name: str) -> int:
    """Return the version of the tables, 0 for none. Raises ConfigurationError if they belong to another program."""
    (is_there,) = connection.execute("SELECT to_regclass('mail.settings') IS NOT NULL").fetchone() or (False,)
    if is_there:
        row = connection.execute("SELECT value FROM mail.settings WHERE name = %s", (VERSION,)).fetchone()
        if row is not None:
            return int(row[0])
    (foreign,) = connection.execute(
        "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('mail')"
    ).fetchone() or (0,)
    if foreign:
        raise ConfigurationError(
            f"{name} has a schema named mail, with tables of another program; use another database"
        )
    return 0


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    """Connect for an operator: errors have PostgreSQL's message, which never contains a password."""
    name, parameters = hide_credentials(url), read(url)
    try:
        connection = psycopg.connect(**parameters)
    except psycopg.OperationalError as error:
        raise ConfigurationError(
            f"{name} can't be reached; are its address, user and password right, and does the database exist "
            f"(createdb)? PostgreSQL says: {one_line(error)}"
        ) from error
    try:
        with connection:
            yield connection
    except psycopg.Error as error:
        raise ConfigurationError(f"{name} can't be used: {one_line(error)}") from error
