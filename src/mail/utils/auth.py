"""Authentication helpers: a documented import path for `mail.auth.fastapi`."""

from mail.auth.fastapi import *  # noqa: F403
