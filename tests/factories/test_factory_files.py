"""Files in requests: the same for every way to a model, in the form that its API takes."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from factory_agents import GPT, supervisor
from support.services.llm_stub import LLMStub, call, reply
from test_ports import EVERY, of

from mail.core.task.files import FILES, File, FileRef, make_reference
from mail.core.turns.context import TURN, TurnContext
from mail.errors import ConfigurationError
from mail.factories.files import accepted_types

pytestmark = pytest.mark.usefixtures("aws_identity")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
PDF = b"%PDF-1.7 ..."
ZIP = b"PK\x03\x04..."
DATA = {
    make_reference(data, name).id: data for data, name in ((PNG, "a.png"), (PDF, "b.pdf"), (ZIP, "c.zip"))
}
REFS = [make_reference(PNG, "a.png"), make_reference(PDF, "b.pdf"), make_reference(ZIP, "c.zip")]


class StoredFiles:
    """The files of a turn."""

    async def read(self, file_id: str) -> bytes | None:
        return DATA.get(file_id)

    async def find(self, file_id: str) -> FileRef | None:
        return next((ref for ref in REFS if ref.id == file_id), None)

    async def add(self, file: File) -> FileRef:
        raise NotImplementedError

    def added_by(self, call_place: str) -> int:
        return 0


@pytest.fixture(autouse=True)
def _turn() -> Iterator[None]:
    token = TURN.set(TurnContext(files=StoredFiles()))
    yield
    TURN.reset(token)


def asked(*files: FileRef) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "What is this?", FILES: [ref.as_json() for ref in files]}]


def inside(value: Any) -> Iterator[Any]:
    """All objects inside a body."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from inside(each)
    elif isinstance(value, list):
        for each in value:
            yield from inside(each)


@of(EVERY)
async def test_a_model_gets_what_it_accepts_and_a_line_for_each(stub: LLMStub, dialect: Any) -> None:
    stub.script(reply(call("help")))
    agent = supervisor(dialect, accepts=["image/*", "application/pdf"])
    await agent(asked(*REFS), "auto")
    body = str(stub.requests[-1].body)
    for ref in REFS:
        assert ref.in_words in body
    assert b64encode(PNG).decode() in body
    assert b64encode(PDF).decode() in body
    assert b64encode(ZIP).decode() not in body
    assert FILES not in {key for each in inside(stub.requests[-1].body) for key in each}
    assert not stub.complaints


async def test_the_forms_of_the_apis(stub: LLMStub) -> None:
    picture = f"data:image/png;base64,{b64encode(PNG).decode()}"
    paper = f"data:application/pdf;base64,{b64encode(PDF).decode()}"
    forms: dict[str, list[dict[str, Any]]] = {
        "sdk-chat": [
            {"type": "image_url", "image_url": {"url": picture}},
            {"type": "file", "file": {"filename": "b.pdf", "file_data": paper}},
        ],
        "sdk-responses": [
            {"type": "input_image", "image_url": picture, "detail": "auto"},
            {"type": "input_file", "filename": "b.pdf", "file_data": paper},
        ],
        "converse": [
            {"image": {"format": "png", "source": {"bytes": b64encode(PNG).decode()}}},
            {
                "document": {
                    "format": "pdf",
                    "name": "document 2",
                    "source": {"bytes": b64encode(PDF).decode()},
                }
            },
        ],
    }
    for name, wanted in forms.items():
        stub.script(reply(call("help")))
        await supervisor(EVERY[name], accepts=["image/*", "application/pdf"])(asked(*REFS[:2]), "auto")
        found = list(inside(stub.requests[-1].body))
        for form in wanted:
            assert form in found, name


@pytest.mark.parametrize("name", ["litellm-chat", "converse-gpt"])
async def test_without_accepts_the_table_of_models_decides(stub: LLMStub, name: str) -> None:
    stub.script(reply(call("help")))
    await supervisor(EVERY[name])(asked(REFS[0]), "auto")
    is_seen = b64encode(PNG).decode() in str(stub.requests[-1].body)
    assert is_seen is (name == "litellm-chat")
    assert ("image/png" in accepted_types(EVERY[name].llm)) is is_seen


async def test_a_file_that_is_gone_is_named(stub: LLMStub) -> None:
    stub.script(reply(call("help")))
    await supervisor(EVERY["litellm-chat"])(asked(FileRef("0" * 32, "old.png", "image/png", 9)), "auto")
    assert "[file old.png is no longer stored]" in str(stub.requests[-1].body)


def test_types_that_no_model_gets_are_refused() -> None:
    for wrong in (["video/mp4"], "image/png"):
        with pytest.raises(ConfigurationError, match="accepts must be a list of types that models get"):
            supervisor(EVERY["litellm-chat"], llm=GPT, accepts=wrong)
