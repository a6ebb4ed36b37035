"""`MAILClient`: a method for every endpoint of a MAIL server."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote

from pydantic_core import to_json, to_jsonable_python

from mail.client.connection import read_json
from mail.client.errors import InvalidRequest
from mail.client.following import Followed
from mail.client.messaging import Messaging, outgoing
from mail.client.usage import add_usage

if TYPE_CHECKING:
    from openai.types.responses import Response

    from mail.core.protocol.interswarm import MAILInterswarmMessage

JSONObject = dict[str, Any]

PAGE = 1000
"""What servers give at most at once."""


class MAILClient(Messaging):
    """An asynchronous client of one MAIL server.

        async with MAILClient("http://localhost:8000", api_key="…") as client:
            print(await client.post_message("weather in Tokyo"))

    Its methods return what the server answers, as it is described in `spec/openapi.yaml`, and raise
    `MAILClientError`, which is a RuntimeError. Without `async with`, close it with `aclose()`.

    Args:
        base_url: the server: `http://host:port`, `https://host`, or `swarm://connect?server=host&token=key`.
        api_key: sent as a bearer token; goes before the token of the URL.
        session: an `httpx.AsyncClient` or `aiohttp.ClientSession` to send by; it is not closed, and where it has
            time limits other than its library's, these hold.
        config: the longest wait for an answer, and whether requests are logged as INFO and not as DEBUG; the
            default is `[client]` of `mail.toml`.
    """

    # ------------------------------------------------------------------------------------------ the server

    async def ping(self) -> JSONObject:
        """Which service this is: its name, protocol version and swarm."""
        return await self._get("/")

    async def get_status(self) -> JSONObject:
        """Whether the swarm is ready, and whether the caller has tasks."""
        return await self._get("/status")

    async def get_whoami(self) -> JSONObject:
        """The caller's id and role."""
        return await self._get("/whoami")

    async def get_health(self) -> JSONObject:
        """How the swarm says it is."""
        return await self._get("/health")

    async def update_health(self, status: str) -> JSONObject:
        """Set how the swarm says it is. For admins."""
        return await self._post("/health", {"status": status})

    # ------------------------------------------------------------------------------------------------ tasks

    async def get_tasks(
        self,
        *,
        status: str | None = None,
        limit: int | None = None,
    ) -> dict[str, JSONObject]:
        """The records of the caller's tasks (with `status`: of those that are running, paused, completed or failed) by task
        id, newest first.

        Where the server gives them page by page, pages are read until there are `limit` tasks; None reads them all.
        """
        query: dict[str, str] = {"status": status} if status else {}
        if limit is not None:
            query["limit"] = str(min(limit, PAGE))
        tasks: dict[str, JSONObject] = {}
        async with self._deadline("GET /tasks"):
            while True:
                page = await self._send("GET", "/tasks", query=query)
                tasks |= read_json(page)
                if "x-next-cursor" not in page.headers or (limit is not None and len(tasks) >= limit):
                    return dict(islice(tasks.items(), limit))
                query["cursor"] = page.headers["x-next-cursor"]

    async def get_task(self, task_id: str, *, at: int | None = None) -> JSONObject:
        """The record of a task of the caller's: state, events, mail that waits; as it was once event `at` had happened."""
        named = {"task_id": task_id}  # servers in use read it from the body, which proxies drop
        moment = {} if at is None else {"at": str(at)}
        return dict(await self._ask("GET", "/task", query=named | moment, body=named))

    async def fork_task(self, task_id: str, at: int | None = None, *, run: bool = False) -> JSONObject:
        """Make a new task that goes on from where another one was at an event (None: now); returns its `task_id`.

        Where that one was running, the new one is paused until it gets a message; with `run` it goes on at once.
        """
        return await self._post("/task/fork", {"task_id": task_id, "at": at, "run": run})

    async def cancel_task(self, task_id: str, reason: str = "", *, wait: float | None = None) -> JSONObject:
        """Cancel a task that runs or is paused; a message resumes it.

        The answer's `stopped` says whether nothing of it is left, or what is. The server waits for that for `wait`
        seconds (None: ten).
        """
        headers = {} if wait is None else {"Prefer": f"wait={wait:.0f}"}
        async with self._deadline("POST /task/cancel"):
            given = {"task_id": task_id, "reason": reason}
            return dict(read_json(await self._send("POST", "/task/cancel", body=given, headers=headers)))

    async def get_usage(
        self,
        *,
        task_id: str | None = None,
        caller: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        per_task: bool = False,
    ) -> JSONObject:
        """What the language models behind the caller's tasks were paid (for admins: everybody's, or those of `caller`).

        Of one task, or of those that began at `since` or later and before `until`, by agent, model and caller; with
        `per_task`, of each task as well. The server answers for a thousand tasks at a time; their sum is returned.
        """
        period = {name: _moment(moment) for name, moment in (("since", since), ("until", until))}
        query = _query({"task_id": task_id, "caller": caller, "per_task": per_task or None, **period})
        async with self._deadline("GET /usage"):
            answer: JSONObject = read_json(await self._send("GET", "/usage", query=query))
            while answer["cursor"] is not None:
                query["cursor"] = answer["cursor"]
                answer = add_usage(answer, read_json(await self._send("GET", "/usage", query=query)))
            return answer

    # ----------------------------------------------------------------------------------------- dead letters

    async def get_dead_letters(
        self, *, task_id: str | None = None, caller: str | None = None, limit: int | None = None
    ) -> list[JSONObject]:
        """What could not be processed in the caller's tasks, or in one of them; for admins, in all of the swarm or of
        `caller` (`user:ann@swarm`).

        Those of the newest tasks come first. Pages are read until there are `limit`; None reads them all.
        """
        size = None if limit is None else min(limit, PAGE)
        query = _query({"task_id": task_id, "caller": caller, "limit": size})
        letters: list[JSONObject] = []
        async with self._deadline("GET /dead-letters"):
            while True:
                page = read_json(await self._send("GET", "/dead-letters", query=query))
                letters += page["dead_letters"]
                if page["next_cursor"] is None or (limit is not None and len(letters) >= limit):
                    return letters[:limit]
                query["cursor"] = page["next_cursor"]

    async def redrive_dead_letters(
        self,
        task_id: str | None = None,
        seq: int | None = None,
        *,
        caller: str | None = None,
        all: bool = False,  # noqa: A002 - the server's name for it
    ) -> JSONObject:
        """Let dead letters be processed again: one of a task, those of a task, or `all` that the caller may see.

        The answer's `redriven` are those that are, and `failed` those of which nothing became, with the reason.
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
        """Take dead letters off the list without processing them; which, as for `redrive_dead_letters`.

        The answer's `discarded` are those that are off.
        """
        return await self._settle_dead_letters("discard", "discarded", task_id, seq, caller, all)

    async def _settle_dead_letters(
        self, verb: str, done: str, task_id: str | None, seq: int | None, caller: str | None, every: bool
    ) -> JSONObject:
        """The answers of as many requests as it takes, as one."""
        fields = {"task_id": task_id, "seq": seq, "caller": caller, "all": every or None}
        given = {name: value for name, value in fields.items() if value is not None}
        answer: JSONObject = {done: [], "failed": []}
        async with self._deadline(f"POST /dead-letters/{verb}"):
            while True:
                part = read_json(await self._send("POST", f"/dead-letters/{verb}", body=given))
                for name in answer:
                    answer[name] += part[name]
                if part["next_cursor"] is None:
                    return answer
                given["cursor"] = part["next_cursor"]

    # ---------------------------------------------------------------------------------------------- threads

    async def get_threads(
        self,
        *,
        task_id: str | None = None,
        bead: str | None = None,
        pending: bool = False,
        overdue: bool = False,
        ack_within: float | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JSONObject:
        """The threads of the caller's newest `limit` tasks (those before `cursor`, the `next_cursor` of a page), or of one.

        Only those about a bead, with messages that have to be acknowledged, or with such as have waited longer than
        `ack_within` seconds, if that is asked for.
        """
        chosen = {"pending": pending or None, "overdue": overdue or None}
        numbers = {"ack_within": ack_within, "limit": limit}
        names = {"task_id": task_id, "bead": bead, "cursor": cursor}
        return dict(await self._ask("GET", "/threads", query=_query({**chosen, **numbers, **names})))

    async def get_thread(
        self, thread_id: str, *, task_id: str | None = None, ack_within: float | None = None
    ) -> JSONObject:
        """A thread: its summary, and each message below the one that it answers."""
        query = _query({"task_id": task_id, "ack_within": ack_within})
        name = quote(thread_id, safe="")
        if name in (".", ".."):  # as they are, URLs have a meaning for them
            name = name.replace(".", "%2E")
        return dict(await self._ask("GET", f"/threads/{name}", query=query))

    # --------------------------------------------------------------------------------------------- webhooks

    async def get_webhooks(self, task_id: str | None = None) -> JSONObject:
        """The webhooks that the caller has registered; or those of a task, and how far each has come."""
        return dict(await self._ask("GET", "/webhooks", query=_query({"task_id": task_id})))

    async def register_webhook(
        self, url: str, secret_ref: str | None = None, events: Sequence[str] | None = None
    ) -> JSONObject:
        """Let events of the tasks that the caller begins from now on be sent to a URL.

        By default those that end or pause a task; `["*"]` for all. With `secret_ref` (`${WEBHOOK_SECRET_…}`, a secret
        that the server has) requests are signed, and `mail.webhooks.verify` reads them.
        """
        given = {"url": url, "secret_ref": secret_ref, "events": None if events is None else list(events)}
        return await self._post("/webhooks", given)

    async def delete_webhook(self, webhook_id: str) -> JSONObject:
        """Forget a registered webhook; tasks that have begun with it keep it."""
        return dict(await self._ask("DELETE", f"/webhooks/{quote(webhook_id, safe='')}"))

    # ----------------------------------------------------------------------------------------------- swarms

    async def get_swarm(self) -> JSONObject:
        """The server's own swarm: its agents, their tools, and who may write to whom."""
        return await self._get("/swarm")

    async def get_swarms(self) -> JSONObject:
        """The public swarms that the server knows."""
        return await self._get("/swarms")

    async def register_swarm(
        self,
        name: str,
        base_url: str,
        auth_token: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        volatile: bool | None = None,
    ) -> JSONObject:
        """Let the server know another swarm; with `volatile`, only until it is restarted. For admins."""
        return await self._post(
            "/swarms",
            {
                "name": name,
                "base_url": base_url,
                "auth_token": auth_token,
                "metadata": metadata,
                "volatile": volatile,
            },
        )

    async def dump_swarm(self) -> JSONObject:
        """Write the server's swarm to its log. For admins."""
        return await self._get("/swarms/dump")

    async def load_swarm_from_json(self, json_str: str) -> JSONObject:
        """Replace the server's swarm by an entry of swarms.json, given as JSON text. For admins."""
        return await self._post("/swarms/load", {"json": json_str})

    # ------------------------------------------------------------------------------------------- interswarm

    async def post_interswarm_message(
        self, message: "MAILInterswarmMessage | Mapping[str, Any]"
    ) -> JSONObject:
        """Hand another swarm mail for a task that is new to it. For swarms: the key's role is `agent`."""
        return await self._post("/interswarm/forward", {"message": _wrapper(message)})

    async def post_interswarm_response(
        self, message: "MAILInterswarmMessage | Mapping[str, Any]"
    ) -> JSONObject:
        """Hand another swarm mail for a task that it takes part in already. For swarms."""
        return await self._post("/interswarm/back", {"message": _wrapper(message)})

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
        """Let the server send a message to agents of other swarms (`agent@swarm`), and wait for the answer.

        Returns `{"response": …, "events": …}`, where `response` is a message; waits as `post_message` does, and has its
        `idempotency_key` and `generation`.
        `user_token` is the key that the message is sent for, by default the client's own. `stream` and
        `ignore_stream_pings` are told to the other swarm; the answer is no stream.
        """
        sent = outgoing(
            "/interswarm/message",
            {
                "user_token": user_token or self.api_key or "",
                "body": body,
                "targets": list(targets),
                "subject": subject,
                "msg_type": msg_type,
                "task_id": task_id,
                "routing_info": routing_info,
                "stream": stream,
                "ignore_stream_pings": ignore_stream_pings,
            },
        ).under(idempotency_key, generation)
        answer = await self._wait_for_answer(sent)
        if isinstance(answer, Followed):
            swarm = (await self.get_health())["swarm_name"]
            return {"response": answer.message(swarm), "events": answer.events}
        return answer

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
        """Ask the swarm in the way of OpenAI's Responses API. Only where the server runs with `--debug`.

        `kwargs` are handed on as they are. Returns the `Response` of the openai package where that is installed,
        else an object with the same attributes. For a stream, use the openai package; `stream` raises InvalidRequest.
        """
        answer = await self._post_responses(
            {
                "input": input,
                "tools": tools,
                "instructions": instructions,
                "previous_response_id": previous_response_id,
                "tool_choice": tool_choice,
                "parallel_tool_calls": parallel_tool_calls,
                "kwargs": kwargs or None,
            },
        )
        return _as_response(answer)

    async def _post_responses(self, fields: Mapping[str, Any]) -> JSONObject:
        if (fields.get("kwargs") or {}).get("stream"):
            raise InvalidRequest("the response comes as a whole; for a stream use the openai package")
        return await self._post("/responses", fields)

    async def _get(self, path: str) -> JSONObject:
        return dict(await self._ask("GET", path))

    async def _post(self, path: str, fields: Mapping[str, Any]) -> JSONObject:
        """POST the fields that are given."""
        body = {name: value for name, value in fields.items() if value is not None}
        return dict(await self._ask("POST", path, body=body))


def _moment(moment: datetime | str | None) -> str | None:
    """A time in ISO 8601; one without a zone is this computer's, as Python takes it."""
    return moment.astimezone().isoformat() if isinstance(moment, datetime) else moment


def _query(fields: Mapping[str, str | float | None]) -> dict[str, str]:
    """The fields that are given, as they stand in a URL."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}


def _wrapper(message: "MAILInterswarmMessage | Mapping[str, Any]") -> JSONObject:
    """The message as it travels: `auth_token` and `metadata` may be empty then, not absent."""
    try:
        fields: JSONObject = to_jsonable_python(message)
    except ValueError as error:
        raise InvalidRequest(f"the message can't be written: {error}") from error
    for name, empty in (("auth_token", ""), ("metadata", {})):
        if fields.get(name) is None:
            fields[name] = empty
    return fields


def _as_response(answer: JSONObject) -> "Response | SimpleNamespace":
    try:
        from openai.types.responses import Response
    except ImportError:
        return cast(
            SimpleNamespace,
            json.loads(to_json(answer), object_hook=lambda fields: SimpleNamespace(**fields)),
        )
    return Response.construct(**answer)
