"""Actions on the files below one directory."""

from mail.stdlib.fs.actions import *  # noqa: F403
