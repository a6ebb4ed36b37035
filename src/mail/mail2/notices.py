"""Notices: mail of the host itself, by which it says what has happened. They are never answered."""

from mail.core.task.documents import PutIf
from mail.core.task.rows import Write
from mail.mail2.boxes import arrivals
from mail.mail2.records import MESSAGES, REFERENCES, Message, Stamps, own_id

POSTMASTER = "daemon:mail"
"""The sender of notices. It has no account."""


class Notices:
    """Makes notices of a host.

    Attributes:
        sender: the address that they come from.
    """

    def __init__(self, stamps: Stamps, host: str) -> None:
        self._stamps = stamps
        self._host = host
        self.sender = f"{POSTMASTER}@{host}"

    def make(self, name: str, to: str, subject: str, body: str, answers: str | None = None) -> Message:
        """Return a notice, whose id derives from `name`."""
        return Message(
            message_id=own_id(self._host, name),
            sender=self.sender,
            recipients=(to,),
            subject=subject[:256],
            body=body[:65_535],
            sent_at=self._stamps.now(),
            reply_to=answers,
        )

    def writes(
        self, name: str, to: str, of: str, subject: str, body: str, answers: str | None = None
    ) -> list[Write]:
        """Return what files a notice, once: its id derives from `name`.

        `of` is the box of the address `to`, `answers` the id of the message that it is about.
        """
        notice = self.make(name, to, subject, body, answers)
        thread = answers or notice.message_id
        return [
            Write((MESSAGES, notice.message_id), notice.text, PutIf.ABSENT),
            Write((REFERENCES, notice.message_id), "1", PutIf.ABSENT),
            *arrivals(notice, notice.sent_at, self.sender, (of,), thread),
        ]
