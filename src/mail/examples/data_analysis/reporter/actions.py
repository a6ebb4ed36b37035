"""Reports in Markdown."""

from typing import Annotated

from pydantic import BaseModel, Field

from mail.api.actions import action


class Section(BaseModel):
    """A section of a report."""

    heading: str = Field(min_length=1, max_length=200)
    content: str = Field(max_length=50_000)


@action(read_only=True)
def format_report(
    title: Annotated[str, Field(min_length=1, max_length=200)],
    sections: Annotated[list[Section], Field(min_length=1)],
) -> str:
    """Format a report. Returns Markdown.

    Args:
        title: the title of the report.
        sections: its sections, each with heading and content.
    """
    pieces = [f"# {_line(title)}"]
    for section in sections:
        pieces += [f"## {_line(section.heading)}", section.content.strip()]
    return "\n\n".join(filter(None, pieces)) + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())
