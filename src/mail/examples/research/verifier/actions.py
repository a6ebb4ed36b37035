"""Claims, compared with sources."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, Field

from mail.api.actions import action
from mail.examples.research.library import LIBRARY, SourceType
from mail.examples.texts import sentences_of, similarity

NEGATION = re.compile(r"\b(no|not|never)\b|n't\b", re.IGNORECASE)

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

ENOUGH = 0.6
"""The share of a claim's words that a sentence must have to decide on it."""

WEIGHTS: dict[SourceType, float] = {"academic": 1.0, "wikipedia": 0.7, "news": 0.7, "general": 0.4}


class Evidence(BaseModel):
    """Whether a source supports a claim."""

    source: str
    source_type: SourceType = "general"
    supports: bool


@action(read_only=True)
def verify_claim(
    claim: Annotated[str, Field(min_length=1, max_length=2000)], sources: list[str] | None = None
) -> dict[str, Any]:
    """Compare a claim with sources. Returns JSON: verdict, and evidence, each with the sentence that decides it.

    The verdict is supported, contradicted, disputed or not found.

    Args:
        claim: one sentence.
        sources: the texts of the sources; by default the library.
    """
    texts = (
        [(text.title, text.source_type, text.text) for text in LIBRARY]
        if sources is None
        else [(f"source {number}", "general", text) for number, text in enumerate(sources, start=1)]
    )
    words, numbers = NUMBER.sub("", claim), set(NUMBER.findall(claim))
    evidence = list[dict[str, Any]]()
    for title, kind, text in texts:
        quote = max(sentences_of(text), key=lambda sentence: similarity(claim, sentence), default="")
        found = set(NUMBER.findall(quote))
        if similarity(words, quote) >= ENOUGH and (found or not numbers):
            agrees = bool(NEGATION.search(claim)) == bool(NEGATION.search(quote))
            supports = agrees and numbers <= found
            evidence.append({"source": title, "source_type": kind, "supports": supports, "quote": quote})
    verdicts = {(True,): "supported", (False,): "contradicted", (False, True): "disputed"}
    verdict = verdicts.get(tuple(sorted({each["supports"] for each in evidence})), "not found")
    return {"claim": claim, "verdict": verdict, "evidence": evidence}


@action(read_only=True)
def rate_confidence(
    claim: Annotated[str, Field(min_length=1, max_length=2000)], evidence: list[Evidence]
) -> dict[str, Any]:
    """Rate how sure a claim is. Returns JSON: confidence from 0 to 1, and its level: high, medium or low.

    Args:
        claim: the claim.
        evidence: the sources that support or contradict it; better ones count for more.
    """
    weight = sum(WEIGHTS[each.source_type] for each in evidence)
    support = sum(WEIGHTS[each.source_type] for each in evidence if each.supports)
    confidence = round(support / (weight + 0.5), 2)  # so that one weak source doesn't make it sure
    level = "high" if confidence >= 0.65 else "medium" if confidence >= 0.4 else "low"
    return {"claim": claim, "confidence": confidence, "level": level, "sources": len(evidence)}
