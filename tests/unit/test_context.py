"""Where an agent's context is cut, decided from sizes alone."""

from dataclasses import replace
from typing import Any

import pytest

from mail.core.decisions.context import (
    Load,
    carry,
    characters,
    decide_cut,
    estimate,
    learn,
    result_limit,
    split,
    transcribe,
    write_summary,
)
from mail.core.decisions.turn import AgentFailure, _within, settle
from mail.core.task.change import Turn
from mail.core.task.context import (
    PINNED,
    QUOTED,
    SHORT,
    SUMMARIZES,
    UNKNOWN,
    WHOLE,
    AgentContext,
    Context,
    Cut,
    Portion,
    Preparation,
    shorten,
    view,
)
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.leases import Lease
from mail.core.task.task import TaskKey
from mail.errors import ConfigurationError
from mail.swarms_json.specs import AgentSpec
from mail.testing.agents import build_swarm
from mail.testing.changes import NOW, Maker
from mail.testing.clock import FakeClock

USUAL = Context()
WINDOW = 1_000

CLOCK = FakeClock()


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(text: str, call: str = "c") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def turn(n: int, answer: str = "", size: int = 300) -> Portion:
    """A turn of a hundred tokens, which may end with the result of a call."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    entries = [said(f"message {n}"), call, result(answer)] if answer else [said(f"message {n}")]
    return Portion(n, entries, size + len(answer))


def load(tokens: int, portions: list[Portion]) -> Load:
    return Load(tokens, sum(portion.size for portion in portions))


TEN = [turn(n) for n in range(1, 11)]


def test_what_fits_is_not_cut() -> None:
    assert decide_cut(WHOLE, TEN, load(800, TEN), WINDOW, USUAL) is None


def test_old_results_become_references_if_that_is_enough() -> None:
    portions = [turn(n, "x" * 2_000 if n < 10 else "", 100) for n in range(1, 11)]
    assert decide_cut(WHOLE, portions, load(810, portions), WINDOW, USUAL) == Cut(references=9)


def test_else_the_oldest_turns_are_left_out_down_to_the_share_that_is_kept() -> None:
    cut = decide_cut(WHOLE, TEN, load(810, TEN), WINDOW, USUAL)
    assert cut == Cut(begin=9, references=9, carries=11)  # a summary and pins may take 187 tokens
    wide = Context(at=0.8, keep=0.7)
    assert decide_cut(WHOLE, TEN, load(810, TEN), WINDOW, wide) == Cut(begin=5, references=9, carries=11)


def test_the_newest_turn_stays_and_a_long_one_becomes_references() -> None:
    portions = [*TEN[:9], turn(10, "x" * 9_000)]
    cut = decide_cut(WHOLE, portions, load(4_000, portions), WINDOW, USUAL)
    assert cut == Cut(begin=10, references=11, long=375, carries=11)
    assert decide_cut(WHOLE, [], Load(5_000, 15_000), WINDOW, USUAL) == Cut(references=1, long=375)


def test_a_call_is_never_parted_from_its_result() -> None:
    answered = Portion(10, [result("the user's answer"), said("and go on")], 300)
    cut = decide_cut(WHOLE, [*TEN[:9], answered], load(900, TEN), WINDOW, USUAL)
    assert cut is not None
    assert cut.begin == 9


def test_a_refused_call_is_cut_to_half_of_that_whatever_its_size() -> None:
    wide = Context(at=0.8, keep=0.7)
    cut = decide_cut(WHOLE, TEN, load(900, TEN), WINDOW, wide, harder=True)
    assert cut == Cut(begin=10, references=9, carries=11)
    last = decide_cut(cut, TEN[9:], load(100, TEN[9:]), WINDOW, wide, harder=True)
    assert last == Cut(begin=10, references=11, long=375, carries=11)
    assert decide_cut(last, TEN[9:], load(100, TEN[9:]), WINDOW, wide, harder=True) is None


def test_a_refusal_teaches_a_window() -> None:
    learnt = learn(UNKNOWN, "house/small", 128_000, 9_000)
    assert learnt == AgentContext(window=8_100, model="house/small")
    assert learnt.window_of("house/small", None) == 8_100
    assert learnt.window_of("house/large", None) == 128_000
    assert learnt.window_of("house/small", 4_000) == 4_000
    assert learn(UNKNOWN, "m", 128_000, 10).window == 1_024


def test_what_no_model_has_counted_is_estimated() -> None:
    assert estimate(UNKNOWN, TEN, 30) == 1_010
    counted = AgentContext(tokens=500, counted=9)
    assert estimate(counted, TEN, 30) == 610
    assert counted.after(10, 60) == AgentContext(tokens=520, counted=10)
    assert UNKNOWN.after(10, 60) == UNKNOWN


def test_what_is_read_is_the_same_however_it_was_read_before() -> None:
    """The beginning must not change between two cuts, whether a process had it or reads it from the store."""
    portions = [turn(n, "x" * 2_000) for n in range(1, 6)]
    portions[4].entries.extend([write_summary("in short", 3), {**said("find it"), PINNED: 1}])
    cut = Cut(begin=3, references=4, carries=5)
    seen = view(portions, cut)
    assert [entry["content"] for entry in seen[:2]] == [
        "<summary_of_earlier_events>in short</summary_of_earlier_events>",
        "find it",
    ]
    assert not any(SUMMARIZES in entry or PINNED in entry for entry in seen)
    assert [len(str(entry["content"])) > SHORT for entry in seen if entry.get("role") == "tool"] == [
        False,
        False,
        True,
    ]
    assert [each.seen(Cut(references=3)).seen(cut) for each in portions] == [
        each.seen(cut) for each in portions
    ]
    assert shorten("x" * 2_000, QUOTED, "3.2") in [entry["content"] for entry in seen]


class TestWhatStays:
    PORTIONS = (
        Portion(
            1, [said("look for " + "y" * 800), said("and read"), {"role": "assistant", "content": "ok"}], 900
        ),
        Portion(2, [said("chatter")], 50),
        Portion(3, [said("newer")], 50),
    )

    def test_messages_of_this_run_stay(self) -> None:
        kept = carry(self.PORTIONS, [], 3, (1, 3), 10_000)
        assert [entry[PINNED] for entry in kept] == [1, 1]
        assert kept[1] == {**said("and read"), PINNED: 1}

    def test_long_ones_become_references(self) -> None:
        first, second = carry(self.PORTIONS, [], 3, (1,), 1_000)
        assert first["content"] == shorten("look for " + "y" * 800, QUOTED, "1.0")
        assert second["content"] == "and read"

    def test_what_an_earlier_cut_has_carried_stays_as_long_as_its_run(self) -> None:
        carried = [write_summary("in short", 2), {**said("and read"), PINNED: 1}]
        assert carry(self.PORTIONS[1:], carried, 3, (1,), 1_000) == carried[1:]
        assert carry(self.PORTIONS[1:], carried, 3, (4,), 1_000) == []


def test_a_turn_shares_a_quarter_of_the_window_among_its_results() -> None:
    assert result_limit(USUAL, 128_000, 1) == 20_000
    assert result_limit(USUAL, 8_000, 1) == characters(8_000, 1 / 8) == 3_000
    assert result_limit(USUAL, 8_000, 10) == 600
    assert result_limit(USUAL, 8_000, 1_000) == QUOTED
    assert result_limit(Context(results=1_500), 128_000, 1) == 1_500


def test_a_transcript_says_nothing_that_only_a_provider_reads() -> None:
    entry = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s" * 99}]}
    assert transcribe([entry, said("x")]) == (
        '{"role":"assistant","content":[{"type":"thinking","thinking":"hm"}]}\n{"role":"user","content":"x"}'
    )


def test_the_transcript_of_a_limit_notice_fits() -> None:
    texts = [str(n) * 100 for n in range(9)]
    assert _within(texts, None) == _within(texts, 900) == texts
    kept = _within(texts, 480)
    assert kept[0] == texts[0]
    assert kept[1] == "(5 messages are left out here.)"
    assert kept[2:] == texts[6:]
    assert len(_within(["x" * 1_000, "y" * 1_000], 400)[0]) == 100


@pytest.mark.parametrize(
    ("length", "sizes"), [(0, []), (1, [1]), (100, [100]), (101, [51, 50]), (250, [84, 84, 82])]
)
def test_pieces_of_a_transcript_are_about_equally_long(length: int, sizes: list[int]) -> None:
    text = "".join(str(n % 10) for n in range(length))
    pieces = split(text, 100)
    assert [len(piece) for piece in pieces] == sizes
    assert "".join(pieces) == text


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        ("on", "context: must be off, or settings: at, keep, model, results"),
        ({"att": 0.5}, "att: unknown key. Did you mean 'at'"),
        ({"at": 0.3}, "keep must be less than at"),
        ({"at": 1.5}, "at: "),
        ({"results": 10}, "results: "),
    ],
)
def test_wrong_settings(context: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        AgentSpec.read("agent 'a'", {"name": "a", "factory": "python::a:b", "context": context})


def test_a_turn_that_fails_keeps_the_window_that_it_has_learnt_but_no_cut() -> None:
    swarm = build_swarm({"lead": lambda _view: []})
    begun = Maker(CLOCK).begin(TaskKey("user:ann@example", "t"))
    entry = replace(begun.deliveries[0], mailbox="lead")
    task = replace(
        begun.task,
        entrypoint="lead",
        pending={"lead": (0, 1, 0, 0, 0)},
        contexts={"lead": AgentContext(tokens=5_000, counted=3)},
    )
    cut = AgentContext(cut=Cut(begin=3, references=3), window=8_000, model="house")
    failure = AgentFailure("it is down", preparation=Preparation(context=cut, carried=[write_summary("", 3)]))
    change = settle(Draft(task, swarm, CLOCK), Turn(task, entry, Lease("lease", NOW + 60), [], None), failure)
    learnt = AgentContext(tokens=5_000, counted=3, window=8_000, model="house")
    assert change.task.contexts == {"lead": learnt}
    assert EventKind.CONTEXT_CUT not in [event.kind for event in change.events]
