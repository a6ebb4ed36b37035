"""Every Python sample and signature of seed 003.

Of the samples only the line that imports is changed. Number 25 is left out: its sessions and models are of another
library.
"""

import ast
import asyncio
import inspect
import re
from contextlib import nullcontext
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.processes.document_samples import run
from support.seeds import _read, text_of

import mail.exchange
from mail.exchange import Element, Exchange, Flow, Mail, Progression

TEXT = text_of("003")
SAMPLES = {block.number: block.code for block in _read("003", TEXT) if block.language == "python"}

pytestmark = pytest.mark.skipif(not TEXT, reason="the seeds are not at hand")

IMPORT = ("from lionpride.session.mail import", "from mail.exchange import")

METHODS = {
    4: "register",
    6: "unregister",
    7: "get",
    8: "has",
    9: "send",
    11: "receive",
    13: "pop_mail",
    14: "sync",
    16: "collect",
    17: "collect_all",
    18: "run",
    19: "stop",
}
CLASSES = {1: Mail, 3: Exchange}
RUN = (2, 5, 10, 12, 15, 20, 21, 22, 23, 24, 26, 27, 28, 29)

ALICE, BOB = uuid4(), uuid4()


def code(number: int) -> str:
    return SAMPLES[number].replace(*IMPORT)


def parts(number: int) -> list[str]:
    """The wrong way and the right one, of a sample that has both."""
    return re.split("(?=# FIX)", code(number))


@pytest.fixture
def space() -> dict[str, Any]:
    """What a reader of the fragments has by then."""
    exchange = Exchange()
    for owner in (ALICE, BOB):
        exchange.register(owner)
    return {
        "__name__": "seed",
        "asyncio": asyncio,
        "uuid4": uuid4,
        "Exchange": Exchange,
        "exchange": exchange,
        "alice": ALICE,
        "bob": BOB,
        "alice_id": uuid4(),
    }


def test_every_sample_is_run_or_is_a_signature() -> None:
    assert sorted([*METHODS, *CLASSES, *RUN, 25]) == list(SAMPLES)


@pytest.mark.parametrize("number", METHODS)
def test_every_method_has_the_documented_signature(number: int) -> None:
    """Ours may take more, by keyword."""
    text = SAMPLES[number].strip() + ": ..."
    (wanted,) = ast.parse(text).body
    assert isinstance(wanted, ast.FunctionDef | ast.AsyncFunctionDef)
    method = getattr(Exchange, METHODS[number])
    assert wanted.name == METHODS[number]
    assert inspect.iscoroutinefunction(method) == isinstance(wanted, ast.AsyncFunctionDef)
    space: dict[str, Any] = {"UUID": UUID, "Flow": Flow, "Mail": Mail, "Progression": Progression, "Any": Any}
    exec(text, space)
    documented = inspect.signature(space[wanted.name])
    found = inspect.signature(method, eval_str=True)
    for name, parameter in documented.parameters.items():
        assert found.parameters[name].default == parameter.default
        assert found.parameters[name].kind == parameter.kind
        assert found.parameters[name].annotation == parameter.annotation
    assert list(found.parameters)[: len(documented.parameters)] == list(documented.parameters)
    for name in found.parameters.keys() - documented.parameters.keys():
        assert found.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert found.return_annotation == documented.return_annotation


@pytest.mark.parametrize("number", CLASSES)
def test_every_class_takes_the_documented_fields(number: int) -> None:
    cls = CLASSES[number]
    assert issubclass(cls, Element)
    (wanted,) = (
        node
        for node in ast.walk(ast.parse(SAMPLES[number].split("\nclass")[0]))
        if isinstance(node, ast.ImportFrom)
    )
    assert {name.name for name in wanted.names} <= set(mail.exchange.__all__)
    fields = re.findall(r"^        (\w+): .*?(?:= (\w+))?, *(?:#.*)?$", SAMPLES[number], re.MULTILINE)
    assert fields
    for name, default in fields:
        field = cls.model_fields[name]
        assert field.is_required() != (default == "None")
    assert {"id", "created_at", "metadata"} <= set(cls.model_fields)


def test_every_attribute_and_property_of_the_tables() -> None:
    mail_part, exchange_part = TEXT.split("\n## Exchange\n")
    for cls, part in ((Mail, mail_part), (Exchange, exchange_part)):
        names = re.findall(r"^\| `(\w+)` +\|", part, re.MULTILINE)
        assert len(names) > 5 or cls is Exchange
        element = cls(sender=ALICE) if cls is Mail else cls()  # type: ignore[call-arg]
        for name in names:
            assert hasattr(element, name), name


async def typed(number: int, space: dict[str, Any]) -> Any:
    """Type the lines behind the prompts; returns the value of the last one."""
    lines = [line[4:].split("  #")[0] for line in code(number).splitlines() if line.startswith(">>> ")]
    for line in lines[:-1]:
        await run(line, space)
    result = eval(compile(lines[-1], "seed", "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), space)
    return await result if inspect.isawaitable(result) else result


async def test_what_is_typed_behind_prompts(space: dict[str, Any]) -> None:
    assert await typed(5, dict(space)) is True
    mail = await typed(10, space)
    assert repr(mail) == f"Mail({str(ALICE)[:8]} -> {str(BOB)[:8]})"
    await space["exchange"].sync()
    assert await typed(12, space) == "Hello!"
    for n in range(3):
        space["exchange"].send(ALICE, BOB, n)
    assert await typed(15, space) == 3


@pytest.mark.parametrize("number", [2, 20, 21, 22, 23, 24, 26, 27, 28])
async def test_every_sample_runs(number: int, space: dict[str, Any]) -> None:
    """What its calls do is the matter of the contract suite."""

    async def some_agent_workflow() -> None:
        await asyncio.sleep(0.01)

    space["some_agent_workflow"] = some_agent_workflow
    for part in parts(number):
        if number == 27:  # it registers entities itself
            space["exchange"] = Exchange()
        await run(part, space)
    for name in {"broadcast_example", "channel_example", "continuous_sync"} & space.keys():
        await asyncio.wait_for(space[name](), 60)


@pytest.mark.parametrize("is_fix", [False, True])
async def test_mail_is_received_in_a_loop(space: dict[str, Any], is_fix: bool) -> None:
    """The wrong way never ends."""
    seen: list[Any] = []

    def process(mail: Mail) -> None:
        seen.append(mail.content)
        if len(seen) > 9:
            raise EOFError

    for n in range(3):
        space["exchange"].send(ALICE, BOB, n)
    await space["exchange"].sync()
    with nullcontext() if is_fix else pytest.raises(EOFError):
        await run(parts(29)[is_fix], {**space, "process": process})
    assert seen == ([0, 1, 2] if is_fix else [0] * 10)
