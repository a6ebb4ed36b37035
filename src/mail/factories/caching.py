"""Prompt caching: where the prefixes end that a provider keeps, and what broke one that was not read.

A call sends tools, system prompt and history, in this order. The next call of the same agent repeats them and adds
the reply, the results of its calls and the next message. So one prefix ends behind the system prompt, which all tasks
of the agent share; one behind the input of the previous call, which that call has written; and one behind this call's
input, for the next call. The positions follow from the history alone: a process that takes over a task finds them, too.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any

from mail.core.task.costs import Usage
from mail.factories.history import Note, Reply, Section
from mail.factories.items import is_assistant
from mail.factories.models import ModelRequest
from mail.factories.providers import provider_of

LIFE_SECONDS = 300.0
"""Seconds for which providers keep a prefix at least, since it was written or read."""

MANY = 4096
"""Agents of tasks of which a process knows what their latest call sent; about 1 MiB."""

MARKING = frozenset({"anthropic", "azure_ai", "bedrock", "vertex_ai"})
"""Providers of Claude whose APIs take marks at the ends of prefixes, by the beginnings of models' names."""

KEYED = frozenset({"openai", "azure"})
"""Providers that take a key by which calls with a common prefix reach the same cache."""


def prefix_ends(sections: Sequence[Section]) -> frozenset[int]:
    """Return the indexes of the sections behind which a cached prefix ends, besides the one of the system prompt.

    Notes at the end are in no prefix: the next call doesn't repeat them.
    """
    kept = len(sections)
    while kept and isinstance(sections[kept - 1], Note):
        kept -= 1
    latest_reply = next((n for n in reversed(range(kept)) if isinstance(sections[n], Reply)), 0)
    return frozenset(end for end in (latest_reply - 1, kept - 1) if end >= 0)


def cache_key(caller: str, task_id: str, agent: str) -> str:
    """Return the key of an agent's calls in a task, of at most 64 characters, which tells the provider neither."""
    return sha256(json.dumps((caller, task_id, agent)).encode()).hexdigest()[:32]


def takes_marks(request: ModelRequest) -> bool:
    """Return whether a call of Chat Completions may mark the ends of its prefixes."""
    if request.cache_key is None or not request.traits.claude:
        return False
    provider = request.options.get("custom_llm_provider") or provider_of(request.llm)
    return request.api_base is not None or provider in MARKING


def key_arguments(request: ModelRequest) -> dict[str, str]:
    """Return the argument with the cache's key; none for providers that may refuse it."""
    provider = provider_of(request.llm)
    is_own = provider == "openai" and request.own_address is not None
    if request.cache_key is None or provider not in KEYED or is_own or request.names_provider:
        return {}
    return {"prompt_cache_key": request.cache_key}


# ------------------------------------------------------------------------------------------- broken prefixes


@dataclass(frozen=True, slots=True)
class Sent:
    """The parts of a call's prefix, as hashes, which only this process can compare.

    Attributes:
        earlier: the input of the previous call, as this call repeats it.
        earlier_size: the characters of its texts.
        whole: the whole input.
        size: the characters of its texts.
    """

    model: str
    tools: int
    system: int
    earlier: int
    earlier_size: int
    whole: int
    size: int


def describe(request: ModelRequest) -> Sent:
    """Return what a call sends."""
    history = request.history
    end = len(history)
    while end and not is_assistant(history[end - 1]):
        end -= 1
    while end and is_assistant(history[end - 1]):
        end -= 1
    prints = [_fingerprint(entry) for entry in history]
    return Sent(
        model=request.llm,
        tools=_fingerprint(request.tools)[0],
        system=hash(request.system),
        earlier=hash(tuple(prints[:end])),
        earlier_size=sum(size for _, size in prints[:end]),
        whole=hash(tuple(prints)),
        size=sum(size for _, size in prints),
    )


def find_changes(before: Sent, now: Sent) -> list[str]:
    """Return the parts of the prefix that differ from the previous call's.

    A history that was shortened to fit into the context window counts as unchanged.
    """
    changes = [name for name in ("model", "tools", "system") if getattr(before, name) != getattr(now, name)]
    if now.earlier != before.whole and now.earlier_size >= before.size:
        changes.append("history")
    return ["system prompt" if name == "system" else name for name in changes]


class Prefixes:
    """Remembers what the latest calls of this process sent, in order to name what broke a prefix."""

    def __init__(self) -> None:
        self._latest: OrderedDict[str, tuple[Sent, int, float]] = OrderedDict()
        self._lock = Lock()

    def note(self, key: str, sent: Sent, usage: Usage, now: float) -> list[str]:
        """Note a call, and return what kept it from reading the prefix that the previous call had in the cache.

        `now` is in seconds, by any clock. Empty if it was read, had expired, or if the provider lost it by itself.
        """
        with self._lock:
            before, tokens, at = self._latest.pop(key, (sent, 0, now))
            self._latest[key] = sent, usage.cached_tokens + usage.cache_write_tokens, now
            if len(self._latest) > MANY:
                self._latest.popitem(last=False)
        was_read = usage.cached_tokens >= tokens
        return [] if was_read or now - at > LIFE_SECONDS else find_changes(before, sent)


def _fingerprint(value: Any) -> tuple[int, int]:
    """Return the hash of a JSON value, and the characters of its texts. Strings remember their hashes."""
    if isinstance(value, str):
        return hash(value), len(value)
    if isinstance(value, Mapping):
        prints = [_fingerprint(each) for each in value.values()]
        return hash((*value, *prints)), sum(size for _, size in prints)
    if isinstance(value, Sequence):
        prints = [_fingerprint(each) for each in value]
        return hash(tuple(prints)), sum(size for _, size in prints)
    return hash(value), 0
