"""Mailboxes for groups: registered entities send to one or to all, and read when they like.

    Mail, Exchange, OUTBOX          in memory
    DurableExchange, open_exchange  in a database that several processes share
    ExchangeBridge                  lets agents of a swarm answer mail
    exchange_actions                lets agents send mail by themselves

`elements` has the data structures, `mailboxes` the rules of a mailbox.
"""

from typing import TYPE_CHECKING

from mail.exchange.elements import Element, Flow, Pile, Progression
from mail.exchange.exchange import Exchange
from mail.exchange.mailboxes import OUTBOX, AlreadyRegistered, Mail, NotRegistered
from mail.startup import lazy_exports

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

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
