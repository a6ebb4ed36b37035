"""`MAILClient`: a method for every endpoint of a MAIL server."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from mimetypes import guess_type
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic_core import to_json, to_jsonable_python

from mail.client.connection import read_json
from mail.client.errors import InvalidRequest
from mail.client.messaging import IDEMPOTENCY_KEY, MessageOptions, Messaging, repeat
from mail.client.operations import OPERATIONS

if TYPE_CHECKING:
    from openai.types.responses import Response

    from mail.core.protocol.interswarm import MAILInterswarmMessage

JSONObject = dict[str, Any]

PAGE = 1000
"""The longest page that servers return."""


class MAILClient(Messaging):
    """An asynchronous client of one MAIL server.

        async with MAILClient("http://localhost:8000", api_key="…") as client:
            print(await client.post_message("weather in Tokyo"))

    Its methods return the server's answers, which `spec/openapi.yaml` describes, and raise `MAILClientError`, a
    RuntimeError. Without `async with`, close it with `aclose()`.

    Args:
        base_url: the server: `http://host:port`, `https://host`, or `swarm://connect?server=host&token=key`. `url` is
            an alias.
        api_key: sent as a bearer token; takes precedence over the token of the URL.
        session: an `AsyncClient` of httpx2 or httpx, or an `aiohttp.ClientSession`, to send requests with. It is not
            closed, and its time limits apply unless they are its library's defaults.
        config: how long to wait for an answer, and whether to log requests as INFO instead of DEBUG; the default is
            `[client]` of `mail.toml`.
    """

    # ------------------------------------------------------------------------------------------ the server

    async def ping(self) -> JSONObject:
        """Return the service's name, protocol version and swarm."""
        return await self._ask("ping")

    async def get_status(self) -> JSONObject:
        """Return whether the swarm is ready, and whether the caller has tasks."""
        return await self._ask("get_status")

    async def get_whoami(self) -> JSONObject:
        """Return the caller's id and role."""
        return await self._ask("get_whoami")

    async def login(self, api_key: str) -> JSONObject:
        """Use this key from now on, and return the caller's id and role. A key that is refused changes nothing."""
        before, self.api_key = self.api_key, api_key
        try:
            return await self.get_whoami()
        except BaseException:
            self.api_key = before
            raise

    async def get_live(self) -> JSONObject:
        """Return that the server's process answers, whatever its database does."""
        return await self._ask("get_live")

    async def get_health(self) -> JSONObject:
        """Return the swarm's health."""
        return await self._ask("get_health")

    async def update_health(self, status: str) -> JSONObject:
        """Set the health that the swarm reports. For admins."""
        return await self._ask("update_health", status=status)

    async def _list(
        self, operation: str, name: str, most: int | None = None, /, **parameters: Any
    ) -> list[JSONObject]:
        """Return the first `most` entries of what an operation lists under a name, page by page; None for all."""
        none: list[JSONObject] = []
        pages = self._ask_pages(operation, none, lambda found, page: found + page[name], most, **parameters)
        return (await pages)[:most]

    # ----------------------------------------------------------------------------------------------- tokens

    async def create_sign_in_link(self) -> JSONObject:
        """Make a link that signs a browser in as the caller, once: its `code` is for `/ui#sign-in=CODE`."""
        return await self._ask("create_sign_in_link")

    async def sign_in_ways(self) -> JSONObject:
        """Return the identity `provider` at which people sign in to the page, if the server has one."""
        return await self._ask("sign_in_ways")

    async def sign_in(
        self, code: str, verifier: str | None = None, redirect_uri: str | None = None
    ) -> JSONObject:
        """Exchange the code of a sign-in link for a `token` that expires, and use it from now on.

        With `verifier`, the code is one that the identity provider has sent to `redirect_uri`.
        """
        session = await self._ask("sign_in", code=code, verifier=verifier, redirect_uri=redirect_uri)
        self.api_key = session["token"]
        return session

    async def sign_out(self) -> JSONObject:
        """Revoke the token of a sign-in link. Other keys stay valid."""
        return await self._ask("sign_out")

    async def get_tokens(self) -> list[JSONObject]:
        """Return all tokens that the server has issued, without their texts. For admins."""
        return await self._list("get_tokens", "tokens")

    async def create_token(self, role: str, id: str, *, expires_in: int | None = None) -> JSONObject:  # noqa: A002
        """Create a token for a caller, which expires after some seconds; its text is `token`. For admins."""
        return await self._ask("create_token", role=role, id=id, expires_in=expires_in)

    async def revoke_token(self, number: str) -> JSONObject:
        """Revoke the token with this number, and the sessions of its sign-in links. For admins."""
        return await self._ask("revoke_token", number=number)

    async def get_audit(
        self,
        *,
        caller: str | None = None,
        act: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
    ) -> list[JSONObject]:
        """Return who did what with rights, the newest entry first. For admins.

        Of all entries, or of what a `caller` (`admin:root`) did, of one `act` (`create token`), since a time and before
        another. Reads page after page until there are `limit` entries; None reads all of them.
        """
        size = PAGE if limit is None else min(limit, PAGE)
        whose = {"caller": caller, "act": act, "since": _time(since), "until": _time(until)}
        return await self._list("get_audit", "entries", limit, limit=size, **whose)

    # ------------------------------------------------------------------------------------------------ tasks

    async def get_tasks(
        self,
        *,
        status: str | None = None,
        limit: int | None = None,
        summary: bool = False,
        caller: str | None = None,
        all: bool = False,  # noqa: A002 - the server's name for it
        query: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        min_cost: float | None = None,
        forks: bool = True,
    ) -> dict[str, JSONObject]:
        """Return the caller's tasks by task id, newest first.

        With `status`, only tasks in this state (running, paused, completed, failed, cancelled). Reads page after page
        until there are `limit` tasks; None reads all of them. With `summary`, they come without their events and
        waiting messages. For admins, `summary` also allows the tasks of another `caller`, or `all`, by
        `caller#task_id`.

        `query` is plain text whose words are searched for in titles, ids, messages and names of agents. A search may
        also ask for tasks that have last changed `since` or `until` a time, or whose models have cost at least
        `min_cost` US dollars. The last changed task is the first then, and `excerpt` has what a message says around the
        words, in pieces, every second of which is one of them. `forks` may be left out.
        """
        size = None if limit is None else min(limit, PAGE)
        none: dict[str, JSONObject] = {}
        tasks = await self._ask_pages(
            "get_tasks",
            none,
            lambda tasks, page: tasks | page,
            limit,
            status=status,
            limit=size,
            fields="summary" if summary else None,
            caller=caller,
            all=all,
            q=query,
            since=_time(since),
            until=_time(until),
            min_cost=min_cost,
            forks=None if forks else "false",
        )
        return dict(islice(tasks.items(), limit))

    async def get_task(
        self,
        task_id: str,
        *,
        at: int | None = None,
        summary: bool = False,
        items: bool = False,
        caller: str | None = None,
        reason: str | None = None,
    ) -> JSONObject:
        """Return a task of the caller: state, events, queued mail; with `at`, as of the event with this id.

        With `summary`, it comes without its events and waiting messages; with `items`, with what its events mean. Where
        the server allows it, admins can name another `caller`, the owner of the task, who sees the `reason`.
        """
        whose = {"caller": caller, "reason": reason}
        if items and at is None:
            none: JSONObject = {"events": [], "items": []}
            task = await self._ask_pages("get_task", none, _join_pages, task_id=task_id, items=True, **whose)
            return task | {"items": list({item["id"]: item for item in task["items"]}.values())}
        fields = "summary" if summary else None
        return await self._ask("get_task", task_id=task_id, at=at, fields=fields, items=items, **whose)

    async def get_turn(
        self,
        task_id: str,
        seq: int,
        *,
        limit: int | None = None,
        caller: str | None = None,
        reason: str | None = None,
    ) -> JSONObject:
        """Return the turn of an agent to which an event (seq) belongs: what the agent read and replied, and its tools.

        `limit` is how many entries of its history there are at most; None for 50. `caller` and `reason` are those of
        `get_task`.
        """
        return await self._ask(
            "get_turn", task_id=task_id, seq=seq, limit=limit, caller=caller, reason=reason
        )

    async def get_turns(self, task_id: str, *, caller: str | None = None) -> list[JSONObject]:
        """Return all turns of a task that are over: agents, times, tokens, cost and states, no text.

        Admins can name another `caller`, the owner of the task (`user:ann`).
        """
        return await self._list("get_turns", "turns", task_id=task_id, caller=caller)

    async def fork_task(
        self,
        task_id: str,
        at: int | Literal["message"] | None = None,
        *,
        run: bool = False,
        actions: Literal["run", "ask", "refuse"] | None = None,
        draft: str | None = None,
        idempotency_key: str | None = None,
    ) -> JSONObject:
        """Create a new task from the state of another one at an event (None: now), and return its `task_id`.

        At `message`, it is the state after the last message of a person. If the original was running then, the fork is
        paused until it gets a message; with `run` it runs immediately. `actions` says what happens to calls of actions
        that are not declared read-only: they `run`, each waits for an approval (`ask`), or the agent reads that it was
        not run (`refuse`); None for what the original has, which is `run` for a task that is not a fork. Admins and
        testers can try a `draft` of the swarm, on which the fork stays. With an `idempotency_key`, there is one fork
        however often this is called, and the request is sent again if the connection breaks.
        """
        request = {"task_id": task_id, "at": at, "run": run, "actions": actions, "draft": draft}
        if idempotency_key is None:
            return await self._ask("fork_task", **request)
        headers = {IDEMPOTENCY_KEY: idempotency_key}
        return await repeat(lambda: self._ask("fork_task", headers, **request))

    async def get_comparison(self, task_id: str) -> JSONObject:
        """Return what a fork and its original each came to after they parted, and how their answers differ."""
        return await self._ask("get_comparison", task_id=task_id)

    async def cancel_task(
        self, task_id: str, reason: str = "", *, wait: float | None = None, caller: str | None = None
    ) -> JSONObject:
        """Cancel a running or paused task; a message resumes it. Admins can name another `caller`, its owner.

        The server waits up to `wait` seconds (None: ten) until everything has stopped. The answer's `stopped` says
        whether it has; if not, the answer lists what still runs.
        """
        headers = {} if wait is None else {"Prefer": f"wait={wait:.0f}"}
        return await self._ask("cancel_task", headers, task_id=task_id, reason=reason, caller=caller)

    async def post_callback(
        self,
        token: str,
        *,
        result: Any = None,
        error: str | None = None,
        progress: str | None = None,
        heartbeat: bool = False,
    ) -> JSONObject:
        """Finish a call of an action with its result or an error, or report on its progress, or that it is alive.

        The token is that of the call (`ctx.callback`); no API key is needed. Raises BadAnswer with status 404 for an
        unknown token, and 409 for a call that has ended with another result, or too late.
        """
        given = {"result": result, "error": error, "progress": progress, "heartbeat": heartbeat or None}
        return await self._ask("post_callback", token=token, **given)

    async def delete_task(self, task_id: str, *, caller: str | None = None) -> JSONObject:
        """Delete a task that has stopped, with everything that it stores. Admins can name another `caller`, its owner.

        Raises ServerError with status 409 while the task runs. Forks of it keep their copies.
        """
        return await self._ask("delete_task", task_id=task_id, caller=caller)

    async def export_task(
        self, task_id: str, *, files: bool = False, form: Literal["lines", "markdown"] = "lines"
    ) -> bytes:
        """Return everything that is stored of a task, as lines of JSON; with `files`, also the bytes of its files.

        The form `markdown` is its conversation as a text for people.
        """
        return await self._bytes_of("export_task", task_id=task_id, files=files, form=form)

    async def share_task(self, task_id: str, *, days: float | None = None) -> JSONObject:
        """Make a link with which anybody can read a task, by default for 7 days; its `code` is for `/ui#shared=CODE`.

        It shows the conversation and the trace, no prompts, and no arguments or results of actions.
        """
        return await self._ask("share_task", task_id=task_id, days=days)

    async def get_task_shares(self, task_id: str, *, caller: str | None = None) -> JSONObject:
        """Return the links to a task that can be used, as `shares`. Admins can name another `caller`, its owner."""
        return await self._ask("get_task_shares", task_id=task_id, caller=caller)

    async def revoke_task_share(self, task_id: str, number: str, *, caller: str | None = None) -> JSONObject:
        """Revoke the link to a task with this number. Admins can name another `caller`, its owner."""
        return await self._ask("revoke_task_share", task_id=task_id, number=number, caller=caller)

    async def get_shared_task(self, code: str, *, after: int = 0) -> JSONObject:
        """Return what the link with this code shows of its task after an event; needs no key.

        If `next` is not None, there is more after that event.
        """
        return await self._ask("get_shared_task", {"Authorization": f"Bearer {code}"}, after=after)

    async def cancel_call(self, task_id: str, call_id: str) -> JSONObject:
        """Cancel a call of an action that finishes later; its agent reads an error.

        `calls` of `get_task` has those that wait. Raises ServerError with status 404 if it has ended already.
        """
        return await self._ask("cancel_call", task_id=task_id, call_id=call_id)

    async def cancel_timer(self, task_id: str, timer_id: str) -> JSONObject:
        """Cancel a reminder of a task's agent, or a message that was posted with `not_before`.

        `timers` of `get_task` has those that wait. Raises ServerError with status 404 if its mail has come already.
        """
        return await self._ask("cancel_timer", task_id=task_id, timer_id=timer_id)

    async def upload_file(
        self,
        file: str | Path | bytes,
        *,
        name: str | None = None,
        type: str | None = None,  # noqa: A002
    ) -> JSONObject:
        """Upload a file, and return `{"id", "name", "type", "bytes"}`; the id is for `files` of your messages.

        Args:
            file: its path, or its bytes.
            name: its name, for people and models; by default that of the path.
            type: its media type, such as `application/pdf`; by default what the name or its first bytes show.

        Raises OSError, and ServerError with status 413 if it is too large. It is deleted after a day unless a message
        refers to it.
        """
        data = file if isinstance(file, bytes) else await asyncio.to_thread(Path(file).read_bytes)
        name = name or ("" if isinstance(file, bytes) else Path(file).name)
        kind = type or guess_type(name)[0] or "application/octet-stream"
        return await self._ask("upload_file", {"Content-Type": kind}, content=data, name=name or None)

    async def get_file(self, file_id: str) -> bytes:
        """Return the bytes of a file that you have uploaded, or that belongs to one of your tasks."""
        return await self._bytes_of("get_file", file_id=file_id)

    async def get_shared_file(self, link: str) -> bytes:
        """Return the bytes of a file of a message to another swarm, by the link that the message has; needs no key."""
        return await self._bytes_of("get_shared_file", link=link)

    async def _bytes_of(self, operation: str, **parameters: str | bool) -> bytes:
        async with self._deadline(str(OPERATIONS[operation])):
            response = await self._request(operation, parameters)
        if not response.is_success:
            read_json(response)
        return response.content

    async def get_usage(
        self,
        *,
        task_id: str | None = None,
        caller: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        version: str | None = None,
        per_task: bool = False,
    ) -> JSONObject:
        """Return the tokens and cost of the caller's tasks by agent, model and more; with `per_task`, also by task.

        Counts one task, or the tasks that began at `since` or later and before `until`; with the digest of a `version`
        of the swarm, those whose last run began with it. Admins see the tasks of all callers, or of `caller`.
        Servers count a thousand tasks per page; the pages are added up.
        """
        none: JSONObject = {}
        return await self._ask_pages(
            "get_usage",
            none,
            _add_usage,
            task_id=task_id,
            caller=caller,
            per_task=per_task,
            version=version,
            since=_time(since),
            until=_time(until),
        )

    # ----------------------------------------------------------------------------------------- dead letters

    async def get_approvals(self) -> list[JSONObject]:
        """Return the calls that wait for a decision, of the caller's tasks, and those that it may review."""
        return await self._list("get_approvals", "approvals")

    async def get_needs(self) -> JSONObject:
        """Return what needs the caller: up to 50 `approvals`, and `tasks` with questions, failures or dead letters.

        Tasks that wait for others are there, too. Each of the `tasks` has its `need`, and the summary of the `task`.
        """
        return await self._ask("get_approvals", limit=50)

    async def get_approval(self, approval_id: str) -> JSONObject:
        """Return a call that waits for a decision."""
        return await self._ask("get_approval", approval_id=approval_id)

    async def decide_approval(
        self,
        approval_id: str,
        decision: Literal["approve", "edit", "answer", "reject"],
        *,
        arguments: Mapping[str, Any] | None = None,
        reason: str = "",
        answer: str = "",
        arguments_sha256: str | None = None,
    ) -> JSONObject:
        """Decide on a call, of the caller's tasks or that it may review, or give the `answer` to the question it asks.

        The caller need not be the owner of the task.

        With the `arguments_sha256` of the call, it is refused for other arguments. Raises as other methods: 404 if the
        call no longer waits, 403 if others decide on it.
        """
        return await self._ask(
            "decide_approval",
            approval_id=approval_id,
            decision=decision,
            arguments=arguments,
            reason=reason,
            answer=answer,
            arguments_sha256=arguments_sha256,
        )

    async def get_dead_letters(
        self, *, task_id: str | None = None, caller: str | None = None, limit: int | None = None
    ) -> list[JSONObject]:
        """Return the dead letters of the caller's tasks or of one task, those of the newest tasks first.

        Admins see those of all callers, or of `caller` (`user:ann@swarm`). Reads page after page until there are
        `limit` dead letters; None reads all of them.
        """
        size = None if limit is None else min(limit, PAGE)
        whose = {"task_id": task_id, "caller": caller}
        return await self._list("get_dead_letters", "dead_letters", limit, limit=size, **whose)

    async def redrive_dead_letters(
        self,
        task_id: str | None = None,
        seq: int | None = None,
        *,
        caller: str | None = None,
        all: bool = False,  # noqa: A002 - the server's name for it
    ) -> JSONObject:
        """Process dead letters again: one of a task, all of a task, or `all` that the caller may see.

        The answer's `redriven` lists those that are processed again, `failed` the rest with the reasons.
        """
        return await self._settle_dead_letters("redrive", "redriven", task_id, seq, caller, all)

    async def discard_dead_letters(
        self,
        task_id: str | None = None,
        seq: int | None = None,
        *,
        caller: str | None = None,
        all: bool = False,  # noqa: A002 - the server's name for it
    ) -> JSONObject:
        """Remove dead letters from the list without processing them; select them as for `redrive_dead_letters`.

        The answer's `discarded` lists those that were removed.
        """
        return await self._settle_dead_letters("discard", "discarded", task_id, seq, caller, all)

    async def _settle_dead_letters(
        self, action: str, done: str, task_id: str | None, seq: int | None, caller: str | None, every: bool
    ) -> JSONObject:
        none: JSONObject = {done: [], "failed": []}
        return await self._ask_pages(
            f"{action}_dead_letters",
            none,
            lambda answer, page: {name: answer[name] + page[name] for name in answer},
            task_id=task_id,
            seq=seq,
            caller=caller,
            all=every or None,
        )

    # ---------------------------------------------------------------------------------------------- threads

    async def get_threads(
        self,
        *,
        task_id: str | None = None,
        bead: str | None = None,
        pending: bool = False,
        overdue: bool = False,
        unfinished: bool = False,
        ack_within: float | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JSONObject:
        """Return a page of `limit` threads, those of the caller's newest tasks first, or the threads of one task.

        Filters: threads about a `bead`, with messages that are `pending` acknowledgement, or `overdue` because they
        have waited longer than `ack_within` seconds, or `unfinished` ones. The answer's `next_cursor` leads to the next
        page.
        """
        return await self._ask(
            "get_threads",
            task_id=task_id,
            bead=bead,
            pending=pending,
            overdue=overdue,
            open=unfinished,
            ack_within=ack_within,
            limit=limit,
            cursor=cursor,
        )

    async def get_thread(
        self, thread_id: str, *, task_id: str | None = None, ack_within: float | None = None
    ) -> JSONObject:
        """Return a thread: its summary, and its messages, each below the one it answers."""
        return await self._ask("get_thread", thread_id=thread_id, task_id=task_id, ack_within=ack_within)

    # --------------------------------------------------------------------------------------------- webhooks

    async def get_webhooks(self, task_id: str | None = None, *, all: bool = False) -> JSONObject:  # noqa: A002 - the server's name for it
        """Return the caller's registered webhooks, or those of a task with their delivery state; for admins, `all`."""
        return await self._ask("get_webhooks", task_id=task_id, all=all)

    async def register_webhook(
        self, url: str, secret_ref: str | None = None, events: Sequence[str] | None = None
    ) -> JSONObject:
        """Send events of the caller's future tasks to a URL.

        `events` selects the kinds of event, `["*"]` all; by default those that end or pause a task. With `secret_ref`
        (`${WEBHOOK_SECRET_…}`, a secret of the server) requests are signed; check them with `mail.webhooks.verify`.
        """
        kinds = None if events is None else list(events)
        return await self._ask("register_webhook", url=url, secret_ref=secret_ref, events=kinds)

    async def delete_webhook(self, webhook_id: str, *, caller: str | None = None) -> JSONObject:
        """Delete a registered webhook; tasks that began with it keep it.

        Admins who name another `caller` disable it, in that caller's newest tasks as well.
        """
        return await self._ask("delete_webhook", webhook_id=webhook_id, caller=caller)

    # -------------------------------------------------------------------------------------------- schedules

    async def get_schedules(self) -> list[JSONObject]:
        """Return the caller's schedules with their last runs; for admins, those of all callers."""
        return await self._list("get_schedules", "schedules")

    async def get_schedule(self, name: str) -> JSONObject:
        """Return a schedule with its last runs."""
        return await self._ask("get_schedule", name=name)

    async def create_schedule(
        self,
        name: str,
        cron: str,
        body: str,
        *,
        timezone: str | None = None,
        entrypoint: str | None = None,
        subject: str | None = None,
        caller: str | None = None,
        overlap: Literal["skip", "queue", "cancel"] | None = None,
        missed: Literal["once", "skip", "all"] | None = None,
        enabled: bool | None = None,
    ) -> JSONObject:
        """Have the server post a message at the times of a cron expression, as the caller; admins can name another one.

        `overlap` says what happens if the last run has not ended (None: `skip`), `missed` which times the server makes
        up for after it was down (None: `once`).
        """
        given = {"timezone": timezone, "entrypoint": entrypoint, "subject": subject, "caller": caller}
        given |= {"overlap": overlap, "missed": missed}
        return await self._ask("create_schedule", name=name, cron=cron, body=body, enabled=enabled, **given)

    async def change_schedule(
        self,
        name: str,
        *,
        cron: str | None = None,
        body: str | None = None,
        timezone: str | None = None,
        entrypoint: str | None = None,
        subject: str | None = None,
        overlap: Literal["skip", "queue", "cancel"] | None = None,
        missed: Literal["once", "skip", "all"] | None = None,
        enabled: bool | None = None,
    ) -> JSONObject:
        """Change the given fields of a schedule; with `enabled=False`, it no longer runs by itself."""
        given = {"timezone": timezone, "entrypoint": entrypoint, "subject": subject}
        given |= {"overlap": overlap, "missed": missed}
        return await self._ask("change_schedule", name=name, cron=cron, body=body, enabled=enabled, **given)

    async def delete_schedule(self, name: str) -> JSONObject:
        """Delete a schedule; the tasks of its runs stay."""
        return await self._ask("delete_schedule", name=name)

    async def run_schedule(self, name: str) -> JSONObject:
        """Begin a run of a schedule now, and return it, with its `task_id`."""
        return await self._ask("run_schedule", name=name)

    # ---------------------------------------------------------------------------------------------- callers

    async def get_caller(self, caller: str) -> JSONObject:
        """Return how far the deletion of a caller (`user:ann`) has come, and the caller's holds. For admins."""
        return await self._ask("get_caller", caller=caller)

    async def delete_caller(self, caller: str) -> JSONObject:
        """Begin to delete everything that the server stores about a caller, and return how far that has come.

        `get_caller` shows its progress. Raises ServerError with status 409 if something is on hold. For admins.
        """
        return await self._ask("delete_caller", caller=caller)

    async def get_holds(self) -> list[JSONObject]:
        """Return what nobody may delete, the oldest hold first. For admins."""
        return await self._list("get_holds", "holds")

    async def set_hold(self, caller: str, reason: str, *, task_id: str | None = None) -> JSONObject:
        """Keep a caller's task, or everything of the caller, from being deleted. For admins."""
        return await self._ask("set_hold", caller=caller, reason=reason, task_id=task_id)

    async def lift_hold(self, caller: str, *, task_id: str | None = None) -> JSONObject:
        """Lift the hold on a caller's task, or on everything of the caller. For admins."""
        return await self._ask("lift_hold", caller=caller, task_id=task_id)

    # ----------------------------------------------------------------------------------------------- swarms

    async def get_swarm(self, *, prompts: bool = False) -> JSONObject:
        """Return the server's own swarm: its agents, their tools, and who may write to whom.

        Admins get the system prompts as well with `prompts`.
        """
        return await self._ask("get_swarm", prompts=prompts or None)

    async def get_swarms(self, *, all: bool = False) -> JSONObject:  # noqa: A002 - the server's name for it
        """Return the public swarms that the server knows; for admins, `all` of them."""
        return await self._ask("get_swarms", all=all)

    async def register_swarm(
        self,
        name: str,
        base_url: str,
        auth_token: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        volatile: bool | None = None,
    ) -> JSONObject:
        """Register another swarm with the server; with `volatile`, only until the server restarts. For admins.

        With the URL of an agent card, it is an agent that is called by A2A.
        """
        return await self._ask(
            "register_swarm",
            name=name,
            base_url=base_url,
            auth_token=auth_token,
            metadata=metadata,
            volatile=volatile,
        )

    async def dump_swarm(self) -> JSONObject:
        """Write the server's swarm to its log. For admins."""
        return await self._ask("dump_swarm")

    async def get_swarm_versions(self) -> JSONObject:
        """Return the present version of the swarm, those with which open tasks began, and what these need. For admins.

        Servers count a thousand tasks per page; the pages are added up.
        """
        none: JSONObject = {}
        return await self._ask_pages("get_swarm_versions", none, _add_versions)

    async def get_swarm_drafts(self) -> list[JSONObject]:
        """Return the drafts of the swarm by name. For admins."""
        return await self._list("get_swarm_drafts", "drafts")

    async def get_swarm_draft(self, name: str) -> JSONObject:
        """Return a draft of the swarm: its changes, how they differ from what runs, and its revisions. For admins."""
        return await self._ask("get_swarm_draft", name=name)

    async def save_swarm_draft(
        self, name: str, agents: Mapping[str, Mapping[str, Any]], testers: Sequence[str] = ()
    ) -> JSONObject:
        """Save what a draft changes, in place of what it changed before, and return it. For admins.

        `agents` has the changes of each agent: `system`, `llm`, `options` and `actions`; what is absent stays. Admins
        and the `testers`, such as `user:ann`, can try it with `fork_task(…, draft=name)`.
        """
        return await self._ask("save_swarm_draft", name=name, agents=agents, testers=list(testers))

    async def delete_swarm_draft(self, name: str) -> JSONObject:
        """Delete a draft; tasks that run on it continue. For admins."""
        return await self._ask("delete_swarm_draft", name=name)

    async def publish_swarm_draft(self, name: str) -> JSONObject:
        """Let new tasks use a draft of the swarm. For admins."""
        return await self._ask("publish_swarm_draft", name=name)

    async def withdraw_swarm_draft(self, name: str) -> JSONObject:
        """Let new tasks use the swarm without the published draft again. For admins."""
        return await self._ask("withdraw_swarm_draft", name=name)

    async def check_swarm_json(self, json_str: str) -> JSONObject:
        """Return whether an entry of swarms.json, given as JSON text, could be loaded, and its problems. For admins."""
        return await self._ask("check_swarm_json", json=json_str)

    async def load_swarm_from_json(self, json_str: str = "", *, swarm_json: str = "") -> JSONObject:
        """Replace the server's swarm by an entry of swarms.json, given as JSON text. For admins.

        `swarm_json` is an alias of `json_str`.
        """
        return await self._ask("load_swarm_from_json", json=json_str or swarm_json)

    # ------------------------------------------------------------------------------------------- interswarm

    async def post_interswarm_message(
        self, message: "MAILInterswarmMessage | Mapping[str, Any]"
    ) -> JSONObject:
        """Deliver mail to another swarm for a task that is new to it. For swarms: the key's role is `agent`."""
        return await self._ask("post_interswarm_message", message=_wrapper(message))

    async def post_interswarm_response(
        self, message: "MAILInterswarmMessage | Mapping[str, Any]"
    ) -> JSONObject:
        """Deliver mail to another swarm for a task that it already takes part in. For swarms."""
        return await self._ask("post_interswarm_response", message=_wrapper(message))

    async def send_interswarm_message(
        self,
        body: str,
        targets: Sequence[str],
        user_token: str | None = None,
        *,
        subject: str | None = None,
        msg_type: Literal["request", "broadcast"] | None = None,
        task_id: str | None = None,
        routing_info: Mapping[str, Any] | None = None,
        stream: bool | None = None,
        ignore_stream_pings: bool | None = None,
        idempotency_key: str | None = None,
        generation: int | None = None,
    ) -> JSONObject:
        """Send a message to agents of other swarms (`agent@swarm`) through the server, and wait for the answer.

        Returns `{"response": …, "events": …}`, where `response` is a message. Waits as `post_message` does, and takes
        its `idempotency_key` and `generation`. The message is sent on behalf of `user_token`, by default the client's
        own key. `stream` and `ignore_stream_pings` are passed to the other swarm; the answer is no stream.
        """
        options = MessageOptions(
            subject=subject,
            msg_type=msg_type,
            task_id=task_id,
            idempotency_key=idempotency_key,
            generation=generation,
        )
        return await self._send_interswarm(
            body,
            targets,
            user_token,
            options,
            routing_info=routing_info,
            stream=stream,
            ignore_stream_pings=ignore_stream_pings,
        )

    # ------------------------------------------------------------------------------------------------ debug

    async def debug_post_responses(
        self,
        input: Sequence[Any] | str,  # noqa: A002 - OpenAI's name for it
        tools: Sequence[Mapping[str, Any]],
        instructions: str | None = None,
        previous_response_id: str | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> "Response | SimpleNamespace":
        """Call the swarm through OpenAI's Responses API. Only on servers that run with `--debug`.

        `kwargs` are passed on unchanged. Returns the `Response` of the openai package if that is installed, else an
        object with the same attributes. Raises InvalidRequest for `stream`: use the openai package for streams.
        """
        answer = await self._post_responses(
            input=input,
            tools=tools,
            instructions=instructions,
            previous_response_id=previous_response_id,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            kwargs=kwargs or None,
        )
        return _as_response(answer)

    async def _post_responses(self, *, kwargs: Mapping[str, Any] | None, **fields: Any) -> JSONObject:
        if kwargs and kwargs.get("stream"):
            raise InvalidRequest("the response is not streamed; for a stream use the openai package")
        return await self._ask("debug_post_responses", kwargs=kwargs, **fields)


def _time(time: datetime | str | None) -> str | None:
    """Return a time in ISO 8601; a datetime without a zone is local time."""
    return time.astimezone().isoformat() if isinstance(time, datetime) else time


def _wrapper(message: "MAILInterswarmMessage | Mapping[str, Any]") -> JSONObject:
    """Return the message as it travels: `auth_token` and `metadata` may be empty there, but not absent."""
    try:
        fields: JSONObject = (
            to_jsonable_python(message) if isinstance(message, Mapping) else message.as_json()
        )
    except ValueError as error:
        raise InvalidRequest(f"the message can't be written as JSON: {error}") from error
    for name, empty in (("auth_token", ""), ("metadata", {})):
        if fields.get(name) is None:
            fields[name] = empty
    return fields


def _as_response(answer: JSONObject) -> "Response | SimpleNamespace":
    try:
        from openai.types.responses import Response
    except ImportError:
        return cast(
            SimpleNamespace, json.loads(to_json(answer), object_hook=lambda fields: SimpleNamespace(**fields))
        )
    return Response.construct(**answer)


def _add_usage(sums: JSONObject, page: JSONObject) -> JSONObject:
    """Add a page of `GET /usage` to the sums of the pages before it."""
    if not sums:
        return page
    kinds = [kind for kind in ("agents", "models", "callers", "days", "versions") if kind in page]
    by_name: JSONObject = {
        kind: {
            **sums[kind],
            **{name: _add_counts(sums[kind].get(name, {}), usage) for name, usage in page[kind].items()},
        }
        for kind in kinds
    }
    items = {} if page.get("per_task") is None else {"per_task": [*sums["per_task"], *page["per_task"]]}
    total = _add_counts(sums["total"], page["total"])
    return {**page, "tasks": sums["tasks"] + page["tasks"], "total": total, **by_name, **items}


def _add_versions(sums: JSONObject, page: JSONObject) -> JSONObject:
    """Add a page of `GET /swarms/versions` to the sums of the pages before it."""
    if not sums:
        return page
    by_digest = {each["digest"]: each for each in sums["versions"]}
    for new in page["versions"]:
        old = by_digest.get(new["digest"], {})
        needs = {(each["agent"], each["action"]): each for each in old.get("needs", ())}
        for need in new["needs"]:
            before = needs.get((need["agent"], need["action"]), {"tasks": 0, "examples": []})
            examples = before["examples"] or need["examples"]
            needs[need["agent"], need["action"]] = {
                **need,
                "tasks": before["tasks"] + need["tasks"],
                "examples": examples,
            }
        tasks = _add_counts(old.get("tasks", {}), new["tasks"])
        by_digest[new["digest"]] = {**new, "tasks": tasks, "needs": list(needs.values())}
    return {**page, "versions": list(by_digest.values())}


def _add_counts(one: JSONObject, other: JSONObject) -> JSONObject:
    return {field: round(one.get(field, 0) + number, 10) for field, number in other.items()}


def _join_pages(task: JSONObject, page: JSONObject) -> JSONObject:
    """Return a task's record with the events and items of the pages before; servers of other makes have no items."""
    joined = {name: task[name] + (page.get(name) or []) for name in ("events", "items")}
    return page | joined
