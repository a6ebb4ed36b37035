"""Handing mail over to other swarms."""

import asyncio
import gzip
import logging
from datetime import datetime
from typing import Any

import pytest
from support.processes.http_server import eventually
from support.services.messages import letter, wrapped
from support.services.peer_server import PeerServer

from mail.core.protocol.address import create_agent_address
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage
from mail.errors import BadRequest, PeerRefused, PeerUnavailable, PeerUnreachable, StoreUnavailable
from mail.net import InterswarmRouter, SwarmRegistry
from mail.net.http import PeerHTTP

HOME = "http://127.0.0.1:8000"
FIELDS = {
    "message_id",
    "source_swarm",
    "target_swarm",
    "timestamp",
    "payload",
    "msg_type",
    "auth_token",
    "metadata",
    "task_owner",
    "task_contributors",
}


@pytest.fixture
async def router(registry: SwarmRegistry, beta: PeerServer) -> InterswarmRouter:
    await registry.register_swarm("beta", beta.url, "t0ken")
    beta.requests.clear()
    return InterswarmRouter(registry, "alpha")


class TestDeliver:
    @pytest.mark.parametrize(("back", "path"), [(False, "/interswarm/forward"), (True, "/interswarm/back")])
    async def test_what_goes_over_the_wire(
        self, router: InterswarmRouter, beta: PeerServer, back: bool, path: str
    ) -> None:
        message = wrapped(auth_token=None, metadata=None)
        assert await router.deliver(message, back=back) == "swarm:alpha@beta"
        (request,) = beta.requests
        assert (request.method, request.path) == ("POST", path)
        assert request.headers["authorization"] == "Bearer t0ken"
        assert request.headers["content-type"] == "application/json"
        assert request.json.keys() == {"message"}
        sent = request.json["message"]
        assert sent.keys() == FIELDS
        assert (sent["auth_token"], sent["metadata"]) == ("", {})
        assert sent["task_contributors"] == ["user:ann@alpha"]
        read = MAILInterswarmMessage.model_validate(sent)
        assert read.as_json() == message.as_json() == sent
        assert "recipient_swarms" not in sent["payload"]

    @pytest.mark.parametrize(
        "answer",
        [
            {},
            [],
            None,
            "ok",
            {"local_runner": None},
            {"local_runner": 7},
            {"local_runner": "swarm:alpha"},
            {"local_runner": "root:x@beta"},
            b"",
            b"<html>",
            b"x" * 2_000_000,
        ],
    )
    async def test_odd_answers_are_taken(
        self, router: InterswarmRouter, beta: PeerServer, answer: Any
    ) -> None:
        beta.answers["/interswarm/forward"] = 202, answer
        assert await router.deliver(wrapped(), back=False) is None

    @pytest.mark.parametrize(
        ("status", "reason"),
        [
            (400, "400 Bad Request: it may have no such agent"),
            (401, "401 Unauthorized: it does not accept the token"),
            (403, "403 Forbidden: it does not allow that with this token, or does not know this swarm"),
            (404, "404 Not Found"),
            (409, "409 Conflict"),
            (499, "499"),
        ],
    )
    async def test_refusals(
        self,
        router: InterswarmRouter,
        beta: PeerServer,
        status: int,
        reason: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """What a server says there is only logged: it may be any server that this one can reach."""
        caplog.set_level(logging.INFO)
        beta.answers["/interswarm/back"] = (
            status,
            {"detail": f"no, for t0ken, AWS_SECRET=… {'x' * 265} t0ken"},
        )
        with pytest.raises(PeerRefused) as refused:
            await router.deliver(wrapped(), back=True)
        assert refused.value.detail == f"swarm 'beta': {reason}"
        assert f"swarm beta answered {status}: no, for …, AWS_SECRET=…" in caplog.text
        assert "t0k" not in caplog.text, "nor where it is cut"

    async def test_a_compressed_answer_is_not_unpacked(
        self, router: InterswarmRouter, beta: PeerServer
    ) -> None:
        beta.answers["/interswarm/back"] = 200, gzip.compress(b" " * 10_000_000 + b"{}")
        beta.headers = {"content-encoding": "gzip"}
        with pytest.raises(PeerRefused, match="its answer is compressed"):
            await router.deliver(wrapped(), back=True)
        assert beta.requests[0].headers["accept-encoding"] == "identity"

    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
    async def test_troubles(self, router: InterswarmRouter, beta: PeerServer, status: int) -> None:
        beta.answers["/interswarm/back"] = status, b"later"
        with pytest.raises(PeerUnavailable, match=f"swarm 'beta': {status} [A-Z]") as failure:
            await router.deliver(wrapped(), back=True)
        assert not isinstance(failure.value, PeerUnreachable)

    async def test_a_refusal_that_looks_like_trouble(
        self, router: InterswarmRouter, beta: PeerServer
    ) -> None:
        """MAIL 1.3.6 answers with 500 where it has no such agent."""
        beta.answers["/interswarm/forward"] = 500, {"detail": "error: Unknown local agent: math"}
        with pytest.raises(
            PeerRefused, match="swarm 'beta': 500 Internal Server Error: it has no such agent"
        ):
            await router.deliver(wrapped(), back=False)

    async def test_redirects_are_not_followed(self, router: InterswarmRouter, beta: PeerServer) -> None:
        beta.answers["/interswarm/forward"] = 307, b""
        beta.headers = {"location": f"{beta.url}/elsewhere"}
        with pytest.raises(PeerRefused, match="redirects"):
            await router.deliver(wrapped(), back=False)
        assert beta.paths() == ["/interswarm/forward"]

    @pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://gamma.invalid"])
    async def test_nobody_there(self, router: InterswarmRouter, registry: SwarmRegistry, url: str) -> None:
        await registry.register_swarm("gamma", url, "t0ken")
        with pytest.raises(PeerUnreachable, match="swarm 'gamma': no answer") as failure:
            await router.deliver(wrapped(target_swarm="gamma"), back=False)
        assert failure.value.last_answer is None
        with pytest.raises(PeerRefused, match="swarm 'delta' is not known"):
            await router.deliver(wrapped(target_swarm="delta"), back=False)

    async def test_one_that_has_stopped(self, registry: SwarmRegistry) -> None:
        async with PeerServer("gamma") as gamma:
            await registry.register_swarm("gamma", gamma.url, "t0ken")
            seen = (await registry.check_health())["gamma"].last_seen
        with pytest.raises(PeerUnreachable) as failure:
            await InterswarmRouter(registry, "alpha").deliver(wrapped(target_swarm="gamma"), back=False)
        assert failure.value.last_answer == datetime.fromisoformat(seen).timestamp()

    async def test_no_answer_in_time(self, beta: PeerServer) -> None:
        registry = SwarmRegistry("alpha", HOME, http=PeerHTTP(allow_private=True, seconds=0.05))
        await registry.register_swarm("beta", beta.url, "t0ken")
        beta.delay = 1.0
        with pytest.raises(PeerUnavailable, match=r"no answer within 0.05 seconds") as failure:
            await InterswarmRouter(registry, "alpha").deliver(wrapped(), back=False)
        assert not isinstance(failure.value, PeerUnreachable)
        await registry.stop()

    async def test_a_connection_that_breaks(self, router: InterswarmRouter, registry: SwarmRegistry) -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await registry.register_swarm("gamma", f"http://127.0.0.1:{port}", "t0ken")
            with pytest.raises(PeerUnavailable, match="swarm 'gamma': no answer"):
                await router.deliver(wrapped(target_swarm="gamma"), back=False)


class TestTokens:
    async def test_that_of_the_registry_comes_before_that_of_the_message_and_without_any_nothing_is_sent(
        self, router: InterswarmRouter, registry: SwarmRegistry, beta: PeerServer
    ) -> None:
        await router.deliver(wrapped(auth_token="from-the-message"), back=False)
        assert beta.requests[-1].headers["authorization"] == "Bearer t0ken"
        await registry.register_swarm("beta", beta.url)
        await router.deliver(wrapped(auth_token="from-the-message"), back=False)
        assert beta.requests[-1].headers["authorization"] == "Bearer from-the-message"
        beta.requests.clear()
        with pytest.raises(PeerRefused) as refused:
            await router.deliver(wrapped(), back=False)
        assert refused.value.detail == "authentication token missing for swarm 'beta'"
        assert beta.requests == []

    async def test_tokens_that_cannot_be_read_now(self, beta: PeerServer) -> None:
        class Broken:
            def known(self, variable: str) -> str | None:
                return None

            async def find(self, variable: str) -> str | None:
                raise StoreUnavailable

        registry = SwarmRegistry("alpha", HOME, tokens=Broken())
        await registry.register_swarm("beta", beta.url)
        with pytest.raises(PeerUnavailable, match="its token can't be read now"):
            await InterswarmRouter(registry, "alpha").deliver(wrapped(), back=False)
        await registry.stop()


class TestPeers:
    async def test_who_is_known(self, router: InterswarmRouter, registry: SwarmRegistry) -> None:
        await registry.register_swarm("gamma", "http://127.0.0.1:1", caller_id="gamma-key")
        assert list(await router.known()) == ["beta", "gamma"]
        assert await router.caller_ids("beta") == ("beta", "agent")
        assert await router.caller_ids("gamma") == ("gamma-key",)
        assert await router.caller_ids("x" * 5000) == ()

    async def test_the_common_token_is_of_nobody_else(
        self, router: InterswarmRouter, registry: SwarmRegistry
    ) -> None:
        await registry.register_swarm("gamma", "http://127.0.0.1:1", caller_id="agent")
        assert await router.caller_ids("beta") == ("beta",)
        assert await router.caller_ids("gamma") == ("agent",)

    async def test_what_keeps_mail_from_a_swarm(
        self, router: InterswarmRouter, registry: SwarmRegistry
    ) -> None:
        assert await router.obstacle("beta") == ""
        assert await router.obstacle("gamma") == "'gamma' is not registered at 'alpha' (POST /swarms)"
        await registry.register_swarm("gamma", "http://localhost:1")
        assert (
            await router.obstacle("gamma") == "'alpha' has no token for it: set SWARM_AUTH_TOKEN_GAMMA there"
        )
        assert await InterswarmRouter(registry, "alpha", reads_tokens=False).obstacle("gamma") == ""
        registry.http.allow_private = False
        assert "http://localhost:1 is not public; to allow it, set" in await router.obstacle("gamma")
        await registry.register_swarm("gamma", "https://gamma.example", "t0ken")
        assert await router.obstacle("gamma") == ""

    async def test_one_client_serves_them_all(self, router: InterswarmRouter, beta: PeerServer) -> None:
        await asyncio.gather(*(router.deliver(wrapped(), back=False) for _ in range(20)))
        client = router.swarm_registry.http._client
        await router.deliver(wrapped(), back=True)
        assert router.swarm_registry.http._client is client
        assert len(beta.requests) == 21

    def test_each_event_loop_gets_its_own(self) -> None:
        registry = SwarmRegistry("alpha", HOME)
        router = InterswarmRouter(registry, "alpha")

        async def once() -> object:
            async with PeerServer("beta") as beta:
                await registry.register_swarm("beta", beta.url, "t0ken")
                await router.start()
                runner = await router.deliver(wrapped(), back=False)
                await router.stop()
                return runner

        assert asyncio.run(once()) == asyncio.run(once()) == "swarm:alpha@beta"

    async def test_start_and_stop(self, registry: SwarmRegistry, beta: PeerServer) -> None:
        registry.health_check_seconds = 0.01
        router = InterswarmRouter(registry, "alpha")
        assert not router.is_running()
        await registry.register_swarm("beta", beta.url, "t0ken")
        await router.start()
        await router.start()
        assert router.is_running()
        await eventually(lambda: beta.paths().count("/health") >= 3)
        await router.stop()
        asked = len(beta.requests)
        await asyncio.sleep(0.05)
        assert len(beta.requests) == asked
        assert not router.is_running()
        assert await router.known() == []
        await router.stop()


class TestRouteMessage:
    async def test_local_agents_get_it_by_the_handler_of_its_type(self, router: InterswarmRouter) -> None:
        taken: list[MAILMessage] = []

        async def take(message: MAILMessage) -> MAILMessage | None:
            taken.append(message)
            return letter("boss") if message.msg_type == "response" else None

        with pytest.raises(BadRequest, match="no handler is registered for messages of type 'request'"):
            await router.route_message(letter("weather"))
        router.register_message_handler("request", take)
        assert await router.route_message(letter("weather@alpha")) is taken[0]
        assert taken[0].message.recipients[0].address == "weather"
        router.register_message_handler("*", take)
        assert (await router.route_message(letter("weather", kind="response"))) == letter("boss")

    async def test_others_get_it_over_http(self, router: InterswarmRouter, beta: PeerServer) -> None:
        answer = await router.route_message(letter("boss@beta"))
        sent = beta.requests[0].json["message"]
        assert sent["payload"] == answer.message.as_json()
        assert sent["message_id"] == answer.id
        assert sent["payload"]["sender"]["address"] == "boss@alpha"
        assert (sent["payload"]["sender_swarm"], sent["payload"]["recipient_swarm"]) == ("alpha", "beta")
        assert (sent["task_owner"], sent["task_contributors"]) == (
            "swarm:alpha@alpha",
            ["swarm:alpha@alpha"],
        )
        await router.route_message(letter("boss@beta", sender=None))
        assert beta.requests[1].json["message"]["task_owner"] == "user:ann@alpha"
        await router.route_message(letter("boss@beta"), owner="admin:root@alpha")
        assert beta.requests[2].json["message"]["task_owner"] == "admin:root@alpha"

    async def test_back_to_a_swarm_that_has_a_part_in_the_task(
        self, router: InterswarmRouter, beta: PeerServer
    ) -> None:
        message = letter("boss@beta")
        routing = {"task_contributors": ["user:ann@alpha", "swarm:alpha@beta"]}
        message = message.model_copy(
            update={"message": message.message.model_copy(update={"routing_info": routing})}
        )
        await router.route_message(message, owner="user:ann@alpha")
        (request,) = beta.requests
        assert request.path == "/interswarm/back"
        assert request.json["message"]["task_contributors"] == routing["task_contributors"]

    async def test_each_swarm_gets_its_part(
        self, router: InterswarmRouter, registry: SwarmRegistry, beta: PeerServer
    ) -> None:
        local: list[MAILMessage] = []

        async def take(message: MAILMessage) -> None:
            local.append(message)

        router.register_message_handler("*", take)
        async with PeerServer("gamma") as gamma:
            await registry.register_swarm("gamma", gamma.url, "t0ken")
            message = letter("a", "b@beta", "c@gamma", "d@beta", "e@alpha", kind="broadcast")
            await router.route_message(message)
            parts = [
                [each["address"] for each in server.requests[-1].json["message"]["payload"]["recipients"]]
                for server in (beta, gamma)
            ]
        assert parts == [["b@beta", "d@beta"], ["c@gamma"]]
        assert [each.address for each in local[0].message.recipients] == ["a", "e"]

    async def test_failures_come_back_from_the_system(
        self, router: InterswarmRouter, beta: PeerServer
    ) -> None:
        beta.answers["/interswarm/forward"] = 403, {"detail": "not you"}
        for message, reason in (
            (letter("boss@beta"), "swarm 'beta': 403 Forbidden"),
            (letter("boss@delta"), "swarm 'delta' is not known here"),
        ):
            answer = await router.route_message(message)
            assert answer.msg_type == "response"
            assert (answer.sender.address_type, answer.sender.address) == ("system", "alpha")
            assert answer.message.recipients[0] == create_agent_address("boss")
            assert answer.message.subject == "::runtime_error::"
            assert reason in answer.message.body
            assert answer.message.get("request_id") == message.message.get("request_id")

    async def test_principals_that_are_none(self, router: InterswarmRouter, beta: PeerServer) -> None:
        answer = await router.route_message(letter("boss@beta"), owner="nobody")
        assert "can't be sent to swarm 'beta'" in answer.message.body
        assert beta.requests == []


class TestPostInterswarmUserMessage:
    """What a person writes to another swarm, through its `/interswarm/message`."""

    async def test_the_answer(self, router: InterswarmRouter, beta: PeerServer) -> None:
        answer = letter("request").model_dump(mode="json")
        beta.answers["/interswarm/message"] = 200, {"response": answer, "events": None}
        message = wrapped(auth_token="ann's key").model_dump(mode="json")
        assert await router.post_interswarm_user_message(message) == MAILMessage.model_validate(answer)
        (request,) = beta.requests
        assert (request.method, request.path) == ("POST", "/interswarm/message")
        assert request.headers["authorization"] == "Bearer ann's key"
        payload = wrapped().payload
        assert request.json == {
            "user_token": "ann's key",
            "subject": payload.subject,
            "body": payload.body,
            "targets": ["boss@beta"],
            "msg_type": "request",
            "task_id": payload.task_id,
            "routing_info": payload.routing_info or {},
        }

    async def test_without_a_key_the_token_of_the_registry_is_used(
        self, router: InterswarmRouter, beta: PeerServer
    ) -> None:
        beta.answers["/interswarm/message"] = 200, {"response": letter("request").model_dump(mode="json")}
        await router.post_interswarm_user_message(wrapped(auth_token=None))
        assert beta.requests[0].headers["authorization"] == "Bearer t0ken"

    @pytest.mark.parametrize(
        ("status", "content", "reason"),
        [
            (403, {"detail": "not you"}, "403 Forbidden"),
            (500, {"detail": "broken"}, "500 Internal Server Error"),
            (202, {"task_id": "t", "links": {}}, "gave no answer"),
            (200, [], "gave no answer"),
        ],
    )
    async def test_no_answer(
        self, router: InterswarmRouter, beta: PeerServer, status: int, content: Any, reason: str
    ) -> None:
        beta.answers["/interswarm/message"] = status, content
        answer = await router.post_interswarm_user_message(wrapped())
        assert answer.sender.address_type == "system"
        assert reason in answer.message.body

    async def test_what_is_wrong(self, router: InterswarmRouter) -> None:
        answer = await router.post_interswarm_user_message(wrapped(target_swarm="gamma"))
        assert "swarm 'gamma' is not known here" in answer.message.body
        with pytest.raises(BadRequest, match="the message is not valid"):
            await router.post_interswarm_user_message({"target_swarm": "beta"})
