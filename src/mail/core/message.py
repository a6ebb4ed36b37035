"""Messages, addresses and their XML form: a documented import path for `mail.core.protocol`."""

from mail.core.protocol.address import *  # noqa: F403
from mail.core.protocol.interswarm import *  # noqa: F403
from mail.core.protocol.message import *  # noqa: F403
from mail.core.protocol.xml import *  # noqa: F403
