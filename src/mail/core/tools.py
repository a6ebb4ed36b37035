"""Documented import path of `mail.core.protocol`, `mail.core.turns.tools` and `mail.factories.tools`."""

from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.tool_schemas import *  # noqa: F403
from mail.core.protocol.tool_schemas import pydantic_model_to_tool
from mail.core.task.client_tools import *  # noqa: F403
from mail.core.turns.tools import *  # noqa: F403
from mail.factories.tools import make_tools as _make_tools  # noqa: F401

MAIL_TOOL_NAMES = list(MAIL_TOOLS)
pydantic_function_tool = pydantic_model_to_tool
