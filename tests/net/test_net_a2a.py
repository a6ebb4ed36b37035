"""Agents that are called by A2A, as peers of a swarm: a server of the official SDK, and hostile ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.processes.http_server import eventually
from support.services.a2a_agent import PNG, A2AAgent

from mail.core.decisions import remote_tasks
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.files import File
from mail.core.task.task import TaskStatus
from mail.net import InterswarmRouter, SwarmRegistry
from mail.testing.agents import View, build_agent, build_swarm, complete, request, wait
from mail.testing.rig import Rig

HOME = "http://127.0.0.1:8000"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls follow each other at once."""
    monkeypatch.setattr(remote_tasks, "POLL_SECONDS", (0.001,))


def ask_partner(view: View) -> Any:
    """Ask the partner what the person asks, answer its question, and complete with its answer."""
    mail = view.mail
    if mail.sender_type == "user":
        return [request("agent@partner", mail.body), wait()]
    if mail.subject == "::breakpoint_tool_call::":
        return [request("agent@partner", f"Oslo, as you ask {mail.body!r}"), wait()]
    files = " ".join(f"file:{each['id']}" for each in view.history[-1].get("files", ()))
    return [complete(f"{mail.sender} ({mail.subject}): {mail.body} {files}".strip())]


@asynccontextmanager
async def asking(registry: SwarmRegistry, policy: Any = ask_partner) -> AsyncIterator[Rig]:
    desk = build_agent(
        policy, targets=["agent@partner"], supervises=True, enable_interswarm=True, name="desk"
    )
    async with Rig(build_swarm({"desk": desk}, name="alpha"), clock=SYSTEM_CLOCK) as rig:
        rig.runtime.peers = InterswarmRouter(registry, "alpha", clock=SYSTEM_CLOCK)
        yield rig


@pytest.fixture
async def partner(registry: SwarmRegistry) -> AsyncIterator[A2AAgent]:
    async with A2AAgent() as agent:
        await registry.register_swarm("partner", agent.card_url, "t0ken")
        yield agent


class TestRegistration:
    async def test_an_agent_is_registered_by_the_url_of_its_card(
        self, registry: SwarmRegistry, partner: A2AAgent
    ) -> None:
        entry = registry.get_swarm_endpoint("partner")
        assert entry is not None
        assert (entry.kind, entry.version, entry.swarm_description) == ("a2a", "2", "It helps.")
        assert entry.keywords == ("help", "plots")
        assert await registry.caller_ids("partner") == ()  # nobody may act for it here

    async def test_its_card_is_its_health(self, registry: SwarmRegistry, partner: A2AAgent) -> None:
        assert (await registry.check_health())["partner"].is_active


class TestAnswers:
    @pytest.mark.parametrize(
        ("said", "answer"),
        [
            ("hello", "agent@partner (::interswarm_task_complete::): partner: hello"),
            ("plain", "agent@partner (::interswarm_task_complete::): no task"),
            ("fail", "agent@partner (::task_error::): out of order"),
            (
                "ask me",
                "agent@partner (::interswarm_task_complete::): partner: Oslo, as you ask 'Which city?'",
            ),
        ],
    )
    async def test_what_it_answers_is_mail(
        self, registry: SwarmRegistry, partner: A2AAgent, said: str, answer: str
    ) -> None:
        async with asking(registry) as rig:
            outcome = await rig.ask(said)
            assert outcome.answer == answer
            assert not outcome.task.requests

    async def test_its_question_is_answered_in_the_same_task(
        self, registry: SwarmRegistry, partner: A2AAgent
    ) -> None:
        async with asking(registry) as rig:
            await rig.ask("ask me")
        question, answer = partner.taken
        assert question.task_id == answer.task_id != ""
        assert question.context_id == answer.context_id
        assert not partner.cancelled

    async def test_a_task_is_one_conversation(self, registry: SwarmRegistry, partner: A2AAgent) -> None:
        async with asking(registry) as rig:
            first = await rig.ask("hello")
            await rig.ask("again", task_id=first.key.task_id)
            await rig.ask("elsewhere")
        contexts = [message.context_id for message in partner.taken]
        assert contexts[0] == contexts[1] != contexts[2]

    async def test_its_files_are_those_of_the_task(self, registry: SwarmRegistry, partner: A2AAgent) -> None:
        async with asking(registry) as rig:
            outcome = await rig.ask("draw")
            [stored] = (await rig.runtime.caller_files.of_task(outcome.key)).values()
            assert (stored.name, stored.type) == ("plot.png", "image/png")
            assert await rig.runtime.caller_files.read(outcome.key.instance, stored.id) == PNG
            assert outcome.answer.endswith(f"partner: draw file:{stored.id}")


async def test_the_end_of_the_task_cancels_what_it_does(registry: SwarmRegistry, partner: A2AAgent) -> None:
    async with asking(registry) as rig:
        submitted = await rig.submit("wait")

        async def is_working() -> bool:
            task = await rig.task(submitted.key)
            return any(each.poll_at for peer in task.peers.values() for each in peer.remote_tasks)

        await eventually(is_working)
        await rig.runtime.cancel(Principal.parse(submitted.key.instance), submitted.key.task_id, "enough")

        async def is_cancelled() -> bool:
            task = await rig.task(submitted.key)
            return bool(partner.cancelled) and not task.peers["partner"].remote_tasks

        await eventually(is_cancelled)
        assert (await rig.task(submitted.key)).status is TaskStatus.CANCELLED
