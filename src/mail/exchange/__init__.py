"""Mailboxes for groups: registered entities send to one or to all, and read when they like.

    Mail, Exchange, OUTBOX          in memory
    DurableExchange, open_exchange  in a database that several processes share
    ExchangeBridge                  lets agents of a swarm answer mail
    exchange_actions                lets agents send mail by themselves

`elements` and `flows` are the data structures, `mailboxes` the rules of a mailbox.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mail.exchange.elements import Element, Flow, Pile, Progression
from mail.exchange.exchange import Exchange
from mail.exchange.mailboxes import OUTBOX, AlreadyRegistered, Mail, NotRegistered

if TYPE_CHECKING:
    from mail.exchange.actions import exchange_actions
    from mail.exchange.bridge import ExchangeBridge
    from mail.exchange.durable import DurableExchange, open_exchange

__all__ = [
    "OUTBOX",
    "AlreadyRegistered",
    "DurableExchange",
    "Element",
    "Exchange",
    "ExchangeBridge",
    "Flow",
    "Mail",
    "NotRegistered",
    "Pile",
    "Progression",
    "exchange_actions",
    "open_exchange",
]

_HOMES = {
    "DurableExchange": "mail.exchange.durable",
    "ExchangeBridge": "mail.exchange.bridge",
    "exchange_actions": "mail.exchange.actions",
    "open_exchange": "mail.exchange.durable",
}
"""Names whose modules import databases or the engine, imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mail.exchange' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
