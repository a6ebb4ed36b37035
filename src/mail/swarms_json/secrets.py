"""Data that is to be shown, less what looks like a secret: rather too much is hidden than too little."""

import re
from typing import Any

HIDDEN = "(hidden)"

_SECRET = re.compile(
    r"token|secret|pass(word|wd|phrase|code)|pwd|credential|auth(?!ors?$)|bearer|jwt|cookie|session|signature|dsn$"
    r"|connection.?string|(^|[^a-z])(otp|pass|pin|pw|salt)$|key(s|id)?$|webhook|headers?$|^env(iron(ment)?)?$",
    re.IGNORECASE,
)
"""Names of what is secret, whatever it is: all headers and environment variables are, as any of them may be."""

_COUNT = re.compile(r"(max|min)_(\w+_)?tokens", re.IGNORECASE)
"""Names of what is a number of tokens, and no token."""

_IN_TEXT = re.compile(
    r"(?<=://)[^/\s@]+(?=@)"  # who asks, in a URL
    r"|(?<=[?&;])[^=&\s]*(token|secret|passw|key|auth|sig)[^=&\s]*=[^&\s]+"  # or in its query
    r"|\bbearer\s+[\w.~+/=-]{8,}"
    r"|\b(sk|pk|rk|ghp|gho|xox[a-z])[-_][\w-]{8,}|\bAKIA[A-Z0-9]{12,}|\beyJ[\w-]{8,}\.[\w.-]+",
    re.IGNORECASE,
)
"""What is secret in a text, whatever its name."""


def without_secrets(value: Any) -> Any:
    """JSON with `HIDDEN` in the place of secrets: what has the name of one, of any type, and what looks like one."""
    match value:
        case dict():
            return {
                key: _shown(str(value.get("name", "")) if key == "value" else key, item)
                for key, item in value.items()
            }
        case list():
            return [without_secrets(item) for item in value]
        case str():
            return _IN_TEXT.sub(HIDDEN, value)
        case _:
            return value


def _shown(name: str, value: Any) -> Any:
    """What is shown of a named value. Yes, no and nothing are no secrets, nor is how many tokens there may be."""
    if value is None or isinstance(value, bool) or not _SECRET.search(name):
        return without_secrets(value)
    is_count = isinstance(value, int | float) and _COUNT.fullmatch(name)
    return value if is_count else HIDDEN
