"""A research desk: a lead, a searcher who reads sources, and a checker who verifies claims, with a model.

It is the swarm `research` of the package's swarms.json. Its library is made up.
"""

import json
import re

from pydantic import BaseModel, Field

from mail.api.actions import action
from mail.errors import ToolCallFault

LEAD_PROMPT = """\
You lead a research desk that answers questions from sources.

Ask searcher with send_request for what you need to know, one question per request, and call await_message. Send each claim
that your answer rests on to checker, with the id of its source, and wait again. Then call task_complete with the answer:
every claim with the id of its source in brackets. Leave out what checker has not confirmed, and say what the library doesn't
tell."""

SEARCHER_PROMPT = """\
You find facts in a library for other agents.

Call search_library with two or three words, then read_source for each source that may help; never rely on a title alone.
Then answer the agent that asked with send_response: the facts, each with the id of its source. If the library has nothing,
say so."""

CHECKER_PROMPT = """\
You verify claims for other agents.

Read the source of each claim with read_source. Then answer the agent that asked with send_response: for each claim
confirmed, contradicted or not found, with the words of the source that decide it."""

LIBRARY = {
    "L1": (
        "The harbour of Ostwick",
        "Ostwick opened its harbour in 1871. In 1904 it had three quays and employed 640 people.",
    ),
    "L2": (
        "Annals of Ostwick, 1904",
        "A storm destroyed the eastern quay in November 1904. It was not rebuilt until 1911.",
    ),
    "L3": (
        "Tea and tides",
        "Tea came to Ostwick with the steamers from 1880 on; by 1900 every second crate landed there held tea.",
    ),
    "L4": (
        "Lighthouses of the north coast",
        "The lighthouse of Ostwick stands 41 metres above the sea. It has been automatic since 1987.",
    ),
}
"""The title and the text of each source, by id."""


class Search(BaseModel):
    """The arguments of `search_library`."""

    query: str = Field(min_length=1, max_length=200, description="Two or three words.")


class Source(BaseModel):
    """The arguments of `read_source`."""

    source: str = Field(min_length=1, description="The id of the source, from search_library.")


@action(idempotent=True)
async def search_library(wanted: Search) -> str:
    """Find sources. Returns JSON: titles, by the id of the source, the likeliest first."""
    words = set(re.findall(r"\w+", wanted.query.lower()))
    hits = {
        source: sum(word in f"{title} {text}".lower() for word in words)
        for source, (title, text) in LIBRARY.items()
    }
    found = sorted((source for source in hits if hits[source]), key=lambda source: -hits[source])
    return json.dumps({"titles": {source: LIBRARY[source][0] for source in found}})


@action(idempotent=True)
async def read_source(wanted: Source) -> str:
    """Read a source. Returns JSON: source, title and text."""
    if wanted.source not in LIBRARY:
        raise ToolCallFault(
            f"there is no source {wanted.source!r}; search_library returns the ids of those that there are"
        )
    title, text = LIBRARY[wanted.source]
    return json.dumps({"source": wanted.source, "title": title, "text": text})
