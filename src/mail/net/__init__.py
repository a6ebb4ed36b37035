"""HTTP to other servers: the registry of swarms, delivery of their mail, and webhooks.

peers       Registry: the known swarms, their health and tokens; `directory` stores the entries
registry    SwarmRegistry: the same for programs, with the methods of MAIL 1.3.6
router      InterswarmRouter: delivers messages to other swarms
webhooks    HTTPWebhooks: sends events to the URLs of callers
http        the requests to other swarms, which `aws_signature` signs for Lambda function URLs
"""

from mail.net.registry import SwarmRegistry
from mail.net.router import InterswarmRouter

__all__ = ["InterswarmRouter", "SwarmRegistry"]
