"""The operations of a MAIL server: one row per endpoint.

`MAILClient` has a method for each row, by the same name, and the commands of `mail` call these methods.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a server.

    Attributes:
        url: a path on the server, or a URL that the server has returned.
        query: its parameters, not encoded yet.
        body: what becomes JSON.
        content: the body itself, if it is bytes.
        headers: the headers besides those of every request.
    """

    method: str
    url: str
    query: Mapping[str, str] = _NONE
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = _NONE
    content: bytes | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


@dataclass(frozen=True, slots=True)
class Operation:
    """An endpoint, and how its parameters travel: those of a POST in the body, all other ones in the URL.

    A parameter `content`, of bytes, is the body itself.

    Attributes:
        name: the method of `MAILClient`.
        cursor: the member of an answer, or the header, that leads to the next page; empty if pages are not joined.
        page: the parameter that asks for the next page.
        repeated: query parameters that are sent in the body as well.
        for_admins: whether only admins may perform it, whatever its parameters.
    """

    name: str
    method: str
    path: str
    cursor: str = ""
    page: str = "cursor"
    repeated: tuple[str, ...] = ()
    for_admins: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def request(self, parameters: Mapping[str, Any], headers: Mapping[str, str] = _NONE) -> Request:
        """Build the request. Parameters that are None are left out, and so are flags that are off in a URL."""
        given = {name: value for name, value in parameters.items() if value is not None}
        path = _PATH_PARAMETER.sub(lambda found: _segment(given.pop(found[1])), self.path)
        content = given.pop("content", None)
        if self.method == "POST" and content is None:
            return Request(self.method, path, body=given, headers=headers)
        query = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in given.items()
            if value is not False
        }
        body = {name: given[name] for name in self.repeated}
        return Request(self.method, path, query, body or None, headers, content)

    def next_cursor(self, headers: Mapping[str, str], page: Mapping[str, Any]) -> str | None:
        """Return the cursor of the next page; None after the last one, and if pages are not joined."""
        if not self.cursor:
            return None
        return headers.get(self.cursor) if self.cursor.startswith("x-") else page[self.cursor]


