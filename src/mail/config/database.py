"""What a database setting means: a path, a URL, or `none`."""

from urllib.parse import unquote

from mail.core.protocol.redact import hide_credentials

IN_MEMORY = ":memory:"
"""SQLite's own name for a database that ends with the process."""

SQLITE = "sqlite:///"
DYNAMODB = "dynamodb://"
"""Names a table, in the account and region of the environment: `dynamodb://TABLE`."""

POSTGRES = ("postgresql://", "postgres://")
"""A database in PostgreSQL, as its own programs write it: `postgresql://user:password@host:port/database`."""


def read_database(setting: str) -> str:
    """What the setting names: the path of an SQLite file, `:memory:` for `none`, or the URL of another database.

    Raises ValueError for an engine that isn't there. The message never repeats a URL: it may hold a password.
    """
    if setting.lower() == "none":
        return IN_MEMORY
    if setting.startswith(SQLITE):
        return unquote(setting.removeprefix(SQLITE)) or IN_MEMORY
    scheme, separator, rest = setting.partition("://")
    if rest and f"{scheme}{separator}" in (DYNAMODB, *POSTGRES):
        return setting
    if separator:
        raise ValueError(
            f"{scheme}:// is no known database; use a path, sqlite:///path, postgresql://user@host/database, "
            "dynamodb://table, or none"
        )
    if not setting:
        raise ValueError("must not be empty; use a path, sqlite:///path, or none to keep nothing")
    return setting


def hide_password(database: str) -> str:
    """The database as it may be shown: of a URL of PostgreSQL, without user, password and options."""
    return hide_credentials(database) if database.startswith(POSTGRES) else database
