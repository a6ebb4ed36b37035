"""What `DurableExchange` needs of a database, in plain values: ids are text, and a mail is the JSON text of one."""

from typing import Protocol

Contents = tuple[list[str], list[str]]
"""What is in a mailbox: the outbox and the inbox, mails in their order; those of the inbox are grouped by sender."""


class MailboxStore(Protocol):
    """The mailboxes of one exchange, which several processes may use at once.

    Each change happens as a whole or not at all, also where the process dies. Each mail reaches each of its
    recipients once, and the mail of one sender in the order in which it was sent. A mailbox that was
    unregistered never comes back, nor does what was in it.

    All methods raise StoreUnavailable where the database can't be reached or is too busy; what they were to
    change may have changed then.
    """

    async def register(self, owner: str) -> bool:
        """Give an entity a mailbox; returns whether it had none."""
        ...

    async def unregister(self, owner: str) -> Contents | None:
        """Take an entity's mailbox away; returns what was in it and nobody else has got, None if there was none."""
        ...

    async def contents(self, owner: str) -> Contents | None:
        """What is in a mailbox, None if there is none."""
        ...

    async def has(self, owner: str) -> bool:
        """Whether an entity has a mailbox."""
        ...

    async def owners(self) -> list[str]:
        """Who has a mailbox."""
        ...

    async def send(self, sender: str, recipient: str | None, mail_id: str, mail: str) -> bool:
        """Put a mail into the sender's outbox; returns whether there is one. Raises PayloadTooLarge."""
        ...

    async def collect(self, owner: str | None) -> int | None:
        """Move what is in the outbox of an entity, or of all, to the recipients' inboxes.

        Returns how many mails have reached somebody and had not before; None where the entity has no mailbox. Mail
        for nobody is dropped.
        """
        ...

    async def receive(self, owner: str, sender: str | None) -> list[str]:
        """The mail in an inbox, of one sender or of all, grouped by sender."""
        ...

    async def pop(self, owner: str, sender: str) -> str | None:
        """Take the oldest mail of a sender out of an inbox. No two callers ever get the same."""
        ...

    async def remove(self, owner: str, sender: str, mail_id: str) -> bool:
        """Take a mail out of an inbox; returns whether it was there."""
        ...

    async def close(self) -> None:
        """Let go of the database."""
        ...
