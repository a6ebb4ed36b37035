"""Forms as actions: an agent fills in a form, and its turn sends the MAIL message."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from itertools import takewhile
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic_core.core_schema import CoreSchema

from mail.agentmail import MalformedMessage, MessageType, build
from mail.agentmail.envelope import possible_subjects
from mail.agentmail.messages import Typed, TypedMessage
from mail.api.actions import MAILAction
from mail.core.protocol.error_text import explain
from mail.core.protocol.mail_tools import SendRequest, SendResponse
from mail.core.protocol.tool_schemas import pydantic_model_to_tool
from mail.core.task.swarm import ActionCore, FormContext, FormResult, UserQuestion
from mail.errors import ToolCallFault

Vocabulary = TypeVar("Vocabulary", bound=StrEnum)


def _must_say_something[W: StrEnum](word: W) -> W:
    if not word:
        raise ValueError("must be one of the words that the tool names")
    return word


class _NoEmptyWord:
    """Removes the empty word, the result of lenient parsing, from the schema that agents see."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema with the words to choose from."""
        declared = handler.resolve_ref_schema(handler(schema))
        return {"type": "string", "enum": [word for word in declared["enum"] if word]}


Word = Annotated[Vocabulary, AfterValidator(_must_say_something), _NoEmptyWord()]
"""A word of an enumeration, which agents must fill in."""


def Described(text: str, *, default: Any = ..., **limits: Any) -> Any:  # noqa: N802  # stands for pydantic's Field
    """Declare a field with a description for agents."""
    return Field(default, description=text, **limits)


class Targeted(BaseModel, ABC):
    """The base class of forms: the recipient, and the fields of the message."""

    model_config = ConfigDict(extra="forbid")

    target: str = Described("The agent to write to.", min_length=1)

    @abstractmethod
    def write(self, context: FormContext) -> FormResult:
        """Return the message to send. Raises ToolCallFault, MalformedMessage."""


class AboutBead(Targeted):
    """A form about one bead."""

    bead_id: str = Described("The bead (issue, piece of work) that this is about.", min_length=1)

    def fill[T: Typed](self, kind: type[T]) -> T:
        """Return a message of this type with the form's fields."""
        return kind.model_validate(
            {name: getattr(self, name) for name in kind.model_fields.keys() & vars(self).keys()}
        )


def form_action(name: str, model: type[Targeted], *, reads_mail: bool = False) -> MAILAction:
    """Return the action of a form."""

    def write(arguments: dict[str, Any], context: FormContext) -> FormResult:
        try:
            return model.model_validate(arguments).write(context)
        except ValidationError as error:
            raise ToolCallFault(f"{name}: {explain(error)}") from error
        except MalformedMessage as error:
            raise ToolCallFault(f"{name}: {error.detail}") from error

    declared = pydantic_model_to_tool(model, name, style="responses")
    return MAILAction.from_core(
        ActionCore(
            name=name,
            function=_not_run,
            description=declared["description"],
            parameters=declared["parameters"],
            form=write,
            reads_mail=reads_mail,
        )
    )


async def _not_run(_arguments: dict[str, Any]) -> str:
    raise ToolCallFault("this is a form: an agent fills it in during its turn, so it can't be run")


def request(
    target: str,
    message: TypedMessage,
    *,
    settles: bool | None = None,
    enclosed: Mapping[str, str] | None = None,
) -> FormResult:
    """Send a message as a request, with the `enclosed` texts as sections below their headers."""
    subject, body, routing_info = _compose(message, "")
    for header, text in (enclosed or {}).items():
        body += f"\n\n## {header}\n{_quoted(text)}"
    return FormResult(SendRequest(target=target, subject=subject, body=body), routing_info, settles)


def respond(
    target: str, message: TypedMessage, *, settles: bool | None = None, thread_id: str = ""
) -> FormResult:
    subject, body, routing_info = _compose(message, thread_id)
    return FormResult(SendResponse(target=target, subject=subject, body=body), routing_info, settles)


def ask_user(message: TypedMessage, answer: MessageType) -> UserQuestion:
    """Send a message to the owner of the task, who answers with a message of type `answer`."""
    subject, body, routing_info = _compose(message, "")
    return UserQuestion(
        SendRequest(target="user", subject=subject, body=body),
        routing_info,
        answer_subjects=possible_subjects(answer, message.bead_id),
    )


def _compose(message: TypedMessage, thread_id: str) -> tuple[str, str, dict[str, Any] | None]:
    """Return subject, body and routing info of a message."""
    envelope = build(message, thread_id=thread_id)
    thread = {"thread_id": envelope.thread_id} if envelope.thread_id else None
    return envelope.subject, envelope.body, thread


def _quoted(text: str) -> str:
    """Return a text quoted, so that none of its lines is a field or section of the body."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def enclosed(body: str, header: str) -> str:
    """Return the text that `request` enclosed below a header; empty if there is none."""
    lines = body.split("\n")
    if f"## {header}" not in lines:
        return ""
    below = takewhile(lambda line: line.startswith(">"), lines[lines.index(f"## {header}") + 1 :])
    return "\n".join(line.removeprefix(">").removeprefix(" ") for line in below)
