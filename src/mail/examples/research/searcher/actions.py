"""A search in the library, and the facts of a text."""

import re
from typing import Annotated, Any

from pydantic import Field

from mail.api.actions import action
from mail.examples.research.library import LIBRARY, SourceType
from mail.examples.texts import sentences_of, similarity


@action(read_only=True)
def search_topic(
    query: Annotated[str, Field(min_length=1, max_length=200)], source: SourceType = "general"
) -> dict[str, Any]:
    """Find sources on a topic. Returns JSON: sources with their texts, the likeliest first.

    Args:
        query: two or three words.
        source: the type of the sources; `general` for all.
    """
    texts = [text for text in LIBRARY if source in ("general", text.source_type)]
    fits = {text.title: similarity(query, f"{text.title} {text.text}") for text in texts}
    found = sorted((text for text in texts if fits[text.title]), key=lambda text: -fits[text.title])
    return {"sources": [text.model_dump() for text in found]}


@action(read_only=True)
def extract_facts(text: Annotated[str, Field(min_length=1, max_length=50_000)]) -> dict[str, Any]:
    """Find the sentences of a text that state a fact. Returns JSON: facts, each with its numbers.

    Args:
        text: the text of a source.
    """
    states = re.compile(r"\d|\b(is|are|was|were|has|have|had)\b", re.IGNORECASE)
    facts = [each for each in sentences_of(text) if states.search(each) and not each.endswith("?")]
    return {"facts": [{"fact": fact, "numbers": re.findall(r"\d+(?:[.,]\d+)*", fact)} for fact in facts]}
