"""The items of tasks: keys, and attributes in the form of DynamoDB's API.

A task is a partition. `T` is its instance and id, `A` a mailbox or its agent:

    T  META                  the task's state, the leases of its mailboxes, and mail that needs no item of its own
    T  A#name#H#n            the n-th part of the agent's history; if it is staged, #writer follows
    T  A#name#I#tier#seq#id  a message in its mailbox, and the checkpoint of the turn that reads it
    T  C#ref                 a long text of an action (`mail.core.task.ports.Contents`)
    T  K#id                  a call that finishes later, or a timer: the ids of timers sort by time, behind all calls
    T  E#seq#version         the events of the commit that made this version, the task's state after it, and which mail
                             it delivered and consumed (see `snapshots`); `seq` is that of the last event. Without
                             events, ~version follows, which sorts after the commit of that event
    T  L#name                live events of an agent's turn, if the task is watched (see `live`)
    T  R#generation          a finishing message

History sorts before the inbox, so that one query returns the newest history and the head. `id` is the end of the
message's own id: two commits on the same version use the same seq, and only one of them is stored, but both may stage
mail (see `commit`).

Texts (`TEXTS`) are compressed where that makes them shorter.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from zlib import crc32

from pydantic_core import from_json

from mail.adapters.aws.compression import compress, decompress
from mail.core.protocol.message import Tier
from mail.core.task.approvals import Ask
from mail.core.task.change import InboxEntry
from mail.core.task.leases import AHEAD_SECONDS, QUIET_SECONDS, Lease, due_of
from mail.core.task.stored import read_message, read_park, task_from, write_park, write_task
from mail.core.task.task import ASLEEP, Task, TaskKey, TaskStatus
from mail.errors import BadRequest

Value = dict[str, Any]
"""An attribute's value with its type, such as `{"S": "text"}`."""

Item = dict[str, Value]

META = "META"

TEXTS = frozenset({"state", "events", "message", "entries", "checkpoint", "content"})
"""The attributes that are compressed, besides mail in META."""

TASK_MAIL = "I#"
"""The start of the names of attributes of META that are mail: `I#tier#seq#name`."""

TASK_CHECKPOINT = "C#"
"""The same of checkpoints of turns that read this mail."""

WAITS: Value = {"S": "yes"}
"""The attribute `waits` of a call or timer that waits."""

LIVE_START = "L#"
"""The items with live events lie between this key and META."""

MAX_PARTITION_KEY = 2048
MAX_SORT_KEY = 1024

SHARDS = "0123456789abcdef"
"""The partitions of the index of running tasks, so that none gets hot."""

PAUSED = "paused-"
"""The start of the names of the partitions of that index with tasks that only have to be kept."""

DEAD = "1"
"""The only partition of the index of tasks with dead letters, as these are few."""

HOLDS = "HOLD"
"""The partition of holds, by hex digests of the names of what they are on."""

NEVER = 9e15
"""The deadline in the index of a task without one."""

DELETING = "deleting"
"""The attribute of a task's item while its other items are deleted; the task counts as gone."""

DELETION_SECONDS = 60.0
"""How long a deletion may take until a sweep assumes that its process has ended, and resumes it."""

CHECK_SECONDS = 60.0
"""A task is due to be checked at multiples of this, as each move of `due` costs two write units. Tasks differ in when
it begins."""

LONGEST_QUIET = 3600.0
"""The most seconds between two checks of a task with mail that waits."""

_ATTRIBUTE = re.compile(r"#(\w+)")


def names(expression: str, **given: str) -> dict[str, str]:
    """Return the attribute names of an expression's placeholders: the same names, except those that are given."""
    return {f"#{name}": given.get(name, name) for name in _ATTRIBUTE.findall(expression)}


def string(text: str) -> Value:
    """Return a string attribute."""
    return {"S": text}


def number(value: float) -> Value:
    """Return a number attribute, without rounding."""
    return {"N": repr(value)}


def pointer(blob: str) -> Value:
    """Return the attribute of a text that is in the bucket."""
    return {"M": {"blob": string(blob)}}


def blob_of(value: Value) -> str | None:
    """Return the name of a text in the bucket; None if the text is in the item."""
    blob: str | None = value["M"]["blob"]["S"] if "M" in value else None
    return blob


