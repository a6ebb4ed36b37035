"""Port of a durable exchange: the database that holds its mailboxes."""

from typing import Protocol

MailboxContents = tuple[list[str], list[str]]
"""The mail of a mailbox as JSON texts: the outbox, and the inbox grouped by sender."""


class MailboxStore(Protocol):
    """The database of one exchange, which several processes may use concurrently. Ids are text, mails JSON texts.

    Each change is atomic, even if the process dies. Each mail reaches each recipient exactly one time, and the mails
    of one sender arrive in order. An unregistered mailbox never comes back, and neither does its mail.

    All methods raise StoreUnavailable if the database can't be reached or is too busy; the change may have happened
    nevertheless.
    """

    async def register(self, owner: str) -> bool:
        """Create a mailbox; return False if the entity has one."""
        ...

    async def unregister(self, owner: str) -> MailboxContents | None:
        """Delete a mailbox; return its mail that no other call has taken, None if there is no mailbox."""
        ...

    async def contents(self, owner: str) -> MailboxContents | None:
        """Return the mail in a mailbox; None if there is no mailbox."""
        ...

    async def has(self, owner: str) -> bool:
        """Return whether an entity has a mailbox."""
        ...

    async def owners(self) -> list[str]:
        """Return the entities with a mailbox."""
        ...

    async def send(self, sender: str, recipient: str | None, mail_id: str, mail: str) -> bool:
        """Put a mail into the sender's outbox; return False without a mailbox. Raises PayloadTooLarge."""
        ...

    async def collect(self, owner: str | None) -> int | None:
        """Move the mail in the outbox of an entity, or of all, to the recipients' inboxes.

        Returns the number of mails newly delivered; None if the entity has no mailbox. Mail without a registered
        recipient is dropped.
        """
        ...

    async def receive(self, owner: str, sender: str | None) -> list[str]:
        """Return the mail in an inbox, of one sender or of all, grouped by sender."""
        ...

    async def pop(self, owner: str, sender: str) -> str | None:
        """Remove and return the oldest mail of a sender. No two callers get the same mail."""
        ...

    async def remove(self, owner: str, sender: str, mail_id: str) -> bool:
        """Remove a mail from an inbox; return whether it was there."""
        ...

    async def close(self) -> None:
        """Close the database."""
        ...
