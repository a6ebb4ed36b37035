"""The text of the `help` tool."""

from mail.core.protocol.mail_tools import MAIL_TOOLS, Help
from mail.core.task.swarm import AgentCore, SwarmCore

SUMMARY = """\
# MAIL in short
You are one of several agents that work on a task by sending each other mail. You are woken when there is
mail for you; everything you do in a turn is a tool call, and every turn calls at least one.
- send_request asks another agent; its answer comes later, as a message. Call await_message to wait for it.
- send_response answers a request.
- acknowledge_broadcast or ignore_broadcast takes note of a broadcast, or drops it.
- When your actions (tools outside MAIL) are done, you are woken with their results.
- Only a supervisor's task_complete gives the user an answer. Text outside tool calls reaches nobody.
- Subjects in ::double colons:: come from the system."""


def write_guide(request: Help, name: str, agent: AgentCore, swarm: SwarmCore) -> str:
    """Return the sections of the help text that the call requests."""
    sections = []
    if request.get_summary:
        sections.append(SUMMARY)
    if request.get_identity:
        sections.append(_identity(name, agent, swarm))
    if request.get_tool_help:
        sections.append("# Tools\n" + "\n".join(_tool(tool) for tool in request.get_tool_help))
    if request.get_full_protocol:
        sections.append(swarm.protocol or "The protocol text is not installed on this server.")
    return "\n\n".join(sections) or "Ask for at least one section of the help."


def _identity(name: str, agent: AgentCore, swarm: SwarmCore) -> str:
    lines = [
        "# Who you are",
        f"You are agent '{name}' of swarm '{swarm.name}' (version {swarm.version}).",
        f"You can write to: {', '.join(agent.comm_targets) or 'nobody'}.",
        f"Your actions: {', '.join(agent.actions) or 'none'}.",
        f"You {'can' if agent.can_complete_tasks else 'can not'} complete tasks.",
        f"The entrypoint of the swarm is '{swarm.entrypoint}'.",
    ]
    targets = [target for target in agent.comm_targets if target in swarm.agents]
    described = [(target, swarm.agents[target].description) for target in targets]
    lines[3:3] = [f"- {target}: {description}" for target, description in described if description]
    return "\n".join(lines)


def _tool(name: str) -> str:
    tool = MAIL_TOOLS.get(name)
    if tool is None:
        return f"{name}: unknown MAIL tool"
    arguments = ", ".join(
        f"{field}{'' if info.is_required() else ' (optional)'}: {info.description}"
        for field, info in tool.arguments().items()
    )
    return f"{name}: {tool.__doc__} Arguments: {arguments or 'none'}"
