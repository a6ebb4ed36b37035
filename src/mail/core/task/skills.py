"""Skills: folders of instructions, of which an agent's prompt has one line each; the agent reads the rest as needed.

The format is that of Agent Skills (https://agentskills.io): a folder with `SKILL.md`, which begins with its name and
its description, and further files.
"""

from collections.abc import Mapping, Sequence

from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.mail_tools import ReadMore
from mail.core.protocol.values import value
from mail.errors import ToolCallFault

REFERENCE = "skill:"
"""What the reference of a skill, or of a file in it, begins with."""

MAIN_FILE = "SKILL.md"

HOW_TO_READ = f"""\
Skills are instructions for special work. Before such work, read its skill with \
{ReadMore.tool_name}(ref="{REFERENCE}NAME"), and a file that it names with \
{ReadMore.tool_name}(ref="{REFERENCE}NAME/FILE"). The skills:"""


@value
class Skill:
    """A skill, as it was when the swarm was built.

    Attributes:
        name: the name of its folder.
        description: what it is for, and when to read it.
        folder: where it was read.
        digest: of its files.
        texts: its text files, by their paths in the folder; `SKILL.md` is without its front matter.
    """

    name: str
    description: str
    folder: str
    digest: str
    texts: Mapping[str, str]


Skills = tuple[Skill, ...]


def add_to_prompt(system: str, skills: Sequence[Skill]) -> str:
    """Return a system prompt with a line for each skill at its end, which stays the same from turn to turn."""
    lines = [HOW_TO_READ, *(f"- {skill.name}: {skill.description}" for skill in skills)]
    return "\n\n".join(part for part in (system, "\n".join(lines)) if part)


def read_skill(skills: Sequence[Skill], ref: str) -> str:
    """Return the text that a reference names. Raises ToolCallFault that says what there is, if nothing has it."""
    name, _, path = ref.removeprefix(REFERENCE).partition("/")
    found = {skill.name: skill for skill in skills}.get(name)
    if found is None:
        names = [skill.name for skill in skills]
        hint = did_you_mean(name, names) or f"; there are: {', '.join(names) or 'none'}"
        raise ToolCallFault(f"you have no skill {name!r}{hint}")
    path = path.removeprefix("./") or MAIN_FILE
    if path not in found.texts:
        hint = did_you_mean(path, found.texts) or f"; it has: {', '.join(found.texts)}"
        raise ToolCallFault(f"the skill {name!r} has no text file {path!r}{hint}")
    return found.texts[path]
