"""The MAIL protocol and engine: pure decisions, and one loop that performs them through ports.

The documented names of messages, addresses, tools, agents, actions and the runtime can be imported from here; they are
loaded when they are first used.
"""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.api.overrides import ActionOverrideFunction as ActionOverrideFunction
    from mail.api.runtime import MAILRuntime as MAILRuntime
    from mail.core.protocol.address import *  # noqa: F403
    from mail.core.protocol.interswarm import *  # noqa: F403
    from mail.core.protocol.message import *  # noqa: F403
    from mail.core.protocol.tool_schemas import *  # noqa: F403
    from mail.core.protocol.xml import *  # noqa: F403
    from mail.core.task.swarm import *  # noqa: F403
    from mail.core.tasks import MAILTask as MAILTask
    from mail.core.tools import MAIL_TOOL_NAMES as MAIL_TOOL_NAMES
    from mail.core.tools import pydantic_function_tool as pydantic_function_tool

_HOMES = homes_of(
    {
        "mail.api.overrides": "ActionOverrideFunction",
        "mail.api.runtime": "MAILRuntime",
        "mail.core.protocol.address": "AddressType MAILAddress create_admin_address create_agent_address "
        "create_system_address create_user_address format_agent_address parse_agent_address",
        "mail.core.protocol.interswarm": "MAILInterswarmMessage",
        "mail.core.protocol.message": "MAILBroadcast MAILInterrupt MAILMessage MAILRequest MAILResponse",
        "mail.core.protocol.tool_schemas": "AgentToolCall convert_call_to_mail_message "
        "create_acknowledge_broadcast_tool create_await_message_tool create_broadcast_tool create_help_tool "
        "create_ignore_broadcast_tool create_interrupt_tool create_interswarm_broadcast_tool create_mail_tools "
        "create_request_tool create_response_tool create_supervisor_tools create_swarm_discovery_tool "
        "create_task_complete_tool pydantic_model_to_tool",
        "mail.core.protocol.xml": "build_body_xml build_mail_xml",
        "mail.core.task.swarm": "ActionCore ActionFunction AgentCore AgentFunction",
        "mail.core.tasks": "MAILTask",
        "mail.core.tools": "MAIL_TOOL_NAMES pydantic_function_tool",
    }
)

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
