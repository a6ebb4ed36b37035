"""Delivery: a message is stored in one write with the sender's outbox entry and, as far as they fit, all inbox entries.

The boxes that don't fit are in a row of `WORK`, which each further write shortens: so a process that dies leaves what
remains to be done, two that continue it file nothing twice, and an entry that its owner has deleted stays deleted.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence, Set
from dataclasses import asdict, replace
from datetime import datetime
from itertools import batched
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4, uuid5

from pydantic_core import to_json

from mail.auth.keys import digest
from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.core.task.task import TaskKey
from mail.errors import BadRequest, IdempotencyConflict, MAILError, PeerUnavailable, StoreUnavailable
from mail.mail2 import WORK
from mail.mail2.accounts import Accounts
from mail.mail2.addresses import Address
from mail.mail2.agents import Agents
from mail.mail2.boxes import TRIES, Quota, arrivals, release
from mail.mail2.lists import MAX_MEMBERS, MAX_NAMED, By, Lists
from mail.mail2.notices import Notices
from mail.mail2.records import (
    HELD,
    LEASE_SECONDS,
    MESSAGES,
    MORE,
    REFERENCES,
    REFUSED,
    Account,
    BoxName,
    Delivery,
    DraftRow,
    Held,
    Message,
    More,
    OutboxRow,
    Refused,
    Stamps,
    Threaded,
    Undelivered,
    box,
    held_of,
    own_ids,
)
from mail.mail2.webhooks import Webhooks

if TYPE_CHECKING:
    from mail.mail2.remotes import Remotes

logger = logging.getLogger(__name__)

OTHER_HOST = "mail to other hosts can't be sent from here"
NOBODY = "it reaches nobody but agents of this swarm"
NO_ACCOUNT = "this account does not exist"
FULL = "its inbox is full"
TAKEN = "another message has its id"
NESTED = "a list that is a member of a list gets no mail"

UNREACHED = "it does not reach all of its members"

MAX_REACHED = 4 * MAX_MEMBERS
"""The members of lists that a message reaches at most."""

MOST_BOXES, MOST_CALLED = 2_500, 1_600
"""The boxes and the agents that a row names at most, so that it and the number of rows fit into a write anywhere."""

TOO_MANY = (
    f"with this list, the lists that the message is sent to have more than {MAX_REACHED:,} members together"
)
NO_LIST, EMPTY = "this list does not exist", "this list has no members"
NOT_ALLOWED = "the policy of this list doesn't allow its sender to write to it"

REMOTE_SECONDS = 3 * 86_400.0
"""Seconds after which a host that can't be reached is given up."""

Take = Callable[[Message, str], Awaitable[TaskKey | str]]
"""Gives a message to an agent of the swarm, by its local address; returns the task that has it, or why none can."""


@value
class _Recipients:
    """Where a message goes.

    Attributes:
        boxes: the boxes that it gets into.
        owners: the accounts that these are of, each with the list by which it is addressed, or an empty text.
        tasks, unseen: as in `Delivery`.
        undelivered: those that it does not reach.
        is_sender_full: whether the outbox of its sender may have no more entries.
    """

    boxes: tuple[str, ...]
    owners: tuple[tuple[str, str], ...]
    tasks: tuple[str, ...]
    unseen: tuple[tuple[str, str], ...]
    undelivered: tuple[Undelivered, ...]
    is_sender_full: bool


def _is_host(destination: str) -> bool:
    """Return whether one of `Delivery.tasks` is another host, and no agent."""
    return destination.startswith("@")


class _Unreached:
    """Collects whom a message does not reach: recipients, and members of lists, unless these are too many.

    For members that the sender may not know, their list stands.
    """

    def __init__(self) -> None:
        self.found: dict[str, Undelivered] = {}
        self._members = 0

    def add(self, recipient: str, reason: str) -> None:
        self.found.setdefault(recipient, Undelivered(recipient, reason))

    def add_member(self, member: str, reason: str, of: str, *, is_seen: bool) -> None:
        self._members += 1
        if is_seen and self._members <= MAX_NAMED:
            self.add(member, reason)
        else:
            self.add(of, UNREACHED)


