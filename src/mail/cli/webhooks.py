"""The commands about webhooks: `mail webhook list`, `register`, `delete`."""

from collections.abc import Mapping
from typing import Any

from mail.cli.command import Command, option, positional, says, switch
from mail.cli.output import Output
from mail.cli.values import Task


def show_webhooks(answer: Mapping[str, Any], output: Output) -> None:
    """Print a line per webhook; for the webhooks of a task, with their delivery state."""
    rows = [
        (hook["id"], _state(hook), ", ".join(hook["events"]), _place(hook)) for hook in answer["webhooks"]
    ]
    output.table(("id", "state", "events", "url"), rows, none="no webhooks")


def _place(webhook: Mapping[str, Any]) -> str:
    return webhook["url"] if "url" in webhook else f"{webhook['host']} of {webhook['caller']}"


def _state(webhook: Mapping[str, Any]) -> str:
    if "failing" in webhook:
        return f"{webhook['tasks']} tasks, {webhook['waiting']} wait, {webhook['failing']} fail"
    if "delivered_to" not in webhook:
        return "registered"
    if webhook["waits_to"] is None:
        return f"nothing waits after {webhook['delivered_to']}"
    failures = webhook["failures"]
    retry = f", {failures} failures, next try {webhook['next_try'] or 'now'}" if failures else ""
    return f"waits to {webhook['waits_to']}{retry}"


COMMANDS = (
    Command(
        name="webhooks",
        shell_name="webhook list",
        summary="List your webhooks, or those of a task.",
        details="Those of a task are shown with their delivery state.",
        operation="get_webhooks",
        view=show_webhooks,
        arguments=(
            option("--task", "task_id", metavar="TASK", help="Only the webhooks of this task.", type=Task()),
            switch("--all", help="The webhooks of all callers. For admins."),
        ),
    ),
    Command(
        shell_name="webhook register",
        summary="Send events of your future tasks to a URL. Prints the webhook's id.",
        operation="register_webhook",
        view=says("{id}"),
        arguments=(
            positional("url", "The URL to send events to, such as https://example.com/hook.", metavar="URL"),
            option("--secret-ref", help="The server's secret to sign requests with, as ${WEBHOOK_SECRET_…}."),
            option(
                "--event",
                "events",
                metavar="KIND",
                multiple=True,
                callback=lambda _context, _parameter, kinds: list(kinds) or None,
                help="A kind of event, or * for all; may be repeated. [default: what ends or pauses a task]",
            ),
        ),
    ),
    Command(
        shell_name="webhook delete",
        summary="Delete a webhook. Tasks that began with it keep it.",
        details="For another caller's webhook, --caller also removes it from the tasks that have it.",
        operation="delete_webhook",
        view=says("webhook {id} is deleted"),
        arguments=(
            positional("webhook_id", "The id, as the list shows it.", metavar="ID"),
            option("--caller", help="The caller who has it, such as user:ann, if it is not you. For admins."),
        ),
    ),
)
