"""What the clients of protocols say: messages with files, calls of their own tools, and the results of these.

Agents get one message of it. If it is one message of a user, this has just its text; otherwise it consists of sections,
each below its role in brackets: `[instructions]`, `[user]`, `[assistant]`, …
"""

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mail.core.decisions.submit import title_of
from mail.core.protocol.message import DEFAULT_SUBJECT
from mail.core.protocol.values import value
from mail.core.task.client_tools import MAX_TOOL_NAME, RESERVED, ClientTool, ClientTools
from mail.core.task.files import MAX_FILES, File, FileRef
from mail.core.task.swarm import SwarmCore
from mail.errors import BadClientTools, BadRequest

LENT = "caller__"
"""Begins the names of those of the caller's tools that have the name of a tool of MAIL or of the swarm."""


class BadFile(BadRequest):
    """A file's bytes can't be read."""


@value
class Uploaded:
    """A file that was uploaded before, by its id."""

    id: str


GivenFile = File | Uploaded

StoredFiles = Mapping[GivenFile, FileRef]
"""The files of an input, and what was stored of each."""


@value
class Said:
    """A message of a conversation."""

    role: str
    content: tuple[str | GivenFile, ...]

    @property
    def text(self) -> str:
        """Its text, without its files."""
        return "\n\n".join(part for part in self.content if isinstance(part, str))

    def in_words(self, files: StoredFiles) -> str:
        """Return its text, with its files in words."""
        return "\n\n".join(part if isinstance(part, str) else files[part].in_words for part in self.content)


@value
class Called:
    """An earlier call of one of the caller's tools."""

    call_id: str
    name: str
    arguments: str


@value
class Returned:
    """The result of such a call."""

    call_id: str
    text: str


Entry = Said | Called | Returned


class Composed(NamedTuple):
    """A message to agents, with the ids of its files. The subject is the default if the body begins with the topic."""

    body: str
    files: tuple[str, ...]
    subject: str = DEFAULT_SUBJECT


def read_base64(data: str, name: str) -> File:
    """Return a file of its bytes in base64, most often as a `data:` URL. Raises BadFile."""
    head, _, encoded = data.rpartition(",")
    if head and not (head.startswith("data:") and head.endswith(";base64")):
        raise BadFile("a data: URL must be like data:image/png;base64,…")
    try:
        content = b64decode(encoded, validate=True)
    except ValueError as error:
        raise BadFile(f"the bytes of a file must be in base64: {error}") from error
    return File(content, name, head.removeprefix("data:").removesuffix(";base64"))


def files_of(entries: Iterable[Entry]) -> list[GivenFile]:
    """Return the files of a conversation."""
    said = [each for each in entries if isinstance(each, Said)]
    return [part for each in said for part in each.content if not isinstance(part, str)]


def compose(instructions: str | None, entries: Sequence[Entry], files: StoredFiles) -> Composed:
    """Compose the message to the agents; with more than a user's message, the last of these gives it a subject."""
    ids = tuple(dict.fromkeys(ref.id for ref in files.values()))[-MAX_FILES:]
    asked = [each for each in entries if isinstance(each, Said) and each.role == "user"]
    if not instructions and len(entries) == len(asked) == 1:
        return Composed(asked[0].text or asked[0].in_words(files), ids)
    sections = [f"[instructions]\n{instructions}"] if instructions else []
    body = "\n\n".join([*sections, *(_section(each, files) for each in entries)])
    return Composed(body, ids, *[title_of(DEFAULT_SUBJECT, each.in_words(files)) for each in asked[-1:]])


def _section(entry: Entry, files: StoredFiles) -> str:
    match entry:
        case Said():
            return f"[{entry.role}]\n{entry.in_words(files)}"
        case Called():
            return f"[call {entry.call_id} of the function {entry.name}]\n{entry.arguments}"
        case Returned():
            return f"[result of call {entry.call_id}]\n{entry.text}"


def client_tool(
    name: str, description: str | None, parameters: Any, strict: bool | None = None
) -> ClientTool:
    """Return a tool of the caller. Raises BadClientTools, and pydantic.ValidationError for its name."""
    if parameters and not (isinstance(parameters, dict) and parameters.get("type") == "object"):
        raise BadClientTools(f"the parameters of {name[:80]!r} must be a JSON Schema of type 'object'")
    given: dict[str, Any] = {"description": description, "strict": strict}
    if parameters:
        given["parameters"] = {"properties": {}, **parameters}
    return ClientTool(name=name, **{key: each for key, each in given.items() if each is not None})


def lend(tools: ClientTools | None, swarm: SwarmCore) -> ClientTools | None:
    """Return the caller's tools under names that no tool of the swarm has (`own_name` gives back theirs).

    Raises BadClientTools for names that are then too long.
    """
    if tools is None:
        return None
    taken = {*RESERVED, *swarm.actions, *swarm.breakpoint_tools}

    def lent(name: str) -> str:
        return f"{LENT}{name}" if name in taken or name.startswith(LENT) else name

    if long := [tool.name for tool in tools.tools if len(lent(tool.name)) > MAX_TOOL_NAME]:
        raise BadClientTools(f"the names of these tools are too long: {', '.join(long)}")
    return ClientTools(
        tools=tuple(tool.renamed(lent(tool.name)) for tool in tools.tools),
        required=tuple(map(lent, tools.required)),
        parallel=tools.parallel,
    )


def own_name(name: str) -> str:
    """Return the name that a tool of the caller has for the caller."""
    return name.removeprefix(LENT)
