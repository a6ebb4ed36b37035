"""The providers' caches of prompts, by the bytes of what was sent.

    cache = PrefixCache()
    stub.otherwise = lambda request: reply(call("look_up"), tokens=cache.bill(request))

Anthropic's (platform.claude.com/docs/en/build-with-claude/prompt-caching) keeps the prefixes that are marked, at most
four, and finds one that ends up to 20 blocks before a mark. OpenAI's keeps every prefix, in steps of 128 tokens, and
finds those of calls with the same key. Both begin at 1,024 tokens, of four bytes here.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from support.services.llm_stub.script import Tokens
from support.services.llm_stub.server import Request

LEAST = 1024
STEP = 128
LOOKS_BACK = 20
MARKS = 4


@dataclass
class PrefixCache:
    """The cache of one provider.

    Attributes:
        bills: the tokens of each call.
    """

    bills: list[Tokens] = field(default_factory=list)
    _kept: set[tuple[str, bytes]] = field(default_factory=set)

    @property
    def rate(self) -> float:
        """The part of all input that was read from the cache."""
        return sum(bill.cached for bill in self.bills) / sum(bill.input for bill in self.bills)

    def bill(self, request: Request, output: int = 20) -> Tokens:
        """Return the tokens of a request, and keep its prefixes."""
        find = self._of_anthropic if request.path == "/v1/messages" else self._of_openai
        bill = find(request.body, output)
        self.bills.append(bill)
        return bill

    def _of_anthropic(self, body: dict[str, Any], output: int) -> Tokens:
        mode = {name: body.get(name) for name in ("tool_choice", "thinking")}
        blocks = [*body.get("tools", ()), *body.get("system", ()), mode]
        for message in body["messages"]:
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            blocks += [{"role": message["role"], **part} for part in parts]
        marks = [n for n, block in enumerate(blocks) if "cache_control" in block]
        assert len(marks) <= MARKS, f"A maximum of {MARKS} blocks with cache_control may be provided"
        prefixes = _prefixes([{k: v for k, v in block.items() if k != "cache_control"} for block in blocks])
        looked_at = {n for mark in marks for n in range(max(0, mark - LOOKS_BACK), mark + 1)}
        model = body["model"]
        cached = max(
            (_tokens(prefixes[n]) for n in looked_at if (model, prefixes[n]) in self._kept), default=0
        )
        written = max((_tokens(prefixes[mark]) for mark in marks), default=0)
        self._kept |= {(model, prefixes[mark]) for mark in marks if _tokens(prefixes[mark]) >= LEAST}
        if written < LEAST:
            written = 0
        whole = _tokens(prefixes[-1])
        return Tokens(input=whole, output=output, cached=cached, written=max(0, written - cached))

    def _of_openai(self, body: dict[str, Any], output: int) -> Tokens:
        sent = [
            body.get("tools"),
            body.get("instructions"),
            *body.get("input", ()),
            *body.get("messages", ()),
        ]
        text = _prefixes(sent)[-1]
        place = f"{body['model']} {body.get('prompt_cache_key')}"
        steps = [text[: end * 4] for end in range(LEAST, _tokens(text) + 1, STEP)]
        cached = max((_tokens(step) for step in steps if (place, step) in self._kept), default=0)
        self._kept |= {(place, step) for step in steps}
        return Tokens(input=_tokens(text), output=output, cached=cached)


def _prefixes(blocks: list[Any]) -> list[bytes]:
    whole = b""
    prefixes = []
    for block in blocks:
        whole += json.dumps(block).encode()
        prefixes.append(whole)
    return prefixes


def _tokens(prefix: bytes) -> int:
    return len(prefix) // 4
