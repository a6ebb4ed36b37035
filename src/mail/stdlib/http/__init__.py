"""Actions that send HTTP requests."""

from mail.stdlib.http.actions import *  # noqa: F403
