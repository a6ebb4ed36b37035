"""The commands about mail of MAIL 2.0: `mail inbox list`, `open`, `reply`, `compose`, `trash`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import click

from mail.cli.command import Command, Namespace, option, positional
from mail.cli.output import Output, one_line
from mail.cli.session import Session, UsageError
from mail.cli.values import Integer
from mail.errors import MAILError

MESSAGE = positional("message_id", "The message, as the list shows it.", metavar="ID")
TAG = option("--tag", "tags", metavar="TAG", multiple=True, help="A tag, such as approve; may be repeated.")


def show_inbox(answer: Mapping[str, Any], output: Output) -> None:
    """Print a line per message."""
    rows = [
        (
            each["message_id"],
            "" if each["is_read"] else "unread",
            output.time(each["received_at"]),
            each["sender"],
            ", ".join(each["tags"]),
            each["subject"],
        )
        for each in answer["entries"]
    ]
    output.table(("message", "state", "received", "from", "tags", "subject"), rows, none="no mail")
    metadata = answer["metadata"]
    following = metadata.get("next_offset", metadata["offset"] + metadata["returned"])
    if output.is_terminal and following is not None and following < metadata["total"]:
        output.text(f"There may be more: --offset {following}", style="dim")


def show_message(message: Mapping[str, Any], output: Output) -> None:
    """Print a message."""
    for name in ("sender", "recipients", "sent_at", "tags", "reply_to", "subject"):
        value = message[name]
        if value:
            output.text(f"{name:<10}  {one_line(value if isinstance(value, str) else ', '.join(value))}")
    output.text("")
    output.answer(message["body"])


async def list_mail(session: Session, given: Namespace) -> None:
    """Print a part of the inbox."""
    unread = "true" if given.unread else None
    query = {
        "unread": unread,
        "tag": given.tag,
        "thread": given.thread,
        "limit": given.limit,
        "offset": given.offset,
    }
    answer = await session.client.ask_mail("GET", "/inbox", query)
    session.output.result(answer, lambda: show_inbox(answer, session.output))


async def open_mail(session: Session, given: Namespace) -> None:
    """Print a message, which is read from now on."""
    message = (await session.client.ask_mail("GET", _path_of(given)))["entry"]["message"]
    session.output.result(message, lambda: show_message(message, session.output))


async def reply(session: Session, given: Namespace) -> None:
    """Answer the sender of a message."""
    message = (await session.client.ask_mail("GET", _path_of(given)))["entry"]["message"]
    subject = message["subject"]
    subject = subject if subject.lower().startswith("re:") else f"Re: {subject}"[:256]
    await _send(session, [message["sender"]], given, subject, reply_to=message["message_id"])


async def compose(session: Session, given: Namespace) -> None:
    """Send a new message."""
    await _send(session, await _addresses(session, given.recipients), given, given.subject)


async def trash(session: Session, given: Namespace) -> None:
    """Move a message to the trash."""
    answer = await session.client.ask_mail("DELETE", _path_of(given))
    told = f"{given.message_id} is in the trash"
    session.output.result(answer["entry"], lambda: session.output.text(told))


def _path_of(given: Namespace) -> str:
    return f"/inbox/{quote(given.message_id, safe='')}"


async def _addresses(session: Session, given: Sequence[str]) -> list[str]:
    """Return addresses; one without a host gets the server's, and a bare name is that of a user. Raises UsageError."""
    from mail.mail2.addresses import Address

    found, host = list[str](), ""
    for text in given:
        with suppress(ValueError):
            found.append(str(Address.parse(text)))
            continue
        if not host:
            own = (await session.client.ask_mail("GET", "/auth/whoami"))["user_agent"]["user_agent"]
            host = own["host"]
        local = text.removesuffix(f"@{host}")
        local = local if ":" in local or "@" in local else f"user:{local}"
        try:
            found.append(str(Address.parse_local(local, host)))
        except ValueError as error:
            raise UsageError(f"inbox compose: {error}") from None
    return found


async def _send(session: Session, to: list[str], given: Namespace, subject: str, **fields: str) -> None:
    """Send a message by a draft, and delete that, also if the message is refused; print the message's id."""
    client, content = session.client, {"subject": subject, "body": given.body, "tags": list(given.tags)}
    draft = (await client.ask_mail("POST", "/drafts", body={**content, **fields}))["entry"]["draft"][
        "draft_id"
    ]
    try:
        sent = (await client.ask_mail("POST", f"/drafts/{draft}/send", body={"recipients": to}))["message"]
    finally:
        with suppress(MAILError):  # the draft has to stay while its owner is on hold
            await client.ask_mail("DELETE", f"/drafts/{draft}")
    session.output.result(sent, lambda: session.output.text(sent["message_id"]))


COMMANDS = (
    Command(
        name="inbox",
        shell_name="inbox list",
        summary="List your mail of MAIL 2.0, newest first.",
        handler=list_mail,
        arguments=(
            click.Option(["--unread"], is_flag=True, help="Only what you have not opened yet."),
            option("--tag", help="Only messages with this tag."),
            option("--thread", metavar="ID", help="Only messages of the thread that began with this one."),
            option("--limit", type=Integer(1, 100), default=20, help="The number of messages, at most."),
            option("--offset", type=Integer(0), default=0, help="The number of messages to leave out."),
        ),
    ),
    Command(
        shell_name="inbox open",
        summary="Show a message, which is read from now on.",
        handler=open_mail,
        arguments=(MESSAGE,),
    ),
    Command(
        shell_name="inbox reply",
        summary="Answer the sender of a message. Prints the new message's id.",
        details="The tags approve and reject decide calls of an agent that wait for your approval.",
        handler=reply,
        arguments=(MESSAGE, positional("body", "The answer.", metavar="TEXT"), TAG),
    ),
    Command(
        shell_name="inbox compose",
        summary="Send a message to addresses of MAIL 2.0. Prints its id.",
        details="Without @HOST, an address is one of this server; ann alone is user:ann.",
        handler=compose,
        arguments=(
            positional("recipients", "The addresses.", metavar="ADDRESS...", nargs=-1, required=True),
            option("--subject", required=True, help="The subject."),
            option("--body", metavar="TEXT", required=True, help="The text."),
            TAG,
        ),
    ),
    Command(
        shell_name="inbox trash",
        summary="Move a message to the trash.",
        handler=trash,
        arguments=(MESSAGE,),
    ),
)