def _segment(value: str) -> str:
    """Return text as one segment of a path; URLs have a meaning of their own for `.` and `..`."""
    return value.replace(".", "%2E") if value in (".", "..") else quote(value, safe="")


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("ping", "GET", "/"),
        Operation("get_status", "GET", "/status"),
        Operation("get_whoami", "GET", "/whoami"),
        Operation("create_sign_in_link", "POST", "/sign-in-links"),
        Operation("sign_in_ways", "GET", "/sign-in"),
        Operation("sign_in", "POST", "/sign-in"),
        Operation("sign_out", "POST", "/sign-out"),
        Operation("get_tokens", "GET", "/tokens", for_admins=True),
        Operation("create_token", "POST", "/tokens", for_admins=True),
        Operation("revoke_token", "DELETE", "/tokens/{number}", for_admins=True),
        Operation("get_audit", "GET", "/audit", cursor="cursor", for_admins=True),
        Operation("get_live", "GET", "/live"),
        Operation("get_health", "GET", "/health"),
        Operation("update_health", "POST", "/health", for_admins=True),
        Operation("post_message", "POST", "/message"),
        Operation("get_tasks", "GET", "/tasks", cursor="x-next-cursor"),
        # Servers in use read the id from the body, which proxies drop.
        Operation("get_task", "GET", "/task", cursor="x-next-cursor", page="after", repeated=("task_id",)),
        Operation("get_turn", "GET", "/task/turn"),
        Operation("get_turns", "GET", "/task/turns", cursor="x-next-cursor"),
        Operation("watch_task", "GET", "/task/stream"),
        Operation("export_task", "GET", "/task/export"),
        Operation("share_task", "POST", "/task/shares"),
        Operation("get_task_shares", "GET", "/task/shares"),
        Operation("revoke_task_share", "DELETE", "/task/shares/{number}"),
        Operation("get_shared_task", "GET", "/task/shared"),
        Operation("fork_task", "POST", "/task/fork"),
        Operation("get_comparison", "GET", "/task/comparison"),
        Operation("cancel_task", "POST", "/task/cancel"),
        Operation("post_callback", "POST", "/callbacks/{token}"),
        Operation("delete_task", "DELETE", "/task"),
        Operation("cancel_call", "DELETE", "/task/calls/{call_id}"),
        Operation("cancel_timer", "DELETE", "/task/timers/{timer_id}"),
        Operation("upload_file", "POST", "/files"),
        Operation("get_file", "GET", "/files/{file_id}"),
        Operation("get_shared_file", "GET", "/files/shared/{link}"),
        Operation("get_usage", "GET", "/usage", cursor="cursor"),
        Operation("get_approvals", "GET", "/approvals", cursor="next_cursor"),
        Operation("get_approval", "GET", "/approvals/{approval_id}"),
        Operation("decide_approval", "POST", "/approvals/{approval_id}"),
        Operation("get_dead_letters", "GET", "/dead-letters", cursor="next_cursor"),
        Operation("redrive_dead_letters", "POST", "/dead-letters/redrive", cursor="next_cursor"),
        Operation("discard_dead_letters", "POST", "/dead-letters/discard", cursor="next_cursor"),
        Operation("get_threads", "GET", "/threads"),
        Operation("get_thread", "GET", "/threads/{thread_id}"),
        Operation("get_webhooks", "GET", "/webhooks"),
        Operation("register_webhook", "POST", "/webhooks"),
        Operation("delete_webhook", "DELETE", "/webhooks/{webhook_id}"),
        Operation("get_schedules", "GET", "/schedules"),
        Operation("get_schedule", "GET", "/schedules/{name}"),
        Operation("create_schedule", "POST", "/schedules"),
        Operation("change_schedule", "POST", "/schedules/{name}"),
        Operation("delete_schedule", "DELETE", "/schedules/{name}"),
        Operation("run_schedule", "POST", "/schedules/{name}/run"),
        Operation("get_caller", "GET", "/callers/{caller}", for_admins=True),
        Operation("delete_caller", "DELETE", "/callers/{caller}", for_admins=True),
        Operation("get_holds", "GET", "/holds", for_admins=True),
        Operation("set_hold", "POST", "/holds", for_admins=True),
        Operation("lift_hold", "DELETE", "/holds", for_admins=True),
        Operation("get_swarm", "GET", "/swarm"),
        Operation("get_swarms", "GET", "/swarms"),
        Operation("register_swarm", "POST", "/swarms", for_admins=True),
        Operation("dump_swarm", "GET", "/swarms/dump", for_admins=True),
        Operation("get_swarm_versions", "GET", "/swarms/versions", for_admins=True, cursor="cursor"),
        Operation("get_swarm_drafts", "GET", "/drafts", for_admins=True),
        Operation("get_swarm_draft", "GET", "/drafts/{name}", for_admins=True),
        Operation("save_swarm_draft", "POST", "/drafts/{name}", for_admins=True),
        Operation("delete_swarm_draft", "DELETE", "/drafts/{name}", for_admins=True),
        Operation("publish_swarm_draft", "POST", "/drafts/{name}/publish", for_admins=True),
        Operation("withdraw_swarm_draft", "DELETE", "/drafts/{name}/publish", for_admins=True),
        Operation("check_swarm_json", "POST", "/swarms/check", for_admins=True),
        Operation("load_swarm_from_json", "POST", "/swarms/load", for_admins=True),
        Operation("post_interswarm_message", "POST", "/interswarm/forward"),
        Operation("post_interswarm_response", "POST", "/interswarm/back"),
        Operation("send_interswarm_message", "POST", "/interswarm/message"),
        Operation("debug_post_responses", "POST", "/responses"),
    )
}
