"""Built-in tokens, for servers without an authentication service: random text, kept only as its digest."""

import secrets

from mail.auth.keys import Caller, digest
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.documents import CallerRole, StoredToken
from mail.errors import Unauthenticated

TOKEN_BYTES = 32


def new_token(role: CallerRole) -> str:
    """Fresh text of a token. The prefix lets people and secret scanners tell what it is."""
    return f"mail_{role}_{secrets.token_urlsafe(TOKEN_BYTES)}"


async def issue_token(records: ServerDocuments, caller: Caller, clock: Clock = SYSTEM_CLOCK) -> str:
    """Let whoever has the returned text call as `caller`. It can't be read again later."""
    text = new_token(caller.role)
    created = clock.now().isoformat()
    await records.add_token(StoredToken(digest=digest(text), role=caller.role, id=caller.id, created=created))
    return text


class TokenAuthenticator:
    """`Authenticator` over the tokens that this server has issued itself."""

    def __init__(self, records: ServerDocuments) -> None:
        self._records = records

    async def authenticate(self, bearer: str) -> Caller:
        record = await self._records.find_token(digest(bearer))
        if record is None:
            raise Unauthenticated("the API key is not valid; ask this server's operator for one")
        return Caller(record.role, record.id)
