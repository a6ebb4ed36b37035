"""What tasks are called in the tables, and what is rung when something happens to one."""

from hashlib import sha256
from uuid import UUID

from mail.core.task.task import TaskKey


def task_number(key: TaskKey) -> UUID:
    """The first half of a digest of the key: short, and known without asking. No two names run together in it."""
    text = "\0".join(key).encode(errors="surrogatepass")
    return UUID(bytes=sha256(text).digest()[:16])


def change_topic(number: UUID) -> str:
    """Rung by each commit of a task."""
    return f"c{number.hex}"


def ending_topic(number: UUID) -> str:
    """Rung by each commit that ends a generation of it."""
    return f"e{number.hex}"


def wake_topic(swarm: str, *, is_delivery: bool) -> str:
    """Rung when mailboxes of agents of a swarm, or its mail for other swarms, are to be looked at."""
    return f"{'d' if is_delivery else 'w'}{sha256(swarm.encode()).hexdigest()[:32]}"
