"""The ids of tasks in the tables, and the topics of notifications."""

from hashlib import sha256
from uuid import UUID

from mail.core.task.task import TaskKey


def task_number(key: TaskKey) -> UUID:
    """Return the id of a task: the first half of a digest of its key, so that no query is needed to find it."""
    text = "\0".join(key).encode(errors="surrogatepass")
    return UUID(bytes=sha256(text).digest()[:16])


def change_topic(number: UUID) -> str:
    """Return the topic that each commit of a task notifies."""
    return f"c{number.hex}"


def ending_topic(number: UUID) -> str:
    """Return the topic that each commit notifies that ends a generation of a task."""
    return f"e{number.hex}"


def wake_topic(swarm: str, *, is_delivery: bool) -> str:
    """Return the topic of wake-ups for a swarm's agents, or for its outbound mail."""
    return f"{'d' if is_delivery else 'w'}{sha256(swarm.encode()).hexdigest()[:32]}"
