"""Store: searching tasks by plain text, in the order of their last change."""

import pytest
from support.engines.adapters import StoreAdapter, searched

from mail.adapters.shared.search import NEWEST_PARTS, PART
from mail.core.task.ports import Store
from mail.core.task.search import MOST_WORDS, Search, Searched, words_of
from mail.core.task.task import Task, TaskKey, TaskStatus, Transition
from mail.errors import BadRequest, Subject
from mail.testing.changes import ANN, BOB, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, open_turn

BODY = "Compute 2**77 before long; café in 東京, 서울 or Москва. She said \"AND\" 'twice' \\ NEAR(x)"


async def find(store: Store, query: str, *, instance: str = ANN, **asked: object) -> list[str]:
    page = await searched(store, instance, Search(words_of(query), **asked))  # type: ignore[arg-type]
    return [task.task_id for task in page.tasks]


async def has_texts(store: Store) -> bool:
    return (await searched(store, ANN, Search())).searched is Searched.TEXTS


@pytest.fixture
async def tasks(store: Store, make: Maker) -> dict[str, Task]:
    begun = {
        "long-talk": make.begin(TaskKey(ANN, "long-talk"), Mail("alpha", body=BODY), title="Sums"),
        "other": make.begin(TaskKey(ANN, "other"), Mail("beta", body="nothing of that"), title="100% pure_x"),
        "bobs": make.begin(TaskKey(BOB, "bobs"), Mail("alpha", body=BODY), title="Sums"),
    }
    return {name: (await committed(store, change)).task for name, change in begun.items()}


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    "query",
    [
        "2**77",
        "fore lo",
        "CAFE",
        "café",
        "東京",
        "東",
        "서울",
        "москва",
        '"AND"',
        "'twice'",
        "\\",
        "NEAR(x)",
        "sh",
        "a",
    ],
)
async def test_a_text_is_found_as_it_stands(store: Store, query: str) -> None:
    found = await find(store, query)
    assert "long-talk" in found if await has_texts(store) else "bobs" not in found
    assert "bobs" not in found
    assert ("other" in found) <= (query == "a")


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    "query", ["2**78", "sums OR zebra", "東京は", "compute*", "-sums", "title:sums", "%", "long_talk", "0% x"]
)
async def test_nothing_in_a_query_is_a_syntax(store: Store, query: str) -> None:
    assert "long-talk" not in await find(store, query)


@pytest.mark.usefixtures("tasks")
async def test_titles_and_ids_are_found_in_every_store(store: Store) -> None:
    assert await find(store, "LONG-talk") == ["long-talk"]
    assert await find(store, "sums ng-t") == ["long-talk"]
    assert await find(store, "100% pure_x") == ["other"]
    assert await find(store, "sums", instance=BOB) == ["bobs"]
    assert sorted(await find(store, "")) == ["long-talk", "other"]
    assert await find(store, "sums pure_x") == []


@pytest.mark.usefixtures("tasks")
async def test_agents_and_addresses_are_found_with_the_texts(store: Store) -> None:
    if await has_texts(store):
        assert await find(store, "beta") == ["other", "long-talk"] or await find(store, "beta") == ["other"]
        assert await find(store, "alpha compute") == ["long-talk"]


async def test_what_comes_later_is_found_too_and_the_words_may_be_far_apart(
    store: Store, make: Maker, tasks: dict[str, Task]
) -> None:
    long = "x" * 20_000
    change = make.change(
        tasks["long-talk"], Mail("beta", body=f"{long} needle {long}"), Mail("beta", body="hay")
    )
    await store.commit(change)
    if await has_texts(store):
        assert await find(store, "needle") == await find(store, "2**77 hay needle") == ["long-talk"]
        turn = await open_turn(store, tasks["other"].key, "beta", make)
        await store.commit(make.change(turn.task, turn=turn, transition=Transition.COMPLETE))
        assert await find(store, "happened") == ["other"], "the answer"


async def test_an_excerpt_shows_the_words_in_the_last_message_that_has_one(
    store: Store, make: Maker, tasks: dict[str, Task]
) -> None:
    long = "x" * 20_000
    body = f"Long\nbefore it, there was a NEEDLE in the haystack of hay {long}"
    await store.commit(make.change(tasks["long-talk"], Mail("beta", body=f"{long} words {body}")))

    async def excerpts(query: str) -> list[tuple[str, ...] | None]:
        return list((await searched(store, ANN, Search(words_of(query)))).excerpts)

    if await has_texts(store):
        (excerpt,) = await excerpts("needle hay")
        assert excerpt is not None
        assert excerpt[1::2] == ("NEEDLE", "hay", "hay")
        text = "".join(excerpt)
        assert (text[0], text[-1]) == ("…", "…")
        assert " Long before it, there was a NEEDLE in the haystack" in text
        assert len(text) <= 130
        ((*_, found, _),) = [each for each in await excerpts("서울 sums") if each]
        assert found == "서울"
        assert await excerpts("pure_x") == [None], "only its title has that"
        assert await excerpts("") == [None, None]
        assert await excerpts("beta") == [None] * len(await find(store, "beta")), "only the name of an agent"