@value
class Deliveries:
    """Sends messages, and finishes what a process has left."""

    _rows: Rows
    _clock: Clock
    _stamps: Stamps
    _accounts: Accounts
    _lists: Lists
    _webhooks: Webhooks
    _host: str
    _agents: Agents
    _notices: Notices
    _quota: Quota
    _remotes: "Remotes | None"

    async def send(
        self,
        account: Account,
        draft: DraftRow,
        recipients: tuple[str, ...],
        tags: Sequence[str],
        key: str | None,
    ) -> tuple[Message, bool]:
        """Send a draft; return the message, whose delivery the database has, and whether something of it may be left.

        A repeated request with the same idempotency key returns the first message. Raises IdempotencyConflict if it
        differs from the first, and StorageFull.
        """
        message_id = str(uuid4() if key is None else uuid5(UUID(account.box), key))
        message = Message(
            message_id=message_id,
            sender=f"{account.key}@{self._host}",
            recipients=recipients,
            subject=draft.subject,
            body=draft.body,
            sent_at=self._stamps.now(),
            reply_to=draft.reply_to,
            tags=tuple(dict.fromkeys((*draft.tags, *tags))),
        )
        same = (message.recipients, message.tags, message.subject, message.body, message.reply_to)
        request = "" if key is None else digest(to_json(same).decode())
        place = (box("outbox", account.box), message_id)
        to = await self._resolve(message, outbox=place[0])
        if to.is_sender_full and (key is None or place not in await self._rows.read(place)):
            raise self._quota.error(account, "outbox")
        is_new, is_open = await self._file(message, account.box, to, message.sent_at, request=request)
        if not is_new:
            found = await self._rows.read((MESSAGES, message_id), place)
            if len(found) < 2 or OutboxRow.read(found[place]).digest != request:
                raise IdempotencyConflict("this Idempotency-Key was used for another message")
            return Message.read(found[MESSAGES, message_id]), True
        return message, is_open

    def check_foreign(self, message: Message, hosts: Set[str] | None) -> None:
        """Raise BadRequest for a message whose sender is of this host, or of none of these, unless they are None.

        Raises it also for one with an id of those that this host derives, which would be taken for its own mail.
        """
        host = Address.parse(message.sender).host
        if host == self._host:
            raise BadRequest(f"{message.sender} is of this host, and sends its mail with its own session")
        if message.message_id.startswith(own_ids(self._host)):
            raise BadRequest(f"only this host writes messages with ids like {message.message_id}")
        if hosts is not None and host not in hosts:
            raise BadRequest(f"{message.sender} is not of the host that you are registered with")

    async def receive(self, message: Message) -> tuple[Undelivered, ...]:
        """File a message of another host, once; return the recipients here that it does not reach, each time the same.

        If another message has its id, it reaches none.
        """
        local = tuple(each for each in message.recipients if Address.parse(each).host == self._host)
        to = await self._resolve(message, local)
        message_id = message.message_id
        row = (REFUSED, message_id)
        notes = [Write(row, Refused(to.undelivered).text, PutIf.ABSENT)] if to.undelivered else []
        if to.boxes or to.tasks:
            is_new, _ = await self._file(message, "", to, self._stamps.now(), notes=notes)
            if is_new:
                return to.undelivered
        found = await self._rows.read(row, text := (MESSAGES, message_id), count := (REFERENCES, message_id))
        if text in found and Message.read(found[text]).sender != message.sender:
            return tuple(Undelivered(each, TAKEN) for each in local)
        if row in found:
            return Refused.read(found[row]).undelivered
        return () if count in found else to.undelivered

    async def post(self, message: Message, notes: Sequence[Write]) -> tuple[Undelivered, ...]:
        """File mail of an agent of this host, once, in one write with notes; return whom it does not reach.

        If it reaches anybody, nobody is returned; else nothing is stored. Raises StoreUnavailable if a note can't be
        made now.
        """
        to = await self._resolve(message, is_limited=False)
        if not to.boxes and not any(map(_is_host, to.tasks)):
            return to.undelivered or tuple(Undelivered(each, NOBODY) for each in message.recipients)
        is_new, _ = await self._file(message, "", to, self._stamps.now(), notes=notes)
        if not is_new:
            row = (MESSAGES, message.message_id)
            if row not in await self._rows.read(row):
                raise StoreUnavailable("the thread was changed at the same time")
        return ()

    def can_finish(self, work: Delivery) -> bool:
        """Return whether this server has to do with what is left of a delivery, and not only those of other swarms."""
        others = replace(work, tasks=()).rest
        return others is not None or any(map(self._serves, work.tasks))

    def _serves(self, destination: str) -> bool:
        """Return whether this server can give messages to an agent, or to another host."""
        return self._remotes is not None if _is_host(destination) else self._agents.serves(destination)

    async def finish(self, message_id: str, take: Take | None = None) -> AsyncGenerator[str]:
        """File what is left of a delivery; yield the names of the calls of webhooks that have to be made then.

        `take` gives a message to an agent of the swarm; agents of other swarms are left to their servers. An agent or
        a host that can't take it now keeps it from nobody else: the error of an agent is raised in the end, and a host
        is tried again when the row is due.
        """
        row = (WORK, message_id)
        failed: dict[str, MAILError] = {}
        before, tries = "", 0
        while True:
            found = await self._rows.read(row, (MESSAGES, message_id))
            if row not in found:
                return
            before, tries = found[row], tries + 1 if found[row] == before else 0
            if tries == TRIES + len(failed):
                break  # the row is due again later
            await self._lists.pacer.pause(len(found[row]))
            work = Delivery.read(found[row])
            if (MESSAGES, message_id) not in found:  # all have deleted it
                more = [
                    *_more(message_id, "boxes", work.more_boxes),
                    *_more(message_id, "agents", work.more_agents),
                ]
                await self._rows.write([Write(each, None) for each in (row, *more)])
                return
            message = Message.read(found[MESSAGES, message_id])
            if not work.left and (work.more_boxes or (work.more_agents and not work.agents)):
                await self._take_more(work, row, found[row])
                continue
            if not work.left and work.agents:
                (agent, by_list), *agents = work.agents
                calls = await self._webhooks.calls(message_id, agent, by_list)
                rest = replace(work, agents=tuple(agents)).rest
                if await self._rows.write([*calls, Write(row, rest, found[row])]):
                    for each in calls:
                        yield each.key[1]
                continue
            if not work.left:
                ours = [each for each in work.tasks if self._serves(each) and each not in failed]
                if not ours:
                    break
                try:
                    if _is_host(ours[0]):
                        await self._hand_over(message, work, ours[0], found[row])
                    else:
                        assert take is not None
                        await self._give(message, work, ours[0], found[row], take)
                except MAILError as error:
                    failed[ours[0]] = error
                continue
            chunk, left = self._split(work.left)
            rest = replace(work, left=left).rest
            entries = arrivals(message, self._stamps.now(), self._notices.sender, chunk, work.thread)
            writes = [*entries, Write(row, rest, found[row])]
            place = (box("outbox", work.outbox), message_id)
            is_filed = work.outbox and not (left or work.more_boxes or work.tasks)
            if is_filed and (sent := await OutboxRow.find(self._rows, place)) is not None:
                entry = self._delivered(sent[0], self._stamps.now())
                writes.append(Write(place, entry.text, sent[1]))
            await self._rows.write(writes)  # if another process was faster, the row says what is left
        for to, failure in failed.items():
            if not isinstance(failure, PeerUnavailable):
                raise failure
            logger.warning("the message %s has to wait for %s: %s", message_id, to, failure)

    async def _take_more(self, work: Delivery, row: tuple[str, str], text: str) -> None:
        """Take boxes or else agents of a row of `MORE` into the row of `WORK`."""
        count = work.more_boxes or work.more_agents
        key = _more(row[1], "boxes" if work.more_boxes else "agents", count)[-1]
        if (found := await More.find(self._rows, key)) is None:
            return  # another process was faster
        more, _ = found
        if work.more_boxes:
            work = replace(work, left=more.left, more_boxes=count - 1)
        else:
            work = replace(work, agents=more.agents, more_agents=count - 1)
        await self._rows.write([Write(row, work.text, text), Write(key, None)])

    async def known(self, message_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the summaries of those messages that exist."""
        keys = dict.fromkeys((MESSAGES, each) for each in message_ids)
        found = await self._rows.read(*keys)
        return [summary(Message.read(found[key])) for key in keys if key in found]

    async def _give(self, message: Message, work: Delivery, agent: str, text: str, take: Take) -> None:
        """Give a message to one of the agents that it still has to get to."""
        taken = await take(message, agent)
        if isinstance(taken, TaskKey):
            row = HELD, f"{held_of(taken)}{message.message_id} {agent}"
            noted = Write(row, Held(taken.instance, taken.task_id, counts=True).text, PutIf.PRESENT)
            await self._note_given(message, work, agent, text, (), noted)
            return
        failed = Undelivered(f"{agent}@{self._host}", taken)
        if (of := dict(work.unseen).get(agent)) is not None:
            failed = Undelivered(of, UNREACHED)
        await self._note_given(message, work, agent, text, (failed,))

    async def _hand_over(self, message: Message, work: Delivery, to: str, text: str) -> None:
        """Hand a message over to one of the other hosts that it still has to get to."""
        assert self._remotes is not None
        try:
            failed = await self._remotes.hand_over(message, to[1:])
        except PeerUnavailable as error:
            age = self._clock.now() - datetime.fromisoformat(message.sent_at)
            if age.total_seconds() < REMOTE_SECONDS:
                raise
            failed = self._remotes.all_at(message, to[1:], error.detail)
        await self._note_given(message, work, to, text, failed)

    async def _note_given(
        self,
        message: Message,
        work: Delivery,
        to: str,
        text: str,
        failed: tuple[Undelivered, ...],
        held: Write | None = None,
    ) -> None:
        """Note that a message was given to an agent or a host, or whom it does not reach there.

        If it isn't `held` from now on, it has one reference less.
        """
        left = tuple(each for each in work.tasks if each != to)
        row, place = (WORK, message.message_id), (box("outbox", work.outbox), message.message_id)
        notes = [held] if held else await release(self._rows, {message.message_id: 1})
        writes = [Write(row, replace(work, tasks=left).rest, text), *notes]
        sent = await OutboxRow.find(self._rows, place) if work.outbox else None
        if sent is not None:
            entry, before = sent
            if new := tuple(each for each in failed if each not in entry.undelivered):
                entry = replace(entry, undelivered=(*entry.undelivered, *new))
                writes += self._notify(message, work.outbox, new)
            if not left:
                entry = self._delivered(entry, self._stamps.now())
            writes.append(Write(place, entry.text, before))
        elif failed:
            await self._tell_abroad(message, failed)
        # if a process was faster, or the task is deleted, the rows say what is left
        await self._rows.write(writes)

    async def _tell_abroad(self, message: Message, failed: tuple[Undelivered, ...]) -> None:
        """Send the sender of another host a notice of whom a message does not reach here, once."""
        for each in failed:
            logger.warning(
                "the message %s did not reach %s: %s", message.message_id, each.recipient, each.reason
            )
        sender = Address.parse(message.sender)
        if sender.host != self._host and sender.kind != "daemon" and self._remotes is not None:
            name, subject, body = _what_failed(message, failed)
            notice = self._notices.make(name, message.sender, subject, body, message.message_id)
            to = _Recipients((), (), (f"@{sender.host}",), (), (), is_sender_full=False)
            await self._file(notice, "", to, notice.sent_at)

    async def _file(
        self,
        message: Message,
        outbox: str,
        to: _Recipients,
        received: str,
        *,
        request: str = "",
        notes: Sequence[Write] = (),
    ) -> tuple[bool, bool]:
        """Store a message with what it brings about, and notes.

        Return whether that was done, as there is none of its id, and whether some of its delivery is left.
        """
        message_id = message.message_id
        references = len(to.boxes) + len(to.tasks) + bool(outbox)
        thread = await self._thread_of(message, outbox or next(iter(to.boxes), ""))
        writes = [
            Write((MESSAGES, message_id), message.text, PutIf.ABSENT),
            Write((REFERENCES, message_id), str(references), PutIf.ABSENT),
            *notes,
        ]
        taken = 0
        if outbox:
            notified = self._notify(message, outbox, to.undelivered)
            taken = 2 if notified else 1
            writes += notified
        chunk, left = self._split(to.boxes, taken)
        if outbox:
            size = len(message.body)
            sent = OutboxRow(
                message.recipients,
                message.subject,
                size,
                message.sent_at,
                undelivered=to.undelivered,
                tags=message.tags,
                thread=thread,
            )
            is_filed = not (left or to.tasks)
            sent = replace(self._delivered(sent, message.sent_at) if is_filed else sent, digest=request)
            writes.append(Write((box("outbox", outbox), message_id), sent.text, PutIf.ABSENT, sent.times))
        agents = await self._webhooks.called_for(to.owners)
        if is_open := bool(left or agents or to.tasks):
            due = self._clock.now().timestamp() + LEASE_SECONDS
            boxes = [More(left=each) for each in batched(left[MOST_BOXES:], MOST_BOXES)]
            called = [More(agents=each) for each in batched(agents[MOST_CALLED:], MOST_CALLED)]
            counts = len(boxes), len(called)
            first = left[:MOST_BOXES], agents[:MOST_CALLED], to.tasks, thread, to.unseen
            work = Delivery(due, outbox, *first, *counts)
            writes.append(Write((WORK, message_id), work.text, PutIf.ABSENT))
            keys = (*_more(message_id, "boxes", counts[0]), *_more(message_id, "agents", counts[1]))
            more = zip(keys, (*boxes, *called), strict=True)
            writes += [Write(key, each.text, PutIf.ABSENT) for key, each in more]
        entries = arrivals(message, received, self._notices.sender, chunk, thread)
        return await self._rows.write([*writes, *entries]), is_open

    async def _thread_of(self, message: Message, of: str) -> str:
        """Return the id of the first message of a thread, as boxes know it: of the sender, or else of a recipient."""
        if message.reply_to is None:
            return message.message_id
        names: tuple[BoxName, ...] = ("inbox", "outbox", "trash")
        known = await self._rows.read(*((box(name, of), message.reply_to) for name in names))
        return next(
            (Threaded.read(text).thread or message.reply_to for text in known.values()), message.message_id
        )

    def _split(self, boxes: tuple[str, ...], taken: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the boxes that fit into one write beside `taken` other entries, and the rest."""
        room = self._rows.write_limit - taken
        return boxes[:room], boxes[room:]

    def _delivered(self, sent: OutboxRow, now: str) -> OutboxRow:
        """Return an outbox entry whose message is in all inboxes that it can be in."""
        return (
            sent if sent.undelivered else replace(sent, delivered_at=now, delivered_by=self._notices.sender)
        )

    def _notify(self, message: Message, outbox: str, undelivered: Sequence[Undelivered]) -> list[Write]:
        """Return what tells a sender whom a message does not reach; who writes to the sender of notices isn't told."""
        if all(each.recipient == self._notices.sender for each in undelivered):
            return []
        name, subject, body = _what_failed(message, undelivered)
        return self._notices.writes(name, message.sender, outbox, subject, body, message.message_id)

    async def _resolve(
        self,
        message: Message,
        recipients: tuple[str, ...] | None = None,
        *,
        is_limited: bool = True,
        outbox: str = "",
    ) -> _Recipients:
        """Return where a message goes: once into each box, however often its owner is addressed.

        `recipients` are those of its recipients that matter here; None for all. If it `is_limited`, it doesn't reach
        inboxes that are full. `outbox` is the place of the sender's, if that is here.
        """
        sender = Address.parse(message.sender)
        by = By(message.sender, is_admin=sender.kind == "admin" and sender.host == self._host)
        unreached = _Unreached()
        owners: dict[str, str] = {}
        by_list: dict[str, str] = {}
        lists: dict[str, str] = {}
        unseen: dict[str, str] = {}
        hosts: dict[str, list[str]] = {}
        for text in dict.fromkeys(message.recipients if recipients is None else recipients):
            address = Address.parse(text)
            if address.host != self._host and self._remotes is not None:
                hosts.setdefault(address.host, []).append(text)
            elif address.host != self._host:
                unreached.add(text, OTHER_HOST)
            else:
                (lists if address.kind == "list" else owners)[address.key] = text
        if self._remotes is not None and hosts:
            for host, reason in (await self._remotes.unknown(hosts)).items():
                for text in hosts.pop(host):
                    unreached.add(text, reason)
        room = MAX_REACHED
        async for key, known in self._lists.each(lists):
            text = lists[key]
            if known is None or not by.may_post(known):
                unreached.add(text, NOT_ALLOWED if known is not None and by.sees(known) else NO_LIST)
                continue
            if len(known.members) > room:
                unreached.add(text, TOO_MANY)
                continue
            room -= len(known.members)
            if not known.members:
                unreached.add(text, EMPTY)
            if not (is_seen := by.sees(known)):
                unseen[key] = text
            for member in known.members:
                address = Address.parse(member)
                if address.host == self._host and address.kind != "list":
                    if address.key not in owners:
                        owners[address.key], by_list[address.key] = member, key
                else:
                    reason = NESTED if address.kind == "list" else OTHER_HOST
                    unreached.add_member(member, f"{reason} (a member of {key})", text, is_seen=is_seen)
        names = self._agents.names()
        accounts = await self._accounts.find(*(key for key in owners if key not in names))
        inboxes = {key: box("inbox", each.box) for key, each in accounts.items()}
        full = await self._quota.full(*filter(None, (outbox, *inboxes.values()))) if is_limited else set()
        for key, text in owners.items():
            if key in names or (key in accounts and inboxes[key] not in full):
                continue
            reason = FULL if key in accounts else NO_ACCOUNT
            if (of := by_list.get(key)) is None:
                unreached.add(text, reason)
            else:
                unreached.add_member(text, reason, lists[of], is_seen=of not in unseen)
        found = [accounts[key] for key in owners if key in accounts and inboxes[key] not in full]
        return _Recipients(
            tuple(account.box for account in found),
            tuple((each.key, by_list.get(each.key, "")) for each in found),
            (*(key for key in owners if key in names), *(f"@{host}" for host in hosts)),
            tuple((key, unseen[of]) for key, of in by_list.items() if key in names and of in unseen),
            tuple(unreached.found.values()),
            outbox in full,
        )


def _more(message_id: str, of: Literal["boxes", "agents"], count: int) -> list[tuple[str, str]]:
    """Return the rows of `MORE` of a delivery; the last one is taken first."""
    return [(MORE, f"{message_id} {of} {number}") for number in range(count)]


def _what_failed(message: Message, undelivered: Sequence[Undelivered]) -> tuple[str, str, str]:
    """Return the name, subject and body of a notice of whom a message does not reach."""
    reasons = "\n".join(f"{each.recipient}: {each.reason}" for each in undelivered)
    return (
        f"undelivered:{message.message_id}:{reasons}",
        f"Undelivered: {message.subject}",
        f"Your message did not reach all of its recipients.\n\n{reasons}",
    )


def summary(message: Message) -> dict[str, Any]:
    """Return what a list of messages shows of one."""
    shown = asdict(message)
    names = ("message_id", "sender", "recipients", "subject", "sent_at")
    return {**{name: shown[name] for name in names}, "body_size": len(message.body)}
