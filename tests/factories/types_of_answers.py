"""What type checkers know of answers: mypy reads this with the other tests, and nothing runs it."""

from collections.abc import AsyncGenerator
from typing import assert_type

from pydantic import BaseModel

from mail import Agent, Answer, Swarm
from mail.api.answers import Piece
from mail.testing import with_scripts


class Report(BaseModel):
    title: str


async def check(lead: Agent) -> Answer:
    plain: Swarm = Swarm(lead)
    typed = Swarm(lead, output_type=Report, name="reports")
    assert_type(plain, Swarm[Answer])
    assert_type(Swarm(lead), Swarm[Answer])
    assert_type(plain.ask("?"), Answer)
    assert_type(typed.ask("?"), Report | Answer)
    assert_type(Swarm(lead, output_type=list[str]).ask("?"), list[str] | Answer)
    assert_type(typed.ask("?", output_type=int), int | Answer)
    assert_type(with_scripts(typed, {}).ask("?"), Report | Answer)
    assert_type(typed.stream("?"), AsyncGenerator[Piece | Report])
    print(Swarm(lead, output_type={"type": "integer"}).ask("?").real)  # type: ignore[union-attr]
    Swarm(lead, nam="x")  # type: ignore[call-overload]
    print((await typed.aask("?")).title)  # type: ignore[union-attr]  # it may be an Answer
    return await plain.aask("?")
