"""Summaries made of a text's own sentences, and bibliographies."""

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field

from mail.api.actions import action
from mail.examples.research.library import Source
from mail.examples.texts import sentences_of, words_of


@action(read_only=True)
def summarize_text(
    text: Annotated[str, Field(min_length=1, max_length=100_000)],
    max_length: Annotated[int, Field(ge=50, le=2000)] = 500,
) -> dict[str, Any]:
    """Choose a text's most telling sentences. Returns JSON: summary, and the lengths of both in characters.

    Args:
        text: the text.
        max_length: the maximum number of characters of the summary.
    """
    sentences = sentences_of(text)
    counts = Counter(words_of(text))
    weights = [sum(counts[word] for word in set(words_of(each))) / (len(each) + 20) for each in sentences]
    chosen, left = set[int](), max_length
    for position in sorted(range(len(sentences)), key=lambda position: -weights[position]):
        if len(sentences[position]) + 1 <= left + 1:
            chosen.add(position)
            left -= len(sentences[position]) + 1
    summary = " ".join(sentences[position] for position in sorted(chosen)) or f"{text[: max_length - 1]}…"
    return {"summary": summary, "length": len(summary), "original_length": len(text)}


@action(read_only=True)
def create_bibliography(
    sources: Annotated[list[Source], Field(min_length=1)],
    style: Literal["apa", "mla", "chicago", "simple"] = "apa",
) -> dict[str, Any]:
    """List sources in a style. Returns JSON: bibliography, a text with one source per line, in order.

    Args:
        sources: the sources.
        style: the style.
    """
    lines = sorted(_line(source, style) for source in sources)
    return {"style": style, "bibliography": "\n".join(lines)}


def _line(source: Source, style: str) -> str:
    author, title, date, url = source.author, source.title, source.date, source.url
    by = f"{author.rstrip('.')}. " if author else ""
    match style:
        case "apa":
            line = f"{by or f'{title}. '}({date or 'n.d.'}). {f'{title}. ' if by else ''}{url}"
        case "mla":
            line = f'{by}"{title}." {", ".join(filter(None, (date, url)))}'
        case "chicago":
            line = f'{by}"{title}." {". ".join(filter(None, (date, url)))}'
        case _:
            line = ", ".join(filter(None, (author, title, date, url)))
    return line.strip()
