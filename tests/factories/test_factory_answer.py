"""The answer that a model writes as the argument of `task_complete`, for those who watch the task."""

import json
from contextlib import aclosing
from typing import Any

import pytest
from factory_agents import CHAT, CLAUDES, RESPONSES, Dialect, of, swarm_of
from pydantic_core import from_json
from support.services.llm_stub import LLMStub, call, reply, text

import mail.factories.answer
from mail.core.task.live import LiveEvent, LiveKind
from mail.factories.answer import AnswerReader
from mail.testing.rig import Rig

ANSWER = 'Für "dich" 😀😀:\n\t\\ ' + "".join(f"{n} grüße, " for n in range(40)) + "Ende 😀"


class Recorder:
    """Stands in for the call of a model."""

    def __init__(self, *, wants_deltas: bool = True) -> None:
        self.wants_deltas = wants_deltas
        self.deltas: list[str] = []

    def note_chunk(self) -> None:
        pass

    def delta(self, kind: str, piece: str) -> None:
        assert kind == "answer"
        self.deltas.append(piece)


def pieces_of(arguments: str, size: int = 1, recorder: Recorder | None = None) -> list[str]:
    recorder = recorder or Recorder()
    reader = AnswerReader(recorder)  # type: ignore[arg-type]
    for start in range(0, len(arguments), size):
        reader.add(0, "task_complete", arguments[start : start + size])
    reader.read()
    return recorder.deltas


async def deltas_of(rig: Rig) -> list[str]:
    return [delta for _agent, _to, delta in await live_deltas(rig)]


async def live_deltas(rig: Rig) -> list[tuple[str, str | None, str]]:
    """Return the agent, the recipient and the text of each piece that the models write."""
    submitted = await rig.submit("Greet me.")
    deltas = []
    events = rig.runtime.watch(submitted.key, answer_to=submitted.seq)
    watching = rig.runtime.with_live(submitted.key, events, deltas=True)
    async with aclosing(watching) as batches:
        async for batch in batches:
            deltas += [
                (event.agent, event.extra.get("to"), event.delta)
                for event in batch
                if isinstance(event, LiveEvent) and event.kind is LiveKind.TEXT_DELTA
            ]
    return deltas


@of([CHAT[0], RESPONSES[0], CLAUDES[0]])
@pytest.mark.parametrize("ascii_only", [True, False])
async def test_the_deltas_are_the_finish_message(stub: LLMStub, dialect: Dialect, ascii_only: bool) -> None:
    """The stub's chunks have seven characters: they split escapes, and the two halves of a character."""
    arguments = json.dumps({"finish_message": ANSWER}, ensure_ascii=ascii_only)
    stub.script(reply(call("task_complete", arguments)))
    async with Rig(swarm_of(dialect)) as rig:
        deltas = await deltas_of(rig)
    assert "".join(deltas) == ANSWER
    assert len(deltas) > 20


@of([CHAT[0], RESPONSES[0], CLAUDES[0]])
async def test_the_deltas_of_plain_text_say_whom_it_is_for(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(
        reply(call("send_request", target="worker", subject="Weather", body="How is it?")),
        reply(text("It is **sunny**, says the worker.")),
        to="You are the supervisor",
    )
    stub.script(reply(text("Sunny, all day.")), to="You are the worker")
    async with Rig(swarm_of(dialect)) as rig:
        said = await live_deltas(rig)
    told = {(agent, to): "" for agent, to, _ in said}
    for agent, to, delta in said:
        told[agent, to] += delta
    assert told == {
        ("worker", "supervisor"): "Sunny, all day.",
        ("supervisor", "user"): "It is **sunny**, says the worker.",
    }


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_escapes_may_be_split_anywhere(size: int) -> None:
    arguments = json.dumps({"why": {"finish_message": "no"}, "finish_message": ANSWER, "more": ["x"]})
    assert "".join(pieces_of(arguments, size)) == ANSWER


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", ""),
        ("[1, 2]", ""),
        ('{"finish_message": {"a": "b"}}', ""),
        ('{"output": {"finish_message": "x"}}', ""),
        ('{"finish_message": "so far" oops', "so far"),
        ('{"finish_message": "half \\ud83d"}', "half "),
    ],
)
def test_arguments_that_are_no_answer(arguments: str, text: str) -> None:
    assert "".join(pieces_of(arguments)) == text


def test_other_calls_have_no_deltas() -> None:
    recorder = Recorder()
    reader = AnswerReader(recorder)  # type: ignore[arg-type]
    for index, name in [(0, "send_request"), (1, "task_complete"), (2, "task_complete")]:
        reader.add(index, name, json.dumps({"finish_message": f"{index}"}))
    assert recorder.deltas == ["1"]


def test_long_answers_take_linear_time_and_nothing_is_read_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def counting(text: str, **options: Any) -> Any:
        read.append(len(text))
        return from_json(text, **options)

    monkeypatch.setattr(mail.factories.answer, "from_json", counting)
    arguments = json.dumps({"finish_message": "Hello \n" * 10_000})
    deltas = pieces_of(arguments, 4)
    assert sum(read) < 300 * len(arguments)
    assert max(map(len, deltas)) < len(arguments) / 200
    read.clear()
    recorder = Recorder(wants_deltas=False)
    assert pieces_of(arguments, 4, recorder) == []
    assert read == []
