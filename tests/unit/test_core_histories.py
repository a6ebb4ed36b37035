"""The cache of histories: it may forget at any time, but must never be wrong."""

import asyncio
import gc
from typing import Any

from mail.core.engine.histories import CachedHistory, HistoryCache
from mail.core.engine.turn import AgentTurn
from mail.core.task.context import Cut, Portion
from mail.core.task.size import json_size
from mail.core.task.task import TaskKey
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.rig import TIMEOUT, Rig

ONE = TaskKey("user:ann@x", "one")


def entries(*names: str) -> list[dict[str, Any]]:
    return [{"content": name} for name in names]


def portions(first: int, *names: str) -> list[Portion]:
    """Return portions of one entry each."""
    return [Portion(n, entries(name), json_size(entries(name))) for n, name in enumerate(names, first)]


def joined(cached: CachedHistory | None) -> list[dict[str, Any]]:
    assert cached is not None
    return cached.entries


def test_it_joins_what_it_is_given() -> None:
    cache = HistoryCache()
    assert cache.count(ONE, "a") == 0
    assert joined(cache.extend(ONE, "a", 0, 0, [])) == []
    assert joined(cache.extend(ONE, "a", 0, 3, portions(1, "x", "y", "z"))) == entries("x", "y", "z")
    assert joined(cache.extend(ONE, "a", 3, 4, portions(4, "w"))) == entries("x", "y", "z", "w")
    assert joined(cache.extend(ONE, "a", 4, 4, [])) == entries("x", "y", "z", "w")
    assert cache.count(ONE, "a") == 4


def test_the_least_recently_used_go_first() -> None:
    cache = HistoryCache(max_bytes=4 * json_size(entries("1")))
    cache.extend(ONE, "a", 0, 2, portions(1, "1", "2"))
    cache.extend(ONE, "b", 0, 2, portions(1, "1", "2"))
    cache.extend(ONE, "a", 2, 2, [])
    cache.extend(ONE, "c", 0, 1, portions(1, "1"))
    assert [cache.count(ONE, agent) for agent in "abc"] == [2, 0, 1]


def test_one_history_that_is_too_large_alone_is_not_kept() -> None:
    cache = HistoryCache(max_bytes=1000)
    assert joined(cache.extend(ONE, "a", 0, 1, portions(1, "x" * 2000))) == entries("x" * 2000)
    assert cache.count(ONE, "a") == 0
    cache.extend(ONE, "b", 0, 1, portions(1, "x"))
    cache.extend(ONE, "b", 1, 2, portions(2, "y" * 2000))
    assert cache.count(ONE, "b") == 0


def test_a_long_text_counts_as_it_is_in_memory() -> None:
    """One character makes all of a text wide there."""
    for last, kept in (("x", 1), ("\N{GRINNING FACE}", 0)):
        cache = HistoryCache(max_bytes=2_000_000)
        cache.extend(ONE, "a", 0, 1, portions(1, "x" * 1_000_000 + last))
        assert cache.count(ONE, "a") == kept


def test_what_does_not_follow_on_what_is_known_is_not_joined_to_it() -> None:
    """The earlier part may have been forgotten while a turn ran."""
    cache = HistoryCache()
    assert cache.extend(ONE, "a", 1, 2, portions(2, "second")) is None
    assert cache.count(ONE, "a") == 0
    cache.extend(ONE, "a", 0, 1, portions(1, "first"))
    assert cache.extend(ONE, "a", 2, 3, portions(3, "third")) is None
    assert joined(cache.extend(ONE, "a", 0, 2, portions(1, "first", "second"))) == entries("first", "second")


def test_what_is_known_already_is_not_joined_twice() -> None:
    """Two workers may have asked before the first one was done."""
    cache = HistoryCache()
    cache.extend(ONE, "a", 0, 2, portions(1, "first", "second"))
    assert joined(cache.extend(ONE, "a", 1, 2, portions(2, "second"))) == entries("first", "second")


def test_a_cut_moves_the_beginning_and_what_is_carried_there() -> None:
    cache = HistoryCache()
    cache.extend(ONE, "a", 0, 2, portions(1, "first", "second"))
    summary = {"role": "user", "content": "in short", "summarizes": 2}
    cut = Cut(begin=2, carries=3)
    third = Portion(3, [*entries("third"), summary], 100)
    told = [{"role": "user", "content": "in short"}, *entries("second", "third")]
    assert joined(cache.extend(ONE, "a", 2, 3, [third], cut)) == told
    assert joined(cache.extend(ONE, "a", 3, 3, [], cut)) == told
    fresh = HistoryCache()
    assert joined(fresh.extend(ONE, "a", 0, 3, [*portions(2, "second"), third], cut)) == told
    behind = HistoryCache()  # another worker has cut it, at a portion that is not known here yet
    behind.extend(ONE, "a", 0, 1, portions(1, "first"))
    assert joined(behind.extend(ONE, "a", 1, 3, [*portions(2, "second"), third], cut)) == told


def test_its_size_is_counted_right_over_many_changes() -> None:
    cache = HistoryCache(max_bytes=2000)
    for n in range(2000):
        agent = f"agent-{n * 7 % 13}"
        known = cache.count(ONE, agent)
        cache.extend(ONE, agent, known if n % 5 else known + 1, known + 1, portions(known + 1, "x"))
    held = sum(cached.held for cached in cache._known.values())
    assert held == cache._bytes
    assert 0 < held <= 2000
    assert all(json_size(cached.entries) <= cached.size + 8 for cached in cache._known.values())


async def test_an_agent_keeps_its_memory_however_much_others_say_meanwhile() -> None:
    """While its model thinks, its history may fall out of the cache; the turn's commit must not make a new one."""
    go = asyncio.Event()

    async def supervisor(view: View) -> Any:
        if view.messages[0].body == "chatter":
            return [call("help")] if len(view.messages) < 8 else [complete()]
        if len(view.messages) == 2:
            await go.wait()
        return (
            [complete(",".join(letter.body for letter in view.messages))]
            if len(view.messages) == 4
            else [call("help", get_summary=False)]
        )

    async with Rig(build_swarm({"supervisor": supervisor})) as rig:
        rig.runtime.histories = HistoryCache(max_bytes=2000)
        slow = await rig.submit("slow")
        await rig.ask("chatter")
        go.set()
        outcome = await rig.outcome(slow)
    assert outcome.answer.count(",") == 3
    assert outcome.answer.startswith("slow,")


async def test_a_turn_that_has_waited_is_let_go() -> None:
    """The timer of its time limit is kept for a while, with the context that it was set in."""

    async def supervisor(view: View) -> Any:
        await asyncio.sleep(0.001)
        return [complete(view.mail.body)]

    async with Rig(build_swarm({"supervisor": supervisor})) as rig:
        await rig.ask("hello")
        ours = {(await rig.ask("another")).key, (await rig.ask("and another")).key}

        def held() -> bool:  # other tests of this process may have left turns
            gc.collect()
            return any(
                isinstance(each, AgentTurn) and each.turn.task.key in ours for each in gc.get_objects()
            )

        async with asyncio.timeout(TIMEOUT):  # an answer arrives before its turn's worker is done
            while held():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
