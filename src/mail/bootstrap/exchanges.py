"""Which database an exchange is kept in, by its URL."""

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from mail.adapters.aws.client import Aws
from mail.config.database import DYNAMODB, IN_MEMORY, SQLITE
from mail.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from mail.adapters.aws.exchange import DynamoDBMailboxes
    from mail.adapters.sqlite.exchange import SQLiteMailboxes

OPTIONS = {SQLITE: ("exchange",), DYNAMODB: ("exchange", "region", "endpoint_url")}
"""What may follow the `?` of a URL."""


async def open_mailboxes(url: str) -> "SQLiteMailboxes | DynamoDBMailboxes":
    """The mailboxes at a URL (see `mail.exchange.open_exchange`), opened. Raises ConfigurationError."""
    place, _, query = url.partition("?")
    if place.startswith(SQLITE):
        return await _open_sqlite(unquote(place.removeprefix(SQLITE)), **_options(SQLITE, query))
    if place.startswith(DYNAMODB) and place != DYNAMODB:
        return await _open_dynamodb(place.removeprefix(DYNAMODB), **_options(DYNAMODB, query))
    raise ConfigurationError("an exchange is opened by sqlite:///path.db or dynamodb://table")


def _options(kind: str, query: str) -> dict[str, str]:
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError as error:
        raise ConfigurationError(f"{kind}…: what follows the ? is not of the form name=value") from error
    for name in given:
        if name not in OPTIONS[kind]:
            raise ConfigurationError(
                f"{kind}…: there is no option {name!r}; there are: {', '.join(OPTIONS[kind])}"
            )
    return given


async def _open_sqlite(path: str, exchange: str = "") -> "SQLiteMailboxes":
    from mail.adapters.sqlite.exchange import SQLiteMailboxes

    mailboxes = SQLiteMailboxes(path or IN_MEMORY, exchange)
    await mailboxes.open()
    return mailboxes


async def _open_dynamodb(
    table: str, exchange: str = "", region: str = "", endpoint_url: str = ""
) -> "DynamoDBMailboxes":
    from mail.adapters.aws.exchange import DynamoDBMailboxes

    if endpoint_url and urlsplit(endpoint_url).scheme not in ("http", "https"):
        raise ConfigurationError(f"{DYNAMODB}{table}: endpoint_url is no http(s) URL")
    mailboxes = DynamoDBMailboxes(Aws(region, endpoint_url).client("dynamodb"), table, exchange)
    try:
        await mailboxes.open()
    except StoreUnavailable as error:
        await mailboxes.close()
        raise ConfigurationError(f"{DYNAMODB}{table} can't be used: {error.__cause__ or error}") from error
    except ImportError as error:
        await mailboxes.close()
        raise ConfigurationError(f"{DYNAMODB}{table} needs {error.name}: pip install 'mail[aws]'") from error
    return mailboxes
