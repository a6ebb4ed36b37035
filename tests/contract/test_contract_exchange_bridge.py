"""An agent's question in a group chat: paused tasks, and the answers that were given, on every store."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from support.services.templates import agent, template

from mail.core.task.ports import Store
from mail.exchange import Exchange, ExchangeBridge
from mail.stdlib.agentmail.actions import ask_for_help
from mail.testing.agents import Call, View, call, complete

HELP = {"issue_type": "STUCK", "problem": "Two.", "what_i_tried": "Both.", "question": "Which?"}


def ask(view: View) -> list[Call]:
    if view.mail.subject != "HELP_RESPONSE":
        return [call("ask_for_help", bead_id="b-1", **HELP)]
    return [complete(f"{view.mail.body} {len(view.messages)}")]


async def test_an_answer_counts_once_though_the_bridge_dies(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = agent("clerk", ask, supervises=True, actions=[ask_for_help])
    swarm = template(agents).instantiate({"user_token": "x"}, "bridge", database=store)
    exchange, ann = Exchange(), uuid4()
    exchange.register(ann)
    bridge = ExchangeBridge(exchange, swarm)
    await bridge.register()
    clerk = bridge.agent_ids["clerk"]
    try:
        exchange.send(ann, clerk, "Choose.")
        await bridge.step()
        question = exchange.pop_mail(ann, clerk)
        assert question is not None
        assert question.content.endswith("## Question\nWhich?")
        exchange.send(ann, clerk, "The first.")

        async def die(*_: Any) -> Any:
            raise asyncio.CancelledError

        with monkeypatch.context() as patch:
            patch.setattr(ExchangeBridge, "_reply", die)
            with pytest.raises(asyncio.CancelledError):
                await bridge.step()
        assert await ExchangeBridge(exchange, swarm).step() == 1
        answer = exchange.pop_mail(ann, clerk)
        assert answer is not None
        assert answer.content == "The first. 2"
    finally:
        await swarm.shutdown()
