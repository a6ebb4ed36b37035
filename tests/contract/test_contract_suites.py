"""The suites of `mail.testing.contracts`, over every store and every queue."""

from mail.testing.contracts.commit import *  # noqa: F403
from mail.testing.contracts.queue import *  # noqa: F403
from mail.testing.contracts.turns import *  # noqa: F403
