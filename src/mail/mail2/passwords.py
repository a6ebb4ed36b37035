"""Passwords: hashed by scrypt in threads, a few at a time; wrong ones slow down further attempts."""

import asyncio
import math
import secrets
import time
from base64 import b64decode, b64encode
from collections import OrderedDict
from hashlib import scrypt
from hmac import compare_digest

from mail.errors import RateLimited

N, R, P = 2**14, 8, 5
"""One of the settings that OWASP's Password Storage Cheat Sheet recommends: 16 MiB, some tenths of a second."""

CONCURRENT = 2

FREE_ATTEMPTS = 5
"""Wrong passwords in a row after which one has to wait: a second, then twice as long each time, at most a minute."""

MOST_SECONDS = 60.0
REMEMBERED = 10_000
"""Names with wrong passwords that a process remembers."""


class Passwords:
    """Hashes and verifies passwords. The count of wrong ones is this process's own."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(CONCURRENT)
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def hash(self, password: str) -> str:
        """Return what is stored of a password."""
        salt = secrets.token_bytes(16)
        key = await self._derive(password, salt, N, R, P)
        return f"scrypt${N}${R}${P}${b64encode(salt).decode()}${b64encode(key).decode()}"

    async def verify(self, password: str, stored: str) -> bool:
        """Return whether a password is the stored one; it takes as long if nothing is stored."""
        n, r, p, salt, key = stored.split("$")[1:] if stored else (str(N), str(R), str(P), "", "")
        derived = await self._derive(password, b64decode(salt), int(n), int(r), int(p))
        return compare_digest(derived, b64decode(key))

    def check_attempt(self, who: str) -> None:
        """Raise RateLimited if `who` has to wait after wrong passwords."""
        wrong, last = self._wrong.get(who, (0, 0.0))
        if wrong >= FREE_ATTEMPTS:
            seconds = min(MOST_SECONDS, 2.0 ** (wrong - FREE_ATTEMPTS)) - (time.monotonic() - last)
            if seconds > 0:
                raise RateLimited("too many wrong passwords; try again later", retry_after=math.ceil(seconds))

    def note_attempt(self, who: str, *, is_right: bool) -> None:
        """Count a wrong password, or forget the wrong ones after the right one."""
        wrong, _ = self._wrong.pop(who, (0, 0.0))
        if not is_right:
            self._wrong[who] = wrong + 1, time.monotonic()
            if len(self._wrong) > REMEMBERED:
                self._wrong.popitem(last=False)

    async def _derive(self, password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
        async with self._slots:
            return await asyncio.to_thread(
                scrypt,
                password.encode("utf-8", "surrogatepass"),
                salt=salt,
                n=n,
                r=r,
                p=p,
                maxmem=2**26,
                dklen=32,
            )