@pytest.mark.parametrize(
    ("body", "query", "expected"),
    [
        ("HONEY of Özgür", "ozgur", ("HONEY of ", "Özgür", "")),
        ("İİİ ﬁn, Straße 9, İzmir", "strasse", ("İİİ ﬁn, ", "Straße", " 9, İzmir")),
        ("İİİ ﬁn, Straße 9, İzmir", "ras se IZ", ("İİİ ﬁn, St", "raß", "e 9, ", "İz", "mir")),
        (
            "O\u0308zgu\u0308r, cafe\u0301\u0302s",
            "ür cafe",
            ("O\u0308zg", "u\u0308r", ", ", "cafe\u0301\u0302", "s"),
        ),
        ("ß" * 9_000 + " Ünder " + "é" * 100, "under", (f"…{'ß' * 49} ", "Ünder", f" {'é' * 69}…")),
        ("… wait", "wait ...", ("", "…", " ", "wait", "")),
    ],
)
async def test_an_excerpt_is_as_it_was_written(
    store: Store, make: Maker, body: str, query: str, expected: tuple[str, ...]
) -> None:
    subject = Subject.TASK_COMPLETE
    begun = make.begin(
        TaskKey(ANN, "t"), Mail("alpha", body="before"), Mail("beta", subject=subject, body=body)
    )
    await store.commit(make.change((await committed(store, begun)).task, Mail("beta", body="behind")))
    if await has_texts(store):
        page = await searched(store, ANN, Search(words_of(query)))
        assert page.excerpts == (expected,), "no other message, and nothing but what people wrote"


async def test_an_excerpt_is_looked_for_in_the_last_parts_only(store: Store, make: Maker) -> None:
    """A word of a title would be looked for in all texts of its tasks, for longer than a search may take."""
    key = TaskKey(ANN, "long")
    begun = await committed(store, make.begin(key, Mail("alpha", body="an old needle")))
    excerpts = list[bool]()
    for size in (1, PART * NEWEST_PARTS):
        begun = await committed(store, make.change(begun.task, Mail("alpha", body="x" * size)))
        page = await searched(store, ANN, Search(words_of("needle")))
        assert [task.key for task in page.tasks] == ([key] if await has_texts(store) else [])
        excerpts += map(bool, page.excerpts)
    assert excerpts == ([True, False] if await has_texts(store) else [])


async def test_the_last_changed_task_is_the_first(adapter: StoreAdapter) -> None:
    clock = FakeClock()
    make, store = Maker(clock), adapter.store
    begun = {}
    for n in range(7):
        clock.advance(60)
        key = TaskKey(ANN, f"task-{n}")
        begun[n] = (await committed(store, make.begin(key, Mail("alpha"), title="a sum"))).task
    clock.advance(60)
    await store.commit(make.change(begun[2], Mail("alpha", body="again")))
    expected = ["task-2", "task-6", "task-5", "task-4", "task-3", "task-1", "task-0"]
    if not await has_texts(store):
        expected = sorted(expected, reverse=True)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await searched(store, ANN, Search(("sum",)), limit=3, cursor=cursor)
        found += [task.task_id for task in page.tasks]
        assert len(page.cursors) == len(page.tasks)
        cursor = page.cursor
        if cursor is None:
            break
    assert found == expected
    first = await store.search(ANN, Search(("sum",)), limit=3)
    rest = await store.search(ANN, Search(("sum",)), cursor=first.cursors[0])
    assert [task.task_id for task in rest.tasks] == expected[1:], "a page may be cut after any task"
    since, until = begun[4].updated, begun[6].updated
    asked = await store.search(ANN, Search(("sum",), since=since, until=until))
    assert [task.task_id for task in asked.tasks] == ["task-5", "task-4"]


async def test_state_and_cost(store: Store, make: Maker, tasks: dict[str, Task]) -> None:
    turn = await open_turn(store, tasks["other"].key, "beta", make)
    await store.commit(make.change(turn.task, turn=turn, transition=Transition.COMPLETE))
    assert await find(store, "", status=TaskStatus.COMPLETED) == ["other"]
    assert await find(store, "", status=TaskStatus.RUNNING) == ["long-talk"]
    assert await find(store, "", min_cost=0.01) == []


async def test_a_deleted_task_is_forgotten(store: Store, make: Maker, tasks: dict[str, Task]) -> None:
    await find(store, "sums")
    await store.delete(tasks["long-talk"])
    assert await find(store, "sums") == []
    await store.commit(
        make.begin(TaskKey(ANN, "long-talk"), Mail("alpha", body="something else"), title="New")
    )
    assert await find(store, "2**77") == await find(store, "sums") == []
    assert await find(store, "new") == ["long-talk"]


async def test_what_a_process_has_not_indexed_the_next_one_does(durable: StoreAdapter, make: Maker) -> None:
    await durable.store.commit(make.begin(TaskKey(ANN, "left"), Mail("alpha", body=BODY), title="Left"))
    store = await durable.reopen()
    assert await find(store, "left") == ["left"]


@pytest.mark.parametrize("cursor", ["", "x", "1@", "@2026", "1@x'y", "9" * 30])
async def test_a_foreign_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(BadRequest):
        await store.search(ANN, Search(), cursor=cursor)


def test_a_query_has_its_limits() -> None:
    assert words_of(" Ab  ab É\tc") == ("ab", "e", "c")
    for text in (" ".join(map(str, range(MOST_WORDS + 1))), "x" * 129):
        with pytest.raises(BadRequest, match="q has more than"):
            words_of(text)
