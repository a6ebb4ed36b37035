"""URLs of PostgreSQL databases, read into the parameters of libpq."""

from typing import Any

from mail.errors import ConfigurationError

DEFAULTS: dict[str, str | int] = {
    "application_name": "mail",
    "connect_timeout": 5,
    "target_session_attrs": "read-write",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Defaults for what the URL doesn't set: connect to a primary, and detect a failed network within a minute."""


def read(url: str) -> dict[str, Any]:
    """Return the parameters of libpq in the URL, over the defaults.

    Raises ConfigurationError for an invalid URL. The message repeats neither the URL nor the message of libpq: a
    password with a `/` in it looks like a port.
    """
    from psycopg import ProgrammingError  # imported late: psycopg may not be installed
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
    except ProgrammingError:
        given = {}
    ports = str(given.get("port", "")).split(",")
    names = (str(given.get(name, "")) for name in ("host", "dbname"))
    is_sound = all(port.isdecimal() or not port for port in ports) and not any("@" in name for name in names)
    if not given or not is_sound:
        raise ConfigurationError(
            "the URL of the PostgreSQL database can't be read: it is postgresql://user:password@host:port/database, "
            "and whatever is no letter or digit in the password is percent-encoded (@ is %40, / is %2F); or leave the "
            "password out, and set PGPASSWORD"
        )
    return {**DEFAULTS, **given}