def pack(item: Item) -> Item:
    """Return an item with its texts compressed."""
    return {
        name: _packed(value) if name in TEXTS or name.startswith((TASK_MAIL, TASK_CHECKPOINT)) else value
        for name, value in item.items()
    }


def _packed(value: Value) -> Value:
    compressed = compress(value["S"]) if "S" in value else None
    return value if compressed is None else {"B": compressed}


def unpack(value: Value) -> str:
    """Return a text that is in an item."""
    text: str = value["S"] if "S" in value else decompress(value["B"])
    return text


def blobs_of(item: Item) -> set[str]:
    """Return the names of all texts of an item that are in the bucket."""
    values = [*item.values(), *(value for each in item.values() for value in each.get("M", {}).values())]
    return {blob["S"] for value in values if "M" in value and (blob := value["M"].get("blob"))}


def blob_name(name: str, writer: str, n: int) -> str:
    """Return a name in the bucket for the n-th text of a writer (a unique id) for a partition."""
    return f"{sha256(name.encode()).hexdigest()[:32]}/{writer}/{n}"


def size_in_bytes(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def item_size(item: Item) -> int:
    """Return the size of an item as DynamoDB counts it, or a little more."""
    return sum(size_in_bytes(name) + _value_size(value) for name, value in item.items())


def _value_size(value: Value) -> int:
    ((kind, content),) = value.items()
    if kind == "M":
        return 3 + sum(1 + size_in_bytes(name) + _value_size(inner) for name, inner in content.items())
    if kind == "N":  # two digits a byte, without zeros at either end
        return len(content.strip("-0.")) // 2 + 2
    return len(content) if kind == "B" else size_in_bytes(content)


# ------------------------------------------------------------------------------------------------ keys


def partition(key: TaskKey) -> str:
    """Return the partition of a task. Task ids and swarm names have no `#`, so that no two tasks share one.

    Raises BadRequest if it is too long.
    """
    name = f"T#{key.instance}#{key.task_id}"
    if size_in_bytes(name) > MAX_PARTITION_KEY:
        raise BadRequest(
            f"the ids of the caller and the task are too long: together, at most {MAX_PARTITION_KEY - 3} bytes"
        )
    return name


def task_key(name: str) -> TaskKey:
    """Return the task of a partition."""
    instance, _, task_id = name.removeprefix("T#").rpartition("#")
    return TaskKey(instance, task_id)


def shard(name: str) -> str:
    """Return the partition of a task in the index of running tasks."""
    return SHARDS[crc32(name.encode()) % len(SHARDS)]


def listing_key(started: str, task_id: str) -> str:
    """Return the sort key by which an instance's tasks are listed, truncated if the task's id is very long."""
    return f"{started}#{task_id}".encode()[:MAX_SORT_KEY].decode(errors="ignore")


def dead_start(instance: str) -> str:
    """Return the start of the sort keys of an instance's tasks with dead letters; its name may be too long for one."""
    return sha256(instance.encode()).hexdigest()[:32] + "#"


def dead_key(task: Task) -> str:
    """Return the sort key by which tasks with dead letters are listed: by instance, then by start."""
    sort_key = dead_start(task.instance) + listing_key(task.started, task.task_id)
    return sort_key.encode()[:MAX_SORT_KEY].decode(errors="ignore")


def _of_agent(name: str) -> str:
    return "A#" + name.replace("%", "%25").replace("#", "%23")


def history_key(agent: str, n: int, writer: str = "") -> str:
    """Return the sort key of the n-th part of an agent's history, staged by the commit `writer` if that is given."""
    sort_key = f"{_of_agent(agent)}#H#{n:012}"
    return f"{sort_key}#{writer}" if writer else sort_key


def history_end(agent: str) -> str:
    """Return a sort key after an agent's history."""
    return f"{_of_agent(agent)}#H~"


def content_key(ref: str) -> str:
    """Return the sort key of a long text; of an empty reference, the one before all of them."""
    return f"C#{ref}"


def wait_key(wait_id: str) -> str:
    """Return the sort key of a call that finishes later, or of a timer; of an empty id, the one before all of them."""
    return f"K#{wait_id}"


def ask_key(ask: Ask) -> tuple[str, str]:
    """Return the key of an entry of what waits for somebody, who has a partition."""
    return f"ASKS#{ask.who}", ask.id


def inbox_start(mailbox: str) -> str:
    """Return the start of the sort keys of a mailbox's messages."""
    return f"{_of_agent(mailbox)}#I#"


def inbox_end(mailbox: str) -> str:
    """Return a sort key after a mailbox's messages."""
    return f"{_of_agent(mailbox)}#I~"


def inbox_key(entry: InboxEntry) -> str:
    """Return the sort key of a message in a mailbox."""
    return f"{inbox_start(entry.mailbox)}{entry.tier}#{entry.seq:012}#{entry.message.id[-12:]}"


def task_mail_name(entry: InboxEntry) -> str:
    """Return the name of a message as an attribute of META."""
    return f"{TASK_MAIL}{entry.tier}#{entry.seq}#{entry.mailbox}"


def task_checkpoint_name(entry: InboxEntry) -> str:
    """Return the name, as an attribute of META, of the checkpoint of the turn that reads a message."""
    return f"{TASK_CHECKPOINT}{entry.tier}#{entry.seq}#{entry.mailbox}"


def task_mail(item: Item) -> dict[str, list[Item]]:
    """Return the mail in the item of a task, by mailbox, in the form of items of its own."""
    mail: dict[str, list[Item]] = {}
    for name, message in item.items():
        if name.startswith(TASK_MAIL):
            tier, seq, mailbox = name.removeprefix(TASK_MAIL).split("#", 2)
            sort_key = f"{inbox_start(mailbox)}{tier}#{int(seq):012}#"
            mail.setdefault(mailbox, []).append(
                {"PK": item["PK"], "SK": string(sort_key), "message": message}
            )
    return mail


def task_checkpoint(item: Item, mailbox: str) -> Value | None:
    """Return the checkpoint of a mailbox's turn in the item of its task, if it stands there."""
    found = (
        value
        for name, value in item.items()
        if name.startswith(TASK_CHECKPOINT) and name.split("#", 3)[3] == mailbox
    )
    return next(found, None)


def is_mail(item: Item) -> bool:
    """Return whether an item of an agent is a message, and not history."""
    return "message" in item


def history_number(item: Item) -> int:
    """Return the number of a part of a history."""
    return int(item["SK"]["S"].rpartition("#H#")[2].partition("#")[0])


def mail_position(item: Item) -> tuple[Tier, int]:
    """Return the tier and seq of a message."""
    tier, seq, _ = item["SK"]["S"].rsplit("#", 3)[1:]
    return Tier(int(tier)), int(seq)


def events_key(seq: int, version: int, *, has_events: bool = True) -> str:
    """Return the sort key of the events of a commit; one without events sorts after the last one that has some."""
    return f"E#{seq:012}{'#' if has_events else '~'}{version}"


def events_after(seq: int) -> str:
    """Return a sort key before the events of the first commit after `seq`."""
    return f"E#{seq + 1:012}"


EVENTS_END = "E#~"


def live_key(agent: str) -> str:
    """Return the sort key of the live events of an agent's turn. They sort right before META."""
    return f"L#{_of_agent(agent)[2:]}"


def response_key(generation: int) -> str:
    """Return the sort key of a generation's finishing message."""
    return f"R#{generation}"


# ------------------------------------------------------------------------------------- the task's own item

_APART = {"instance", "task_id", "status", "started", "seq", "version", "pending"}
"""The fields in the key or in attributes of their own, and not in the text of the state."""


def encode_state(task: Task) -> str:
    """Encode the fields that no condition or index uses."""
    return write_task(task, exclude=_APART)


def encode_counts(task: Task) -> Item:
    """Encode the fields that conditions compare and every commit changes; `pending` has the ready mailboxes."""
    pending = {mailbox: string(",".join(map(str, counts))) for mailbox, counts in task.pending.items()}
    return {
        "version": number(task.version),
        "seq": number(task.seq),
        "status": string(task.listed_as),
        "pending": {"M": pending},
    }


def encode_running(
    task: Task, now: float, latest: float = NEVER, keep_by: float = NEVER, *, keeps_ended: bool = False
) -> Item:
    """Encode the keys of a task with work, or with approvals that expire, in the index of running tasks; else none.

    It is due at `latest`, and to be checked some time after this commit while it has mail, as a wake-up may be lost. A
    task that is only paused has keys of its own, as it must be kept from expiring, by `keep_by`; with `keeps_ended`,
    so has one that has ended.
    """
    name = shard(partition(task.key))
    if task.deadline is None and not (task.is_running or task.has_outbound_mail):
        if keep_by == NEVER or not (keeps_ended or task.status is TaskStatus.PAUSED):
            return {}
        return {"running": string(PAUSED + name), "due": number(keep_by)}
    due = next_due(task, {}, check_after(task, now))
    return {"running": string(name), "due": number(min(due, latest, keep_by))}


def check_after(task: Task, now: float) -> float:
    """Return when a task is to be checked that has changed now, so that only a sweep that finds it quiet reads it."""
    phase = crc32(partition(task.key).encode()) % CHECK_SECONDS
    earliest = now + AHEAD_SECONDS + QUIET_SECONDS - phase
    return (earliest // CHECK_SECONDS + 1) * CHECK_SECONDS + phase


def next_due(task: Task, leases: Mapping[str, Lease], check: float) -> float:
    """Return when a sweep must look after a task with these leases: when it is due, or `check` if mail waits for turns.

    Mail that waits for its time, or whose turn is parked, need not be checked before.
    """
    checked = [
        max(check, task.not_before(mailbox))
        for mailbox, _ in task.ready()
        if (lease := leases.get(mailbox)) is None or lease.park is None or not lease.expires
    ]
    due = due_of(task, leases.values())
    return min([NEVER if due is None else due, *checked])


def encode_dead(task: Task) -> Item:
    """Encode the keys in the index of tasks with dead letters; none if the task has none."""
    if not task.dead_letters:
        return {}
    return {"dead": string(DEAD), "dead_place": string(dead_key(task))}


def encode_identity(task: Task) -> Item:
    """Encode the fields that never change."""
    return {
        "PK": string(partition(task.key)),
        "SK": string(META),
        "instance": string(task.instance),
        "started": string(listing_key(task.started, task.task_id)),
    }


def decode_task(item: Item, state: str) -> Task:
    key, status = task_key(item["PK"]["S"]), item["status"]["S"]
    return task_from(
        {
            **from_json(state),
            "instance": key.instance,
            "task_id": key.task_id,
            "status": TaskStatus.RUNNING if status == ASLEEP else status,
            "started": item["started"]["S"].partition("#")[0],
            "seq": int(item["seq"]["N"]),
            "version": int(item["version"]["N"]),
            "pending": {
                mailbox: tuple(map(int, counts["S"].split(",")))
                for mailbox, counts in item["pending"]["M"].items()
            },
        }
    )


ZERO, ONE = {"N": "0"}, {"N": "1"}


def encode_lease(lease: Lease) -> Value:
    attempt = {} if lease.attempt == 1 else {"attempt": number(lease.attempt)}
    seq = {"seq": number(lease.seq)} if lease.seq else {}
    park = {} if lease.park is None else {"park": string(write_park(lease))}
    return {"M": {"token": string(lease.token), "expires": number(lease.expires), **attempt, **seq, **park}}


def decode_leases(item: Item) -> dict[str, Lease]:
    """Decode the leases of a task, by mailbox; some may have expired."""
    return {
        mailbox: Lease(
            lease["M"]["token"]["S"],
            float(lease["M"]["expires"]["N"]),
            int(lease["M"].get("attempt", ONE)["N"]),
            int(lease["M"].get("seq", ZERO)["N"]),
            read_park(lease["M"]["park"]["S"]).park if "park" in lease["M"] else None,
        )
        for mailbox, lease in item["leases"]["M"].items()
    }


def decode_mail(mailbox: str, item: Item, message: str) -> InboxEntry:
    """Decode a message in a mailbox, from its item and its text."""
    return InboxEntry(mailbox, *mail_position(item), read_message(message))


def is_expired(item: Item, now: float) -> bool:
    """Return whether an item is past its retention, so that DynamoDB may delete it any time."""
    return "expires_at" in item and int(item["expires_at"]["N"]) <= now
