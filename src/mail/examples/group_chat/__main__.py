"""Show a chat of a person and three agents in the terminal: a fixed conversation, without input."""

import argparse
import asyncio

from mail.examples.group_chat.chat import CHANNEL, HOST, PERSON, QUESTION, GroupChat


async def main() -> None:
    """Write to the host, to everyone, and to a guest."""
    async with GroupChat.open() as chat:
        for text, to, channel in (
            ("Please plan a dinner.", HOST, None),
            (QUESTION, None, "for Paula"),
            (QUESTION, "Gina", "in private"),
            ("Good night, everyone!", None, CHANNEL),
        ):
            print(f"{PERSON} → {to or 'all'}{f' [{channel}]' if channel else ''}: {text}")
            for mail in await chat.say(text, to, channel):
                where = f" [{mail.channel}]" if mail.channel else ""
                recipient = "all" if mail.is_broadcast else PERSON
                print(f"    {chat.name(mail.sender)} → {recipient}{where}: {mail.content}")


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m mail.examples.group_chat", description=__doc__).parse_args()
    asyncio.run(main())
