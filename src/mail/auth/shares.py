"""The codes in links to tasks: they name a task, and have a secret of which the task keeps the digest."""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

from mail.auth.keys import digest
from mail.core.task.task import TaskKey
from mail.errors import ShareNotFound

_PREFIX = "mail_share_"
_SECRET_BYTES = 32


def new_code(key: TaskKey) -> tuple[str, str]:
    """Return a new code for a task, which can't be shown again, and the digest of its secret."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    name = urlsafe_b64encode("\n".join(key).encode()).decode().rstrip("=")
    return f"{_PREFIX}{name}.{secret}", digest(secret)


def read_code(code: str) -> tuple[TaskKey, str]:
    """Return the task of a code, and the digest of its secret. Raises ShareNotFound for any other text."""
    name, _, secret = code.removeprefix(_PREFIX).partition(".")
    try:
        instance, task_id = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode().split("\n")
    except ValueError:
        raise ShareNotFound from None
    return TaskKey(instance, task_id), digest(secret)
