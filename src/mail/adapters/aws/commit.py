"""A change of a task as one transaction: the items that it writes, and what of them goes elsewhere for want of room.

Texts too large for an item go to the bucket before the transaction. Where there are more messages than a transaction
has room for, the surplus is *staged*: written before it, each with the id of the commit and the key of its events. A staged
message counts once that item is there with that id; otherwise whoever meets it takes it for what a failed commit left. It is
the same with the histories of a new task that brings those of very many agents.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import starmap
from typing import Any

from mail.adapters.aws.items import (
    META,
    Item,
    Value,
    blob_name,
    encode_counts,
    encode_dead,
    encode_identity,
    encode_running,
    encode_state,
    events_key,
    history_key,
    inbox_key,
    item_size,
    names,
    number,
    partition,
    pointer,
    response_key,
    size_in_bytes,
    string,
)
from mail.adapters.aws.table import key_of
from mail.adapters.shared.codec import encode_events, encode_history
from mail.adapters.shared.snapshots import encode_delivered, encode_read
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import HistoryRecord, InboxEntry, TaskChange
from mail.errors import PayloadTooLarge

INLINE_BYTES = 190_000
"""How large a text of an item may be, where there is a bucket: a message and its checkpoint fit together."""

ITEM_BYTES = 390_000
"""How large an item may be: the limit, 400 KB, less what is not known here, such as leases."""

TRANSACTION_BYTES = 3_500_000
"""How large a transaction may be: the limit, 4 MB, less a margin."""

TRANSACTION_ACTIONS = 100

MOST_ALONG = TRANSACTION_ACTIONS - 5
"""Messages that can be read besides the one that is consumed: the task, its events, history and response come first."""

_SPARSE = ("running", "due", "dead", "dead_place", "expires_at")
"""Attributes of the task that are there at times."""

OUTLIVES_BY = 60
"""Seconds by which a task outlives its parts, so that nothing of it is found once it counts as gone."""


class Text:
    """A text of an item; `blob` is its name in the bucket, once it has to go there."""

    __slots__ = ("blob", "size", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        self.size = size_in_bytes(value)
        self.blob: str | None = None

    @property
    def attribute(self) -> Value:
        """What stands in the item."""
        return string(self.value) if self.blob is None else pointer(self.blob)


class CommitPlan:
    """What a commit writes.

    Raises PayloadTooLarge where that fits neither the table nor, as there is none, a bucket; ValueError for
    history that JSON can't hold.

    Attributes:
        commit_id: tells this attempt from all others.
        events_key: the sort key of the item that proves, with `commit_id`, that it went through.
        blobs: the texts for the bucket, by name.
        staged: the items to be written before the transaction.
        actions: the transaction; the first one changes the task.
    """

    def __init__(
        self, change: TaskChange, commit_id: str, *, now: float, expires_at: int | None, has_bucket: bool
    ) -> None:
        self._change = change
        self._partition = partition(change.key)
        self.commit_id = commit_id
        self._now = now
        self._expires_at = expires_at
        self.events_key = events_key(change.task.seq, change.task.version)
        self.blobs: dict[str, str] = {}
        self._state = Text(encode_state(change.task))
        self._counts = encode_counts(change.task)
        self._places = {"delivered": encode_delivered(change), "read": encode_read(change)}
        self._histories = [
            (record, Text(encode_history(record.entries).decode())) for record in change.histories
        ]
        self._messages = {id(message): Text(message.model_dump_json()) for message in self._kept()}
        parts = (change.consumed, change.response)
        room = max(
            0, TRANSACTION_ACTIONS - 2 - len(change.also_read) - sum(part is not None for part in parts)
        )
        self._records = self._histories[:room]
        self._direct = change.deliveries[: room - len(self._records)]
        if has_bucket:
            self._spill_large()
        self._events = self._encode_events()
        if has_bucket:
            self._make_room()
        self.staged = [
            *(self._staged(self._mail(entry)) for entry in change.deliveries[len(self._direct) :]),
            *(self._staged(self._record(*each, commit_id)) for each in self._histories[len(self._records) :]),
        ]
        self._check()
        puts: Iterator[dict[str, Any]] = ({"Put": {"Item": item}} for item in self._puts())
        self.actions = [self._change_task(), *self._deletes(), *puts]

    def _kept(self) -> list[MAILMessage]:
        """The messages that have items of their own, each once, however many items those are."""
        messages = [entry.message for entry in self._change.deliveries]
        if self._change.response is not None:
            messages.append(self._change.response)
        return list({id(message): message for message in messages}.values())

    # ---------------------------------------------------------------------------------------------- room

    def _texts(self) -> list[Text]:
        return [self._state, *self._messages.values(), *(text for _, text in self._histories)]

    def _spill_large(self) -> None:
        """What is too large for an item goes to the bucket."""
        for text in self._texts():
            if text.size > INLINE_BYTES:
                self._spill(text)

    def _make_room(self) -> None:
        """What is too large for the transaction goes to the bucket, the largest first."""
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
        text.blob = blob_name(self._partition, self.commit_id, len(self.blobs))
        self.blobs[text.blob] = text.value

    def _check(self) -> None:
        if len(self._change.also_read) > MOST_ALONG:
            raise PayloadTooLarge(f"a turn can read {MOST_ALONG + 1} messages at most")
        largest = max(map(item_size, (*self.staged, *self._puts(), self._task_values())))
        if largest > ITEM_BYTES or self._size() > TRANSACTION_BYTES:
            raise PayloadTooLarge(
                f"this is too large to be stored: all at once, {self._size()} bytes, in one part {largest}; "
                f"without a bucket (MAIL_BUCKET), there is room for {TRANSACTION_BYTES} and {ITEM_BYTES} bytes"
            )

    # --------------------------------------------------------------------------------------------- items

    def _item(self, sort_key: str, **attributes: Value) -> Item:
        item = {**key_of((self._partition, sort_key)), **attributes}
        if self._expires_at is not None:
            item["expires_at"] = number(self._expires_at)
        return item

    def _mail(self, entry: InboxEntry) -> Item:
        return self._item(inbox_key(entry), message=self._messages[id(entry.message)].attribute)

    def _record(self, record: HistoryRecord, text: Text, writer: str = "") -> Item:
        return self._item(history_key(record.agent, record.n, writer), entries=text.attribute)

    def _staged(self, item: Item) -> Item:
        return {**item, "commit": string(self.commit_id), "proof": string(self.events_key)}

    def _puts(self) -> Iterator[Item]:
        change = self._change
        yield from map(self._mail, self._direct)
        yield from starmap(self._record, self._records)
        yield self._batch()
        if change.response is not None and change.ended is not None:
            message = self._messages[id(change.response)]
            yield self._item(response_key(change.ended), message=message.attribute)

    def _batch(self) -> Item:
        """The events, and what the task is once they have happened."""
        batch = {
            "events": self._events.attribute,
            "commit": string(self.commit_id),
            "state": self._state.attribute,
            **self._counts,
        }
        if self._moved:
            batch["messages"] = {"M": {str(seq): pointer(blob) for seq, blob in self._moved.items()}}
        for name, places in self._places.items():
            if places is not None:
                batch[name] = string(places)
        return self._item(self.events_key, **batch)

    def _encode_events(self) -> Text:
        """The batch of events, less the messages that are in the bucket; `_moved` says which, by their events' seq."""
        blobs = {message: text.blob for message, text in self._messages.items() if text.blob is not None}
        self._moved = {
            event.seq: blobs[id(event.message)] for event in self._change.events if id(event.message) in blobs
        }
        left = (
            event._replace(message=None) if event.seq in self._moved else event
            for event in self._change.events
        )
        return Text(encode_events(tuple(left)).decode())

    # ------------------------------------------------------------------------------------------- actions

    def _deletes(self) -> Iterator[dict[str, Any]]:
        consumed = self._change.consumed
        for entry in () if consumed is None else (consumed, *self._change.also_read):
            yield {"Delete": {"Key": key_of((self._partition, inbox_key(entry)))}}

    def _task_values(self) -> Item:
        values = {"state": self._state.attribute, **self._counts}
        values |= encode_running(self._change.task) | encode_dead(self._change.task)
        if self._expires_at is not None:
            values["expires_at"] = number(self._expires_at + OUTLIVES_BY)
        return values

    def _change_task(self) -> dict[str, Any]:
        if self._change.expected_version == 0:
            return self._begin_task()
        turn, values = self._change.turn, self._task_values()
        removed = [f"#{name}" for name in _SPARSE if name not in values]
        condition = "#version = :expected"
        compared: Item = {":expected": number(self._change.expected_version)}
        if turn is not None:
            removed.append("#leases.#mailbox")
            condition += " AND #leases.#mailbox.#token = :token"
            compared[":token"] = string(turn.lease.token)
        update = "SET " + ", ".join(f"#{name} = :{name}" for name in values)
        if removed:
            update += " REMOVE " + ", ".join(removed)
        given = {} if turn is None else {"mailbox": turn.mailbox}
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
        """A new task; it may take the place of one that has expired."""
        condition = "attribute_not_exists(#PK) OR #expires_at <= :now"
        return {
            "Put": {
                "Item": {**encode_identity(self._change.task), **self._task_values(), "leases": {"M": {}}},
                "ConditionExpression": condition,
                "ExpressionAttributeNames": names(condition),
                "ExpressionAttributeValues": {":now": number(self._now)},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }
