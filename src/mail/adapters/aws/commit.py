"""A change of a task as one transaction, with its overflow.

The writes of a transaction cost double, in whole KB per item. So a message that waits alone in its task stands in the
item of the task, if that remains within its KB: then it need not be put and deleted, and is there when its turn is
opened.

Texts too large for an item go to the bucket before the transaction. If there are more messages than a transaction has
room for, the surplus is *staged*: written before it, each with the id of the commit and the key of its events. A staged
message is valid if that item exists with that id; otherwise it is a leftover of a failed commit. The same is true of
the histories of a fork with very many agents, and of all but the last slice of a fork with much mail.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, starmap
from typing import Any

from mail.adapters.aws.items import (
    META,
    NEVER,
    WAITS,
    Item,
    Value,
    ask_key,
    blob_name,
    blob_of,
    encode_counts,
    encode_dead,
    encode_identity,
    encode_running,
    encode_state,
    events_key,
    history_key,
    history_number,
    inbox_key,
    item_size,
    names,
    number,
    pack,
    partition,
    pointer,
    response_key,
    size_in_bytes,
    string,
    task_checkpoint_name,
    task_mail_name,
    wait_key,
)
from mail.adapters.aws.retention import Retention
from mail.adapters.aws.table import key_of
from mail.adapters.shared.snapshots import encode_delivered, encode_read
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import HistoryRecord, InboxEntry, TaskChange
from mail.core.task.events import encode_events
from mail.core.task.stored import write_wait
from mail.core.task.waits import Wait
from mail.errors import PayloadTooLarge

INLINE_BYTES = 190_000
"""The size limit of a text in an item, if there is a bucket: a message and its checkpoint fit together."""

ITEM_BYTES = 390_000
"""The size limit of an item: 400 KB, less what is unknown here, such as leases."""

TRANSACTION_BYTES = 3_500_000
"""The size limit of a transaction: 4 MB, less a margin."""

TRANSACTION_ACTIONS = 100

MOST_ALSO_READ = TRANSACTION_ACTIONS - 5
"""The most messages that a turn can consume besides its own: task, events, history and response need actions, too."""

LEASE_BYTES = 90
"""The size of a lease for a first attempt, without the name of its mailbox."""

TASK_MAIL_BYTES = 1024 - LEASE_BYTES
"""The size up to which the item of a task takes mail: 1 KB, less the lease of the turn that reads it."""

TASK_MAIL_TEXT = 8_000
"""The size limit of such a message before it is compressed."""

_SPARSE = ("running", "due", "dead", "dead_place", "expires_at")
"""Attributes that the task may lack."""

NO_LEASES: Item = {"leases": {"M": {}}}


class Text:
    """A text of an item; `blob` is its name in the bucket, if it has to go there."""

    __slots__ = ("blob", "size", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        self.size = size_in_bytes(value)
        self.blob: str | None = None

    @property
    def attribute(self) -> Value:
        """The attribute in the item."""
        return string(self.value) if self.blob is None else pointer(self.blob)


def may_be_task_mail(message: Text) -> bool:
    """Return whether a message may stand in the item of its task; else it has an item of its own."""
    if message.blob is not None or message.size > TASK_MAIL_TEXT:
        return False
    return item_size(pack({"message": message.attribute})) <= TASK_MAIL_BYTES


class CommitPlan:
    """The writes of a commit.

    Raises PayloadTooLarge if it doesn't fit into the table and there is no bucket; ValueError for a history that is not
    JSON.

    Args:
        retention: says when the items expire.
        is_in_task: whether the consumed message stands in the item of the task, and has no item of its own.
        latest: when a sweep must look after the task at the latest, in seconds since the epoch.

    Attributes:
        commit_id: a unique id of this attempt.
        events_key: the sort key of the item that proves, with `commit_id`, that the commit went through.
        blobs: the texts for the bucket, by name.
        copies: the names there of texts that a fork has inherited already, and inherits.
        is_last: whether it is no slice of a fork that has further ones.
        staged: the items to be written before the transaction.
        actions: the transaction, if it is the last; the first one changes the task.
    """

    def __init__(
        self,
        change: TaskChange,
        commit_id: str,
        *,
        now: float,
        retention: Retention,
        has_bucket: bool,
        is_in_task: bool = False,
        latest: float = NEVER,
        copies: Iterable[str] = (),
    ) -> None:
        self._change = change
        self._partition = partition(change.key)
        self.commit_id = commit_id
        self._now = now
        self._expiry, self._task_expiry = retention.expiry(), retention.task_expiry(change.task)
        self._is_in_task = is_in_task
        keep_by = retention.keep_by(change.task)
        self._index_keys = encode_running(
            change.task, now, latest, keep_by, keeps_ended=retention.keeps_latest
        )
        self._index_keys |= encode_dead(change.task)
        self.events_key = events_key(change.task.seq, change.task.version, has_events=bool(change.events))
        self.is_last = change.last_seq == change.task.seq
        self.blobs: dict[str, str] = {}
        self.copies = [*copies]
        self._numbers = count(len(self.copies))
        self._state = Text(encode_state(change.task))
        self._counts = encode_counts(change.task)
        self._mail_changes = {"delivered": encode_delivered(change), "read": encode_read(change)}
        self._task_mail: Item = {}
        self._histories = [(history, Text(history.encoded.decode())) for history in change.histories]
        self._messages = {
            id(message): Text(message.model_dump_json()) for message in self._messages_with_items()
        }
        optional = (change.consumed, change.response, *change.waits)
        room = TRANSACTION_ACTIONS - 2 - len(change.also_read) - sum(each is not None for each in optional)
        room -= len(change.asks) + len(change.unasks)
        room = max(0, room) if self.is_last else 0
        self._direct_histories = self._histories[:room]
        self._direct = change.deliveries[: room - len(self._direct_histories)]
        if has_bucket:
            self._spill_large()
        self._events = self._encode_events()
        if has_bucket:
            self._make_room()
        self.staged = [
            *(self._staged(self._mail(entry)) for entry in change.deliveries[len(self._direct) :]),
            *(
                self._staged(self._history(*each, commit_id))
                for each in self._histories[len(self._direct_histories) :]
            ),
            *(() if self.is_last else (self._staged(self._batch()),)),
        ]
        self._check()
        self.staged = list(map(pack, self.staged))
        self.actions: list[dict[str, Any]] = []
        if not self.is_last:
            return
        self._task_mail = self._find_task_mail()
        puts: Iterator[dict[str, Any]] = ({"Put": {"Item": pack(item)}} for item in self._puts())
        self.actions = [self._change_task(), *self._deletes(), *puts]

    def inherit(self, agent: str, item: Item) -> Item:
        """Return the copy of an agent's history item of another task, staged; a text in the bucket has a new name."""
        entries = item["entries"]
        if blob_of(entries) is not None:
            self.copies.append(blob_name(self._partition, self.commit_id, next(self._numbers)))
            entries = pointer(self.copies[-1])
        sort_key = history_key(agent, history_number(item), self.commit_id)
        return self._staged(self._item(sort_key, entries=entries))

    def _messages_with_items(self) -> list[MAILMessage]:
        """Return the messages that have items of their own, without duplicates."""
        messages = [entry.message for entry in self._change.deliveries]
        if self._change.response is not None:
            messages.append(self._change.response)
        return list({id(message): message for message in messages}.values())

    # ---------------------------------------------------------------------------------------------- room

    def _texts(self) -> list[Text]:
        return [self._state, *self._messages.values(), *(text for _, text in self._histories)]

    def _spill_large(self) -> None:
        """Move texts that are too large for an item to the bucket."""
        for text in self._texts():
            if text.size > INLINE_BYTES:
                self._spill(text)

    def _make_room(self) -> None:
        """Move texts to the bucket, largest first, until the transaction is small enough."""
        if self._events.size > INLINE_BYTES:
            self._spill(self._events)
        while item_size(self._batch()) > ITEM_BYTES:
            inline = [text for text in (self._state, self._events) if text.blob is None]
            if not inline:
                break
            self._spill(max(inline, key=lambda text: text.size))
        copies = Counter(id(self._messages[id(entry.message)]) for entry in self._direct)
        while self._size() > TRANSACTION_BYTES:
            inline = [text for text in (*self._texts(), self._events) if text.blob is None]
            self._spill(max(inline, key=lambda text: text.size * copies.get(id(text), 1)))

    def _size(self) -> int:
        return sum(map(item_size, (*self._puts(), self._task_values())))

    def _spill(self, text: Text) -> None:
        text.blob = blob_name(self._partition, self.commit_id, next(self._numbers))
        self.blobs[text.blob] = text.value

    def _check(self) -> None:
        if len(self._change.also_read) > MOST_ALSO_READ:
            raise PayloadTooLarge(f"a turn can read {MOST_ALSO_READ + 1} messages at most")
        largest = max(map(item_size, (*self.staged, *self._puts(), self._task_values())))
        if largest > ITEM_BYTES or self._size() > TRANSACTION_BYTES:
            raise PayloadTooLarge(
                f"this is too large to be stored: all at once, {self._size()} bytes, in one part {largest}; "
                f"without a bucket (MAIL_BUCKET), there is room for {TRANSACTION_BYTES} and {ITEM_BYTES} bytes"
            )

    # --------------------------------------------------------------------------------------------- items

    def _item(self, sort_key: str, **attributes: Value) -> Item:
        return {**key_of((self._partition, sort_key)), **attributes, **self._expiry}

    def _mail(self, entry: InboxEntry) -> Item:
        return self._item(inbox_key(entry), message=self._messages[id(entry.message)].attribute)

    def _history(self, history: HistoryRecord, text: Text, writer: str = "") -> Item:
        return self._item(history_key(history.agent, history.n, writer), entries=text.attribute)

    def _staged(self, item: Item) -> Item:
        return {**item, "commit": string(self.commit_id), "proof": string(self.events_key)}

    def _puts(self) -> Iterator[Item]:
        change = self._change
        yield from map(self._mail, () if self._task_mail else self._direct)
        yield from starmap(self._history, self._direct_histories)
        yield self._batch()
        yield from map(self._wait, change.stored_waits)
        for ask in change.asks:  # kept with its task, which is paused
            yield {**key_of(ask_key(ask)), "task": string(self._partition)}
        if change.response is not None and change.ended is not None:
            message = self._messages[id(change.response)]
            yield self._item(response_key(change.ended), message=message.attribute)

    def _wait(self, wait: Wait) -> Item:
        item = self._item(wait_key(wait.id), record=string(write_wait(wait)))
        return item if wait.waits_until is None else {**item, "waits": WAITS}

    def _batch(self) -> Item:
        """Return the item of the events, with the state of the task after them."""
        batch = {"events": self._events.attribute, "commit": string(self.commit_id)}
        if self.is_last:
            batch |= {"state": self._state.attribute, **self._counts}
        if self._moved:
            batch["messages"] = {"M": {str(seq): pointer(blob) for seq, blob in self._moved.items()}}
        for name, mail in self._mail_changes.items():
            if mail is not None:
                batch[name] = string(mail)
        if self.is_last:
            return self._item(self.events_key, **batch)
        sort_key = events_key(self._change.last_seq, self._change.task.version)
        return self._item(f"{sort_key}#{self.commit_id}", **batch)

    def _encode_events(self) -> Text:
        """Encode the events without the messages that are in the bucket; `_moved` has their names there, by seq."""
        blobs = {message: text.blob for message, text in self._messages.items() if text.blob is not None}
        self._moved = {
            event.seq: blobs[id(event.message)] for event in self._change.events if id(event.message) in blobs
        }
        if not self._moved:
            return Text(self._change.encoded_events.decode())
        events = (
            event._replace(message=None) if event.seq in self._moved else event
            for event in self._change.events
        )
        return Text(encode_events(events).decode())

    def _find_task_mail(self) -> Item:
        """Return the mail that goes to the item of the task, as its attributes: all that waits, if there is room."""
        deliveries = self._change.deliveries
        if not deliveries or sum(map(sum, self._change.task.pending.values())) > len(deliveries):
            return {}
        texts = {task_mail_name(entry): self._messages[id(entry.message)] for entry in deliveries}
        if not all(map(may_be_task_mail, texts.values())):
            return {}
        mail = pack({name: text.attribute for name, text in texts.items()})
        item = {**encode_identity(self._change.task), **pack(self._task_values()), **NO_LEASES, **mail}
        size = item_size(item) + max(size_in_bytes(entry.mailbox) for entry in deliveries)
        return mail if size <= TASK_MAIL_BYTES else {}

    # ------------------------------------------------------------------------------------------- actions

    @property
    def _consumed(self) -> tuple[InboxEntry, ...]:
        consumed = self._change.consumed
        return () if consumed is None else (consumed, *self._change.also_read)

    def _deletes(self) -> Iterator[dict[str, Any]]:
        for entry in self._consumed[1 if self._is_in_task else 0 :]:
            yield {"Delete": {"Key": key_of((self._partition, inbox_key(entry)))}}
        for wait_id in self._change.ended_waits:
            yield {"Delete": {"Key": key_of((self._partition, wait_key(wait_id)))}}
        for ask in self._change.unasks:
            yield {"Delete": {"Key": key_of(ask_key(ask))}}

    def _task_values(self) -> Item:
        values = {"state": self._state.attribute, **self._counts}
        values |= self._index_keys
        if self._change.expected_version == 0 or self._change.response is not None:
            values["bytes"] = number(self._change.task.stored_bytes)
        return values | self._task_expiry

    def _change_task(self) -> dict[str, Any]:
        if self._change.expected_version == 0:
            return self._begin_task()
        turn, values = self._change.turn, pack(self._task_values())
        removed = [f"#{name}" for name in _SPARSE if name not in values]
        condition = "#version = :expected"
        compared: Item = {":expected": number(self._change.expected_version)}
        if turn is not None:
            removed.append("#leases.#mailbox")
            condition += " AND #leases.#mailbox.#token = :token"
            compared[":token"] = string(turn.lease.token)
        given = {} if turn is None else {"mailbox": turn.mailbox}
        for n, entry in enumerate(self._consumed):
            given |= {f"read{n}": task_mail_name(entry), f"kept{n}": task_checkpoint_name(entry)}
            removed += (f"#read{n}", f"#kept{n}")
        for n, (name, message) in enumerate(self._task_mail.items()):
            given[f"mail{n}"] = name
            values[f"mail{n}"] = message
        update = "SET " + ", ".join(f"#{name} = :{name}" for name in values)
        if removed:
            update += " REMOVE " + ", ".join(removed)
        return {
            "Update": {
                "Key": key_of((self._partition, META)),
                "UpdateExpression": update,
                "ConditionExpression": condition,
                "ExpressionAttributeNames": names(update + condition, **given),
                "ExpressionAttributeValues": {
                    **{f":{name}": value for name, value in values.items()},
                    **compared,
                },
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def _begin_task(self) -> dict[str, Any]:
        """Return the action that creates a task; it may replace an expired one."""
        condition = "attribute_not_exists(#PK) OR #expires_at <= :now"
        return {
            "Put": {
                "Item": {
                    **encode_identity(self._change.task),
                    **pack(self._task_values()),
                    **NO_LEASES,
                    **self._task_mail,
                },
                "ConditionExpression": condition,
                "ExpressionAttributeNames": names(condition),
                "ExpressionAttributeValues": {":now": number(self._now)},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }
