"""Built-in tokens, for servers without an authentication service. Only their digests are stored."""

import secrets

from mail.auth.keys import Caller, digest
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.documents import CallerRole, StoredToken
from mail.errors import Unauthenticated

TOKEN_BYTES = 32


def new_token(role: CallerRole) -> str:
    """Return a new token. Its prefix identifies it to readers and secret scanners."""
    return f"mail_{role}_{secrets.token_urlsafe(TOKEN_BYTES)}"


async def issue_token(documents: ServerDocuments, caller: Caller, clock: Clock = SYSTEM_CLOCK) -> str:
    """Issue a token for a caller. Only its digest is stored, so it can't be shown again."""
    text = new_token(caller.role)
    created = clock.now().isoformat()
    await documents.add_token(
        StoredToken(digest=digest(text), role=caller.role, id=caller.id, created=created)
    )
    return text


class TokenAuthenticator:
    """An `Authenticator` over the tokens that this server has issued."""

    def __init__(self, documents: ServerDocuments) -> None:
        self._documents = documents

    async def authenticate(self, bearer: str) -> Caller:
        token = await self._documents.find_token(digest(bearer))
        if token is None:
            raise Unauthenticated(
                "the API key is not valid; its operator creates one where the server runs: mail token create"
            )
        return Caller(token.role, token.id)
