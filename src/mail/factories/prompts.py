"""The system prompt of an agent in a `mail.Swarm`: its own, and how MAIL works."""

from collections.abc import Mapping

HOW_TO_ANSWER = """\
You work by calling tools. Text beside tool calls reaches nobody; text without a tool call may be taken as your \
answer. Messages come to you as XML. When the user's request is done, call task_complete: its argument is the answer, \
and the user sees nothing else of your work, so it must be complete."""

HOW_TO_RESPOND = """\
You work by calling tools. Text beside tool calls reaches nobody; text without a tool call may be taken as your \
answer. Messages come to you as XML. Answer each request with send_response to its sender: it must be complete, as the \
sender sees nothing else of your work."""

HOW_TO_ASK = """\
To ask an agent, call send_request; ask all that you need at once, then call await_message. The agents you may write
to:"""


def system_prompt(own: str, team: Mapping[str, str], *, completes: bool) -> str:
    """Return the whole system prompt of an agent: its own, and how to work with these other agents.

    `team` has what the agents do, by name; `completes` says whether the agent may complete tasks.
    """
    paragraphs = [own, HOW_TO_ANSWER if completes else HOW_TO_RESPOND]
    if team:
        lines = [f"- {name}: {task}" if task else f"- {name}" for name, task in team.items()]
        paragraphs.append("\n".join([HOW_TO_ASK, *lines]))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def keep_how_to(changed: str, present: str) -> str:
    """Return a changed system prompt with what the present one says about MAIL, which the agent can't work without.

    Nothing is added to one that says it already, as a whole prompt that somebody has edited does.
    """
    for text in (HOW_TO_ANSWER, HOW_TO_RESPOND):
        start = present.rfind(text)
        if start >= 0 and text not in changed:
            return "\n\n".join(filter(None, (changed.rstrip(), present[start:])))
    return changed
