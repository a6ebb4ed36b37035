"""What a database setting means: a path, a URL, or `none`."""

from urllib.parse import unquote

IN_MEMORY = ":memory:"
"""SQLite's own name for a database that ends with the process."""

SQLITE = "sqlite:///"
DYNAMODB = "dynamodb://"
"""Names a table, in the account and region of the environment: `dynamodb://TABLE`."""

ENGINES_TO_COME = {"postgresql": "PostgreSQL", "postgres": "PostgreSQL"}


def read_database(setting: str) -> str:
    """What the setting names: the path of an SQLite file, `:memory:` for `none`, or a `dynamodb://` table.

    Raises ValueError for an engine that isn't there. The message never repeats a URL: it may hold a password.
    """
    if setting.lower() == "none":
        return IN_MEMORY
    if setting.startswith(SQLITE):
        return unquote(setting.removeprefix(SQLITE)) or IN_MEMORY
    scheme, separator, rest = setting.partition("://")
    if f"{scheme}{separator}" == DYNAMODB and rest:
        return setting
    if separator:
        engine = ENGINES_TO_COME.get(scheme.lower())
        problem = (
            f"{engine} isn't available in this version" if engine else f"{scheme}:// is no known database"
        )
        raise ValueError(f"{problem}; use a path, sqlite:///path, dynamodb://table, or none")
    if not setting:
        raise ValueError("must not be empty; use a path, sqlite:///path, or none to keep nothing")
    return setting
