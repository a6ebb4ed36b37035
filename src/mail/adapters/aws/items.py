"""How tasks lie in the table: keys, and attributes in the form of DynamoDB's API.

A task is a partition. `T` is its instance and id, `A` a mailbox or the agent that reads it:

    T  META                  the task's state, and the leases of its mailboxes
    T  A#name#H#n            the agent's n-th history record; where it is staged, #writer follows
    T  A#name#I#tier#seq#id  a message in its mailbox, and the checkpoint of the turn that reads it
    T  E#seq#version         the events of the commit that made this version, and the state of the task then, with the
                             places of the mail that came and went (see `moments`); `seq` is that of the last event
    T  R#generation          a finishing message

History sorts before the inbox, so one query brings the newest history and the head. `id` is the end of the message's
own id: two commits that were decided on one version give out the same seq, and only one of them is stored, but
both may stage mail (see `dynamodb_commit`).
"""

import re
from hashlib import sha256
from typing import Any
from zlib import crc32

from pydantic_core import from_json

from mail.core.protocol.message import MAILMessage, Tier
from mail.core.task.change import InboxEntry, Lease
from mail.core.task.stored import task_from, write_task
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import BadRequest

Value = dict[str, Any]
"""An attribute's value with its type, such as `{"S": "text"}`."""

Item = dict[str, Value]

META = "META"

MAX_PARTITION_KEY = 2048
MAX_SORT_KEY = 1024

SHARDS = "0123456789abcdef"
"""Over how many partitions the index of running tasks is spread, so that none gets hot."""

DEAD = "1"
"""The one partition of the index of tasks with dead letters, as these are few."""

NEVER = 9e15
"""The deadline of a task that has none, for the index."""

_ATTRIBUTE = re.compile(r"#(\w+)")


def names(expression: str, **given: str) -> dict[str, str]:
    """The attribute names that an expression's placeholders stand for: their own, but for those that are given."""
    return {f"#{name}": given.get(name, name) for name in _ATTRIBUTE.findall(expression)}


def string(text: str) -> Value:
    """A string."""
    return {"S": text}


def number(value: float) -> Value:
    """A number, to the last digit."""
    return {"N": repr(value)}


def pointer(blob: str) -> Value:
    """The stead of a text that is in the bucket."""
    return {"M": {"blob": string(blob)}}


def blob_of(value: Value) -> str | None:
    """The name that a text has in the bucket; None where it is in the item itself."""
    blob: str | None = value["M"]["blob"]["S"] if "M" in value else None
    return blob


def blob_name(name: str, writer: str, n: int) -> str:
    """A name in the bucket for the n-th text that a writer (an id used once) puts there for a partition."""
    return f"{sha256(name.encode()).hexdigest()[:32]}/{writer}/{n}"


