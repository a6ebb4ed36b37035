"""Actions that look at other MAIL servers."""

from mail.stdlib.interswarm.actions import *  # noqa: F403
