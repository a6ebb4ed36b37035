"""Other swarms over HTTP: which ones there are, and how mail reaches them.

registry.py     SwarmRegistry: who they are, where, how they are, and with which token they are called
router.py       InterswarmRouter: hands mail over to them
webhooks.py     HTTPWebhooks: sends events to the URLs that callers name
connection.py   the requests that the first two make, and what answers them
"""

from mail.net.registry import SwarmRegistry
from mail.net.router import InterswarmRouter

__all__ = ["InterswarmRouter", "SwarmRegistry"]
