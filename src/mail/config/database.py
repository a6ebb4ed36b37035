"""What a database setting means: a path, a URL, or `none`."""

from urllib.parse import unquote

IN_MEMORY = ":memory:"
"""SQLite's own name for a database that ends with the process."""

SQLITE = "sqlite:///"
ENGINES_TO_COME = {"postgresql": "PostgreSQL", "postgres": "PostgreSQL", "dynamodb": "DynamoDB"}


def read_database(setting: str) -> str:
    """The SQLite file that the setting names: its path, or `:memory:` for `none`.

    Raises ValueError for an engine that isn't there. The message never repeats a URL: it may hold a password.
    """
    if setting.lower() == "none":
        return IN_MEMORY
    if setting.startswith(SQLITE):
        return unquote(setting.removeprefix(SQLITE)) or IN_MEMORY
    scheme, separator, _ = setting.partition("://")
    if separator:
        engine = ENGINES_TO_COME.get(scheme.lower())
        problem = (
            f"{engine} isn't available in this version" if engine else f"{scheme}:// is no known database"
        )
        raise ValueError(f"{problem}; use a path, sqlite:///path, or none to keep nothing")
    if not setting:
        raise ValueError("must not be empty; use a path, sqlite:///path, or none to keep nothing")
    return setting
