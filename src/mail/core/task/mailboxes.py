"""Names of mailboxes: an agent's is its name, that of its copy `name~1`, a peer's `@swarm`, a webhook's `!id`.

`!cancelled` is that of the calls that are cancelled, or whose results servers are asked for, and `!@swarm` that of the
tasks at a peer whose state is polled.
"""

from collections.abc import Iterable
from operator import itemgetter

_PEER_MARK = "@"
_HOOK_MARK = "!"
_COPY_MARK = "~"
_OUTBOUND_MARKS = frozenset((_PEER_MARK, _HOOK_MARK))
_mark_of = itemgetter(slice(1))

ALL_PEERS = _PEER_MARK
"""The mailbox for mail to every known swarm; a worker copies such mail to the mailbox of each."""


CANCELLED_CALLS = f"{_HOOK_MARK}cancelled"
"""The mailbox of the calls that are to be cancelled or asked about; no webhook has this id."""


def peer_mailbox(swarm: str) -> str:
    """Return the mailbox for mail to a swarm; it can't clash, as agent names contain no `@`."""
    return _PEER_MARK + swarm


def peer_of(mailbox: str) -> str | None:
    """Return the swarm that a mailbox belongs to: empty for `ALL_PEERS`, None for an agent's."""
    return mailbox[len(_PEER_MARK) :] if mailbox.startswith(_PEER_MARK) else None


def poll_mailbox(swarm: str) -> str:
    """Return the mailbox whose turns poll the tasks at a peer; it can't clash, as no webhook has such an id."""
    return f"{_HOOK_MARK}{_PEER_MARK}{swarm}"


def polled_by(mailbox: str) -> str | None:
    """Return the swarm whose tasks the turns of a mailbox poll; None for any other mailbox."""
    return peer_of(mailbox[len(_HOOK_MARK) :]) if mailbox.startswith(_HOOK_MARK) else None


def hook_mailbox(hook_id: str) -> str:
    """Return the mailbox of a webhook; it can't clash, as agent names don't begin with `!`."""
    return _HOOK_MARK + hook_id


def hook_of(mailbox: str) -> str | None:
    """Return the id of the webhook that a mailbox belongs to; None for any other mailbox."""
    if not has_no_messages(mailbox) or mailbox == CANCELLED_CALLS or polled_by(mailbox) is not None:
        return None
    return mailbox[len(_HOOK_MARK) :]


def has_no_messages(mailbox: str) -> bool:
    """Return whether what waits in a mailbox is no message: a webhook's, that of cancelled calls, or of polls."""
    return mailbox.startswith(_HOOK_MARK)


def copies_of(agent: str, count: int) -> tuple[str, ...]:
    """Return the mailboxes of an agent's copies; they can't clash, as agent names contain no `~`."""
    return tuple(f"{agent}{_COPY_MARK}{n}" for n in range(1, count + 1))


def agent_of(mailbox: str) -> str:
    """Return the agent of which a mailbox is a copy's; any other mailbox, and an address elsewhere, as it is."""
    return mailbox if _COPY_MARK not in mailbox or "@" in mailbox else mailbox.partition(_COPY_MARK)[0]


def goes_out(mailbox: str) -> bool:
    """Return whether a mailbox leads outside; such mail is delivered even when the task has stopped."""
    return _mark_of(mailbox) in _OUTBOUND_MARKS


def is_sent(mailbox: str) -> bool:
    """Return whether what leads outside is sent by the server, and not by the swarm's own code."""
    return goes_out(mailbox) and mailbox != CANCELLED_CALLS


def any_goes_out(mailboxes: Iterable[str]) -> bool:
    """Return whether any of the mailboxes leads outside."""
    return not _OUTBOUND_MARKS.isdisjoint(map(_mark_of, mailboxes))
