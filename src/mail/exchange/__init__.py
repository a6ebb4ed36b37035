"""Mailboxes for groups: whoever is registered sends to one or to all, and reads in its own time.

    Mail, Exchange, OUTBOX          in memory
    DurableExchange, open_exchange  in a database that several processes share
    ExchangeBridge                  agents of a swarm take part
    exchange_actions                agents send by themselves

`elements` and `flows` have what mailboxes are made of, `mailboxes` the rules that they keep to.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mail.exchange.elements import Element
from mail.exchange.exchange import Exchange
from mail.exchange.flows import Flow, Pile, Progression
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
"""The names that bring databases or the engine with them: loaded when they are first used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mail.exchange' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
