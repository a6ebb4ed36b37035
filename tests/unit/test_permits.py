"""Permits: who may call a model now, how long others wait, and that nobody waits for longer than his share."""

from collections import Counter, defaultdict, deque
from heapq import heappop, heappush

import pytest

from mail.core.decisions.permits import (
    AHEAD_SECONDS,
    FULL_SECONDS,
    HOLD_SECONDS,
    Decision,
    decide,
    refused,
)
from mail.core.task.permits import NO_LIMITS, Ask, ModelLimits, Permits, Report

SIXTY = ModelLimits(requests_per_minute=60)


def ask(
    permits: Permits,
    *asks: Ask,
    limits: ModelLimits = SIXTY,
    now: float = 0.0,
    process: str = "a",
    **report: float,
) -> Decision:
    return decide(permits, limits, asks, process, Report(**report), now)  # type: ignore[arg-type]


class TestRequests:
    """A limit of requests, which is spread over the minute."""

    def test_one_begins_at_once_and_the_next_ones_soon_or_later(self) -> None:
        decision = ask(Permits(), *[Ask("ann")] * 5)
        waits = [reply.wait for reply in decision.replies]
        assert [reply.may_begin for reply in decision.replies] == [True, True, False, False, False]
        assert waits == pytest.approx([0.0, 1.03, 2.06, 3.09, 4.12], abs=0.1)
        assert all(wait <= AHEAD_SECONDS for wait in waits[:2])

    def test_who_comes_back_with_his_ticket_begins(self) -> None:
        decision = ask(Permits(), *[Ask("ann")] * 5)
        later = decision.replies[4]
        early = ask(decision.permits, Ask("ann", later.ticket), now=1.0)
        assert not early.replies[0].may_begin
        assert early.replies[0].ticket == later.ticket
        assert ask(decision.permits, Ask("ann", later.ticket), now=later.wait).replies[0].may_begin
        assert ask(decision.permits, Ask("ann", later.ticket), now=99.0).replies[0].wait == 0.0

    def test_callers_are_called_up_in_turn(self) -> None:
        crowd = ask(Permits(), *[Ask("ann")] * 50)
        (reply,) = ask(crowd.permits, Ask("bob"), now=0.5).replies
        assert reply.wait < 4

    def test_a_call_that_does_not_wait_takes_a_slot_or_leaves_nothing_behind(self) -> None:
        decision = ask(Permits(), *[Ask("ann", waits=False)] * 4)
        assert [reply.may_begin for reply in decision.replies] == [True, True, False, False]
        assert decision.replies[1].wait <= AHEAD_SECONDS < decision.replies[2].wait
        assert decision.permits.lines == {}
        closed = refused(Permits(), NO_LIMITS, 0.0, 20.0)
        assert not ask(closed, Ask("ann", waits=False)).replies[0].may_begin

    def test_a_call_that_does_not_wait_overtakes_nobody(self) -> None:
        crowd = ask(Permits(), *[Ask("ann")] * 5)
        (reply,) = ask(crowd.permits, Ask("bob", waits=False), now=1.0).replies
        assert not reply.may_begin

    def test_a_ticket_of_a_line_that_is_forgotten_counts(self) -> None:
        assert ask(Permits(), Ask("ann", 7)).replies[0].may_begin

    def test_a_block_is_for_calls_to_come_and_comes_back_unused(self) -> None:
        many = ModelLimits(requests_per_minute=6_000)
        first = decide(Permits(slots=100.0), many, [Ask("ann")], "a", Report(), 0.0, block=50)
        assert first.block == 50
        other = decide(first.permits, many, [], "b", Report(), 0.0, block=100)
        assert other.block == 47
        assert decide(other.permits, many, [], "a", Report(unused=30), 0.0, block=100).block == 30
        busy = decide(Permits(), SIXTY, [Ask("ann")] * 9, "a", Report(), 0.0, block=50)
        assert busy.block == 0


