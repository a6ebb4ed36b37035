"""Environment variables that override keys of `mail.toml`, so that one image or bundle fits many deployments."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mail.errors import ConfigurationError

OFF = "none"
"""The same as 0."""

WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class _Variable(NamedTuple):
    """A key of a table of `[server]`. `read` raises ValueError for anything that is not `what`."""

    table: str
    key: str
    read: Callable[[str], Any]
    what: str


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = 0 if text == OFF else int(text)
        if value < least:
            raise ValueError
        return value

    return read


def _rate(text: str) -> float:
    value = 0.0 if text == OFF else float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def _truth(text: str) -> bool:
    if text not in WORDS:
        raise ValueError
    return WORDS[text]


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError
        return text

    return read


_VARIABLES: Mapping[str, _Variable] = {
    "MAIL_MAX_BODY_BYTES": _Variable("settings", "max_body_bytes", _whole(1), "a whole number from 1 on"),
    "MAIL_REQUESTS_PER_SECOND": _Variable("limits", "requests_per_second", _rate, "a number; 0 for no limit"),
    "MAIL_REQUEST_BURST": _Variable("limits", "request_burst", _whole(1), "a whole number from 1 on"),
    "MAIL_RUNNING_TASKS": _Variable("limits", "running_tasks", _whole(0), "a whole number; 0 for no limit"),
    "MAIL_MAILBOX_DEPTH": _Variable("limits", "mailbox_depth", _whole(0), "a whole number; 0 for no limit"),
    "MAIL_METRICS": _Variable(
        "telemetry", "metrics", _one_of("off", "admin", "public"), "off, admin or public"
    ),
    "MAIL_TRACES": _Variable("telemetry", "traces", _truth, "true or false"),
    "MAIL_LOG_FORMAT": _Variable("telemetry", "log_format", _one_of("text", "json"), "text or json"),
    "MAIL_WEBHOOKS_ALLOW_PRIVATE": _Variable("webhooks", "allow_private_addresses", _truth, "true or false"),
}


def read_environment(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the tables of `[server]` that the environment sets. Raises ConfigurationError, with the variable."""
    tables: dict[str, dict[str, Any]] = {}
    for name, variable in _VARIABLES.items():
        text = environ.get(name, "").strip().lower()
        if not text:
            continue
        try:
            value = variable.read(text)
        except ValueError:
            raise ConfigurationError(f"{name}: {text!r} is not {variable.what}") from None
        tables.setdefault(variable.table, {})[variable.key] = value
    return tables