def size_in_bytes(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def item_size(item: Item) -> int:
    """An item's size as the limits of DynamoDB count it, or a little more."""
    return sum(size_in_bytes(name) + _value_size(value) for name, value in item.items())


def _value_size(value: Value) -> int:
    ((kind, content),) = value.items()
    if kind == "M":
        return 3 + sum(1 + size_in_bytes(name) + _value_size(inner) for name, inner in content.items())
    return size_in_bytes(content)


# ------------------------------------------------------------------------------------------------ keys


def partition(key: TaskKey) -> str:
    """The partition of a task. Neither task ids nor names of swarms hold a `#`, so no two tasks share one.

    Raises BadRequest for a name that is too long to be one.
    """
    name = f"T#{key.instance}#{key.task_id}"
    if size_in_bytes(name) > MAX_PARTITION_KEY:
        raise BadRequest(
            f"the caller's id and the task's are too long: together, at most {MAX_PARTITION_KEY - 3} bytes"
        )
    return name


def task_key(name: str) -> TaskKey:
    """The inverse of `partition`."""
    instance, _, task_id = name.removeprefix("T#").rpartition("#")
    return TaskKey(instance, task_id)


def shard(name: str) -> str:
    """The part of the index of running tasks that a partition belongs to."""
    return SHARDS[crc32(name.encode()) % len(SHARDS)]


def place_in_index(started: str, task_id: str) -> str:
    """The sort key by which an instance's tasks are listed: cut, where the task's id is very long."""
    return f"{started}#{task_id}".encode()[:MAX_SORT_KEY].decode(errors="ignore")


def dead_start(instance: str) -> str:
    """Before an instance's tasks with dead letters. Names of instances may be too long for a sort key."""
    return sha256(instance.encode()).hexdigest()[:32] + "#"


def place_among_dead(task: Task) -> str:
    """The sort key by which tasks with dead letters are listed: those of an instance lie together, by their start."""
    place = dead_start(task.instance) + place_in_index(task.started, task.task_id)
    return place.encode()[:MAX_SORT_KEY].decode(errors="ignore")


def _of_agent(name: str) -> str:
    return "A#" + name.replace("%", "%25").replace("#", "%23")


def history_key(agent: str, n: int, writer: str = "") -> str:
    """Where an agent's n-th history record is; one that is staged, by a commit with the id `writer`."""
    place = f"{_of_agent(agent)}#H#{n:012}"
    return f"{place}#{writer}" if writer else place


def history_end(agent: str) -> str:
    """Past an agent's history."""
    return f"{_of_agent(agent)}#H~"


def inbox_start(mailbox: str) -> str:
    """Before the messages of a mailbox."""
    return f"{_of_agent(mailbox)}#I#"


def inbox_end(mailbox: str) -> str:
    """Past the messages of a mailbox."""
    return f"{_of_agent(mailbox)}#I~"


def inbox_key(entry: InboxEntry) -> str:
    """Where a message in a mailbox is."""
    return f"{inbox_start(entry.mailbox)}{entry.tier}#{entry.seq:012}#{entry.message.id[-12:]}"


def is_mail(item: Item) -> bool:
    """Whether an item of an agent is a message, and no history record."""
    return "message" in item


def history_number(item: Item) -> int:
    """Which history record it is."""
    return int(item["SK"]["S"].rpartition("#H#")[2].partition("#")[0])


def mail_place(item: Item) -> tuple[Tier, int]:
    """The tier and seq of a message."""
    tier, seq, _ = item["SK"]["S"].rsplit("#", 3)[1:]
    return Tier(int(tier)), int(seq)


def events_key(seq: int, version: int) -> str:
    """Where the events of a commit are."""
    return f"E#{seq:012}#{version}"


def events_after(seq: int) -> str:
    """Before the events of the first commit past `seq`."""
    return f"E#{seq + 1:012}"


EVENTS_END = "E#~"


def response_key(generation: int) -> str:
    """Where a generation's finishing message is."""
    return f"R#{generation}"


# ------------------------------------------------------------------------------------- the task's own item

_APART = {"instance", "task_id", "status", "started", "seq", "version", "pending"}
"""What is in the key or attributes of its own, and not in the state's text."""


def encode_state(task: Task) -> str:
    """The part of a task that only we read."""
    return write_task(task, _APART)


def encode_counts(task: Task) -> Item:
    """The part of a task that conditions compare and every commit changes; `pending` names the ready mailboxes."""
    pending = {mailbox: string(",".join(map(str, counts))) for mailbox, counts in task.pending.items()}
    return {
        "version": number(task.version),
        "seq": number(task.seq),
        "status": string(task.status),
        "pending": {"M": pending},
    }


def encode_running(task: Task) -> Item:
    """Its place in the index of the tasks that there is work for; nothing where it has stopped."""
    if not (task.is_running or task.is_delivering):
        return {}
    due = task.deadline if task.is_running else None
    return {
        "running": string(shard(partition(task.key))),
        "due": number(NEVER if due is None else due),
    }


def encode_dead(task: Task) -> Item:
    """Its place in the index of the tasks with dead letters; nothing where it has none."""
    if not task.dead_letters:
        return {}
    return {"dead": string(DEAD), "dead_place": string(place_among_dead(task))}


def encode_identity(task: Task) -> Item:
    """What of a task never changes."""
    return {
        "PK": string(partition(task.key)),
        "SK": string(META),
        "instance": string(task.instance),
        "started": string(place_in_index(task.started, task.task_id)),
    }


def decode_task(item: Item, state: str) -> Task:
    """The task, from its item and its state."""
    key = task_key(item["PK"]["S"])
    return task_from(
        {
            **from_json(state),
            "instance": key.instance,
            "task_id": key.task_id,
            "status": TaskStatus(item["status"]["S"]),
            "started": item["started"]["S"].partition("#")[0],
            "seq": int(item["seq"]["N"]),
            "version": int(item["version"]["N"]),
            "pending": {
                mailbox: tuple(map(int, counts["S"].split(",")))
                for mailbox, counts in item["pending"]["M"].items()
            },
        }
    )


def encode_lease(lease: Lease) -> Value:
    """A lease, as it stands under its mailbox."""
    return {"M": {"token": string(lease.token), "expires": number(lease.expires)}}


def decode_leases(item: Item) -> dict[str, Lease]:
    """The leases of a task, by mailbox; some may have expired."""
    return {
        mailbox: Lease(lease["M"]["token"]["S"], float(lease["M"]["expires"]["N"]))
        for mailbox, lease in item["leases"]["M"].items()
    }


def decode_mail(mailbox: str, item: Item, message: str) -> InboxEntry:
    """A message in a mailbox, from its item and its text."""
    return InboxEntry(mailbox, *mail_place(item), MAILMessage.model_validate_json(message))


def is_expired(item: Item, now: float) -> bool:
    """Whether an item is past its retention, so that DynamoDB may delete it any day."""
    return "expires_at" in item and int(item["expires_at"]["N"]) <= now