class TestOtherLimits:
    """Tokens, calls at the same time, and what a provider says."""

    def test_calls_with_more_tokens_are_fewer(self) -> None:
        limits = ModelLimits(tokens_per_minute=60_000)
        small = ask(Permits(), *[Ask("ann")] * 9, limits=limits)
        permits = ask(Permits(), limits=limits, ended=1, tokens=10_000).permits
        large = ask(permits, *[Ask("ann")] * 9, limits=limits, now=0.0)
        assert large.replies[-1].wait > 3 * small.replies[-1].wait

    def test_no_more_run_at_the_same_time(self) -> None:
        limits = ModelLimits(concurrent=3)
        first = ask(Permits(), Ask("ann"), Ask("ann"), limits=limits, process="a")
        assert [reply.may_begin for reply in first.replies] == [True, True]
        second = ask(first.permits, Ask("ann"), Ask("bob"), limits=limits, process="b")
        assert [reply.may_begin for reply in second.replies] == [True, False]
        assert second.replies[1].wait >= FULL_SECONDS
        ended = ask(second.permits, limits=limits, process="a", running=1, ended=1, seconds=2.0)
        again = Ask("bob", second.replies[1].ticket)
        assert ask(ended.permits, again, limits=limits, process="b", running=1).replies[0].may_begin
        gone = ask(second.permits, again, limits=limits, process="b", running=1, now=HOLD_SECONDS + 1)
        assert gone.replies[0].may_begin

    def test_without_limits_all_begin(self) -> None:
        assert all(reply.may_begin for reply in ask(Permits(), *[Ask("ann")] * 99, limits=NO_LIMITS).replies)

    def test_a_provider_that_refuses_is_left_alone_for_its_time(self) -> None:
        permits = refused(Permits(), SIXTY, 0.0, 20.0)
        assert permits.learnt == SIXTY
        decision = ask(permits, Ask("ann"), Ask("ann"), now=5.0)
        assert [reply.may_begin for reply in decision.replies] == [False, False]
        assert all(15 <= reply.wait <= 18 for reply in decision.replies)
        assert refused(permits, NO_LIMITS, 0.0, 5.0) == permits


class Provider:
    """Takes so many calls in any minute."""

    def __init__(self, limit: int) -> None:
        self.accepted: deque[float] = deque()
        self.refused = 0
        self._limit = limit

    def call(self, now: float) -> None:
        recent = sum(time > now - 60 for time in self.accepted)
        if recent < self._limit:
            self.accepted.append(now)
        else:
            self.refused += 1


@pytest.mark.parametrize("callers", [1, 4])
def test_many_agents_on_several_servers_use_the_limit_and_share_it(callers: int) -> None:
    """64 agents call one after the other; a call takes 5 s. One caller in four has all but three of the agents."""
    provider, permits, agents = Provider(60), Permits(), 64
    owner = [f"caller {max(0, n - agents + callers)}" for n in range(agents)]
    waits: defaultdict[str, list[float]] = defaultdict(list)
    events: list[tuple[float, int, float, int]] = [(n / 1000, n, n / 1000, 0) for n in range(agents)]
    end = 1_800.0
    while (event := heappop(events))[0] < end:
        now, agent, since, ticket = event
        decision = ask(permits, Ask(owner[agent], ticket), now=now, process=f"server {agent % 3}")
        permits, (reply,) = decision.permits, decision.replies
        if not reply.may_begin:
            late = 0.3 * (agent % 4)  # a wake-up is late
            heappush(events, (now + reply.wait + late, agent, since, reply.ticket))
            continue
        begin = now + reply.wait
        provider.call(begin + 0.05 * (agent % 3))
        waits[owner[agent]].append(begin - since)
        heappush(events, (begin + 5, agent, begin + 5, 0))
    counts = Counter({name: len(each) for name, each in waits.items()})
    assert len(provider.accepted) >= 0.95 * 60 * end / 60
    assert provider.refused <= 0.01 * counts.total()
    crowd = counts["caller 0"] / (agents - callers + 1)
    assert max(waits["caller 0"]) <= 2 * end / crowd
    for name in list(counts - Counter("caller 0"))[1:]:
        assert max(waits[name], default=0.0) <= 2 * callers * 60 / 60 + 2
