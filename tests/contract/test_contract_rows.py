"""Rows of text: they change together or not at all, and those with times have pages."""

import asyncio

import pytest
from support.engines.adapters import StoreAdapter

from mail.core.task.documents import PutIf
from mail.core.task.rows import Order, Rows, Times, Write

BOX = "box"


@pytest.fixture
def rows(adapter: StoreAdapter) -> Rows:
    return adapter.rows


def entry(name: str, entered: int, sent: int = 0, text: str = "") -> Write:
    return Write((BOX, name), text or name, PutIf.ABSENT, Times(f"{entered:03}", f"{sent:03}"))


async def names(
    rows: Rows, by: Order = "entered", *, newest_first: bool = False, limit: int = 100, offset: int = 0
) -> list[str]:
    page = await rows.page(BOX, by=by, newest_first=newest_first, limit=limit, offset=offset)
    return [name for name, _ in page.rows]


async def test_rows_are_read_by_their_keys(rows: Rows) -> None:
    keys = [(place, name) for place in ("a", "b") for name in ("x", "y")]
    assert await rows.write([Write(key, "/".join(key)) for key in keys])
    assert await rows.read(("a", "x"), ("b", "y"), ("a", "z")) == {("a", "x"): "a/x", ("b", "y"): "b/y"}
    assert await rows.read() == {}


async def test_rows_are_found_by_the_beginning_of_their_names(rows: Rows) -> None:
    assert await rows.write([Write(("a", name), name) for name in ("x:2", "x:1", "x:3", "y:1")])
    assert await rows.find("a", "x:") == [("x:1", "x:1"), ("x:2", "x:2"), ("x:3", "x:3")]
    assert await rows.find("a", "x:", after="x:1", limit=1) == [("x:2", "x:2")]
    assert await rows.find("b", "") == []


@pytest.mark.parametrize(
    ("refused", "stays"),
    [
        (Write(("a", "old"), "new", PutIf.ABSENT), "text"),
        (Write(("a", "none"), "new", PutIf.PRESENT), None),
        (Write(("a", "old"), "new", "other"), "text"),
        (Write(("a", "old"), None, "other"), "text"),
        (Write(("a", "none"), None, "other"), None),
    ],
)
async def test_one_false_condition_keeps_a_write_from_happening(
    rows: Rows, refused: Write, stays: str | None
) -> None:
    assert await rows.write([Write(("a", "old"), "text")])
    beside = [Write(("a", "0"), "before"), entry("first", 1), Write(("z", "z"), "behind", PutIf.ABSENT)]
    assert not await rows.write([*beside, refused])
    assert (await rows.read(refused.key)).get(refused.key) == stays
    assert await rows.read(("a", "0"), (BOX, "first"), ("z", "z")) == {}
    assert (await rows.page(BOX, limit=10)).total == 0


async def test_a_write_changes_deletes_and_adds(rows: Rows) -> None:
    assert await rows.write([Write(("a", name), name) for name in "bcd"])
    writes = [
        Write(("a", "a"), "added", PutIf.ABSENT),
        Write(("a", "b"), "changed", "b"),
        Write(("a", "c"), None, "c"),
        Write(("a", "d"), "put", PutIf.PRESENT),
        Write(("a", "e"), None),
    ]
    assert await rows.write(writes)
    assert await rows.find("a", "") == [("a", "added"), ("b", "changed"), ("d", "put")]


async def test_pages_have_both_orders_in_both_directions(rows: Rows) -> None:
    assert await rows.write([entry("c", 1, 5), entry("a", 2, 4), entry("b", 3, 6)])
    assert await names(rows) == ["c", "a", "b"]
    assert await names(rows, newest_first=True) == ["b", "a", "c"]
    assert await names(rows, "sent") == ["a", "c", "b"]
    assert await names(rows, "sent", newest_first=True) == ["b", "c", "a"]


async def test_a_page_is_a_part_and_tells_the_total(rows: Rows) -> None:
    assert await rows.write([entry(f"n{number}", number) for number in range(7)])
    assert await names(rows, limit=3, offset=2) == ["n2", "n3", "n4"]
    assert await names(rows, newest_first=True, limit=3, offset=5) == ["n1", "n0"]
    for offset, count in ((0, 3), (5, 2), (7, 0), (50, 0)):
        page = await rows.page(BOX, limit=3, offset=offset)
        assert (page.total, len(page.rows)) == (7, count)
    assert await rows.totals("none", BOX) == {"none": 0, BOX: 7}


async def test_rows_without_times_are_on_no_page(rows: Rows) -> None:
    assert await rows.write([Write((BOX, "plain"), "plain"), entry("shown", 1)])
    assert (await rows.page(BOX, limit=10)).rows == [("shown", "shown")]
    assert (await rows.page(BOX, limit=10)).total == 1
    assert (await rows.page("other", limit=10)).total == 0


async def test_a_row_keeps_its_times_until_it_is_deleted(rows: Rows) -> None:
    first, second = entry("first", 1), entry("second", 2)
    assert await rows.write([first, second])
    assert await rows.write([Write(first.key, "changed", "first", first.times)])
    assert (await rows.page(BOX, limit=10)).rows == [("first", "changed"), ("second", "second")]
    assert await rows.write([Write(first.key, None, "changed", first.times), entry("third", 3)])
    assert await names(rows) == ["second", "third"]
    assert (await rows.page(BOX, limit=10)).total == 2
    assert await rows.write([entry("first", 9)])
    assert await names(rows, newest_first=True, limit=1) == ["first"]


async def test_one_write_has_as_many_rows_with_times_as_it_may(rows: Rows) -> None:
    count = rows.write_limit
    others = [Write(("a", str(number)), "text", PutIf.ABSENT) for number in range(count)]
    entries = [
        Write((f"{BOX}{number}", "m"), "text", PutIf.ABSENT, Times("1", "1")) for number in range(count)
    ]
    assert await rows.write([*others, *entries])
    assert (await rows.page(f"{BOX}{count - 1}", limit=1)).total == 1


async def test_of_concurrent_writes_one_gets_a_name(rows: Rows) -> None:
    written = await asyncio.gather(*(rows.write([entry("same", n), entry(f"n{n}", n)]) for n in range(8)))
    assert sorted(written) == [False] * 7 + [True]
    assert (await rows.page(BOX, limit=10)).total == 2


async def test_concurrent_writes_to_a_place_are_all_counted(rows: Rows) -> None:
    assert all(await asyncio.gather(*(rows.write([entry(f"n{n}", n)]) for n in range(12))))
    page = await rows.page(BOX, limit=100)
    assert (page.total, len(page.rows)) == (12, 12)


async def test_names_may_have_any_character_but_none_is_part_of_the_order(rows: Rows) -> None:
    odd = ["a#b", "a'b", 'a"b', "ä", "%s", ":name", "{place}"]
    assert await rows.write([entry(name, number) for number, name in enumerate(odd)])
    assert await names(rows) == odd
    assert len(await rows.read(*((BOX, name) for name in odd))) == len(odd)
