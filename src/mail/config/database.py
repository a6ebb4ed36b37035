"""The setting `database`: a path, a URL, `auto` or `none`."""

from urllib.parse import unquote

from mail.core.protocol.error_text import hide_credentials
from mail.core.task.documents import IN_MEMORY

AUTO = "auto"
"""`mail.db`, or `mail-<swarm>.db` where another swarm runs on that (`mail.adapters.sqlite.default_file`)."""

USUAL_FILE = "mail.db"

SQLITE = "sqlite:///"

SCHEMES = {
    SQLITE: "sqlite",
    "postgresql://": "postgres",
    "postgres://": "postgres",
    "dynamodb://": "dynamodb",
}
"""The engine of each scheme (`mail.bootstrap.backends`). `dynamodb://TABLE` uses the environment's account and
region.
"""


def read_database(setting: str) -> str:
    """Return the path of an SQLite file, `auto`, `:memory:` for `none`, or the URL of another database.

    Raises ValueError for an unknown engine. The message never repeats a URL: it may contain a password.
    """
    if setting.lower() == "none":
        return IN_MEMORY
    if setting.startswith(SQLITE):
        return unquote(setting.removeprefix(SQLITE)) or IN_MEMORY
    scheme, separator, rest = setting.partition("://")
    known = f"{scheme.partition('+')[0]}{separator}"  # postgresql+asyncpg:// names a driver, too
    if rest and known in SCHEMES:
        return known + rest
    if separator:
        raise ValueError(
            f"{scheme}:// is not a known kind of database; use a path, sqlite:///path, "
            "postgresql://user@host/database, dynamodb://table, or none"
        )
    if not setting:
        raise ValueError("must not be empty; use a path, sqlite:///path, or none to keep nothing")
    return setting


def engine_of(database: str) -> str:
    """Return the engine of a database, as `read_database` returns it."""
    return next((engine for scheme, engine in SCHEMES.items() if database.startswith(scheme)), "sqlite")


def hide_password(database: str) -> str:
    """Return the database as it may be shown: a URL of PostgreSQL without user, password and options."""
    return hide_credentials(database) if engine_of(database) == "postgres" else database
