"""`Mail` and what an exchange is made of, as seed 003 and EXCHANGE.md describe them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mail.errors import BadRequest
from mail.exchange import OUTBOX, Exchange, Flow, Mail, Pile, Progression

ALICE, BOB = UUID("aaaaaaaa-0000-4000-8000-000000000001"), UUID("bbbbbbbb-0000-4000-8000-000000000002")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(alphabet=st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(alphabet=st.characters(codec="utf-8"), max_size=5), inner)
    ),
    max_leaves=10,
)
MAILS = st.builds(
    Mail,
    sender=st.uuids(),
    recipient=st.none() | st.uuids(),
    content=JSON,
    channel=st.none() | st.text(alphabet=st.characters(codec="utf-8")),
    metadata=st.dictionaries(st.text(alphabet=st.characters(codec="utf-8"), max_size=5), JSON, max_size=3),
    created_at=st.datetimes(timezones=st.just(UTC)),
    id=st.uuids(),
)


class TestMail:
    def test_defaults_and_ids_as_text(self) -> None:
        mail = Mail(sender=str(ALICE))
        assert (mail.sender, mail.recipient, mail.content, mail.channel, mail.metadata) == (
            ALICE,
            None,
            None,
            None,
            {},
        )

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({"content": "x"}, "sender"),
            ({"sender": "bob"}, "sender"),
            ({"sender": ALICE, "recipient": "bob"}, "recipient"),
            ({"sender": ALICE, "subject": "x"}, "subject"),
        ],
    )
    def test_what_is_no_mail_names_the_field(self, given: dict[str, Any], field: str) -> None:
        with pytest.raises(ValueError, match=field):
            Mail(**given)

    def test_recipient_none_is_a_broadcast(self) -> None:
        broadcast, direct = Mail(sender=ALICE), Mail(sender=ALICE, recipient=BOB)
        assert (broadcast.is_broadcast, broadcast.is_direct) == (True, False)
        assert (direct.is_broadcast, direct.is_direct) == (False, True)

    @pytest.mark.parametrize("content", [None, "text", 1, {"a": [1]}, object(), lambda: None])
    def test_any_content(self, content: Any) -> None:
        assert Mail(sender=ALICE, content=content).content is content

    def test_id_and_created_at_are_frozen(self) -> None:
        mail = Mail(sender=ALICE)
        for name, value in (("id", uuid4()), ("created_at", datetime.now(UTC))):
            with pytest.raises(ValidationError, match="frozen"):
                setattr(mail, name, value)

    def test_what_is_assigned_is_checked(self) -> None:
        mail = Mail(sender=ALICE)
        with pytest.raises(ValidationError):
            mail.recipient = "nobody"  # type: ignore[assignment]
        mail.channel = "tasks"
        assert mail.channel == "tasks"

    def test_repr_has_short_ids_and_the_channel_only_when_set(self) -> None:
        assert repr(Mail(sender=ALICE, recipient=BOB)) == "Mail(aaaaaaaa -> bbbbbbbb)"
        assert repr(Mail(sender=ALICE, channel="tasks")) == "Mail(aaaaaaaa -> broadcast, channel='tasks')"

    def test_hash_is_by_id(self) -> None:
        mail = Mail(sender=ALICE, content=[])
        other = Mail(sender=BOB, id=mail.id)
        assert hash(mail) == hash(other) == hash(mail.id)
        assert mail == other
        assert mail != Mail(sender=ALICE, content=[])
        assert len({mail, other}) == 1

    @pytest.mark.soak
    @given(MAILS)
    def test_dict_and_json_round_trip(self, mail: Mail) -> None:
        for copy in (Mail.from_dict(mail.to_dict()), Mail.from_json(mail.to_json())):
            assert copy.model_dump() == mail.model_dump()
            assert repr(copy.content) == repr(mail.content)
        if "Infinity" not in mail.to_json():
            assert Mail.from_dict(json.loads(json.dumps(mail.to_dict()))).model_dump() == mail.model_dump()

    def test_created_at_is_read_in_utc(self) -> None:
        there = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
        mail = Mail(sender=ALICE, created_at=there)
        assert (mail.created_at, mail.created_at.tzinfo) == (there, UTC)

    @pytest.mark.parametrize("content", [object(), b"\xff", "\ud800"])
    def test_what_json_cannot_hold_says_so(self, content: Any) -> None:
        mail = Mail(sender=ALICE, content=content)
        for write in (mail.to_json, mail.to_dict):
            if content == "\ud800" and write == mail.to_dict:
                continue  # its dictionary is one, but no text can be made of it
            with pytest.raises(BadRequest, match="can't be written as JSON"):
                write()

    @pytest.mark.parametrize(
        ("content", "read"),
        [
            ((1, 2), [1, 2]),
            ({1}, [1]),
            (b"abc", "abc"),
            ({1: "one"}, {"1": "one"}),
            (ALICE, str(ALICE)),
            (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        ],
    )
    def test_what_json_has_no_word_for_is_read_as_json(self, content: Any, read: Any) -> None:
        mail = Mail(sender=ALICE, content=content)
        assert Mail.from_json(mail.to_json()).content == Mail.from_dict(mail.to_dict()).content == read

    def test_a_number_that_is_too_large_raises_bad_request(self) -> None:
        with pytest.raises(BadRequest, match="can't be written as JSON"):
            Mail(sender=ALICE, content=[10**5000]).to_json()
        assert Mail.from_json(Mail(sender=ALICE, content="1" * 5000).to_json()).content == "1" * 5000

    def test_what_is_written_can_be_read(self) -> None:
        deep: list[Any] = []
        written = 0
        for _ in range(300):
            deep = [deep]
            try:
                text = Mail(sender=ALICE, content=deep).to_json()
            except BadRequest:
                break
            Mail.from_json(text)
            written += 1
        assert 100 < written < 300

    def test_what_is_no_mail_says_why(self) -> None:
        with pytest.raises(BadRequest, match=r"(?s)this is not a valid Mail.*sender: .*subject: "):
            Mail.from_dict({"sender": "x", "subject": "y"})
        with pytest.raises(BadRequest, match="this is not a valid Mail"):
            Mail.from_json("{")


class TestCollections:
    def test_a_pile_finds_by_id_and_keeps_the_order(self) -> None:
        mails = [Mail(sender=ALICE) for _ in range(3)]
        pile = Pile[Mail]()
        for mail in mails:
            pile.add(mail)
        assert list(pile) == mails
        assert len(pile) == 3
        assert mails[1] in pile
        assert mails[1].id in pile
        assert uuid4() not in pile
        assert pile[mails[2].id] is mails[2]
        assert pile.get(uuid4()) is None
        with pytest.raises(BadRequest, match="already"):
            pile.add(mails[0])
        assert pile.pop(mails[0].id) is mails[0]
        assert pile.pop(mails[0].id) is None

    def test_a_pile_may_be_changed_while_it_is_read(self) -> None:
        pile = Pile[Mail].model_validate({"elements": [Mail(sender=ALICE) for _ in range(3)]})
        for mail in pile:
            pile.pop(mail.id)
        assert len(pile) == 0

    def test_a_progression_is_an_order_of_ids(self) -> None:
        ids = [uuid4() for _ in range(4)]
        progression = Progression(name="x")
        for id_ in ids:
            progression.append(id_)
        with pytest.raises(BadRequest, match="already"):
            progression.append(ids[0])
        assert progression.popleft() == ids[0]
        assert progression.remove(ids[2])
        assert not progression.remove(ids[2])
        assert list(progression) == [ids[1], ids[3]]
        assert ids[3] in progression
        assert len(progression) == 2
        assert [progression.popleft() for _ in range(3)] == [ids[1], ids[3], None]

    def test_a_flow_has_items_and_orders(self) -> None:
        flow = Flow[Mail, Progression](name="x")
        flow.add_progression(Progression(name="a"))
        first, second = Mail(sender=ALICE), Mail(sender=ALICE)
        flow.add_item(first, "a")
        flow.add_item(second)
        assert flow.list_items("a") == [first]
        assert flow.list_items("b") == []
        assert flow.take("b", first.id) is None
        with pytest.raises(BadRequest, match="already"):
            flow.add_progression(Progression(name="a"))
        with pytest.raises(BadRequest, match="not an item"):
            flow.add_progression(Progression.model_validate({"name": "b", "order": [uuid4()]}))
        with pytest.raises(BadRequest, match="no progression"):
            flow.add_item(Mail(sender=ALICE), "b")
        assert flow.take_first("a") is first
        assert flow.take_first("a") is None
        assert list(flow.items) == [second]
        dropped = flow.drop_progression("a")
        assert dropped is not None
        assert flow.get_progression("a") is None
        assert len(flow.progressions) == 0
        flow.add_progression(dropped)
        assert flow.drop_progression("b") is None

    def test_collections_round_trip(self) -> None:
        flow = Flow[Mail, Progression](name="x", metadata={"k": 1})
        flow.add_progression(Progression(name="a"))
        for n in range(3):
            flow.add_item(Mail(sender=ALICE, content=n), "a")
        copy = Flow[Mail, Progression].from_json(flow.to_json())
        assert copy.to_dict() == flow.to_dict()
        assert [mail.content for mail in copy.list_items("a")] == [0, 1, 2]
        assert isinstance(next(iter(copy.items)), Mail)


# ------------------------------------------------------------------------------------------ a whole exchange


@pytest.fixture
async def written() -> dict[str, Any]:
    """An exchange with delivered and unsent mail, as JSON values."""
    exchange = Exchange()
    for owner in (ALICE, BOB):
        exchange.register(owner)
    exchange.send(ALICE, BOB, "delivered")
    exchange.send(BOB, BOB, "to himself")
    await exchange.sync()
    exchange.send(ALICE, None, "sent")
    exchange.send(ALICE, BOB, "sent too")
    return exchange.to_dict()


def box(written: dict[str, Any], owner: UUID) -> Any:
    return next(flow for flow in written["flows"]["elements"] if flow["name"] == str(owner))


def order(written: dict[str, Any], owner: UUID, name: str) -> list[str]:
    (found,) = [order for order in box(written, owner)["progressions"]["elements"] if order["name"] == name]
    return found["order"]


async def test_the_whole_exchange_round_trips_through_json(written: dict[str, Any]) -> None:
    exchange = Exchange.from_json(json.dumps(written))
    assert exchange.to_dict() == written
    assert json.loads(exchange.to_json()) == written
    assert exchange.owner_ids == [ALICE, BOB]
    assert exchange.id == UUID(written["id"])
    assert await exchange.sync() == 2
    assert [mail.content for mail in exchange.receive(BOB, ALICE)] == ["delivered", "sent", "sent too"]
    assert exchange.pop_mail(BOB, BOB) is not None


def amend(written: dict[str, Any], owner: UUID, **fields: UUID) -> None:
    for item in box(written, owner)["items"]["elements"]:
        item.update({name: str(value) for name, value in fields.items()})


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (lambda written: amend(written, ALICE, sender=BOB), "must be the owner's own"),
        (lambda written: amend(written, BOB, recipient=ALICE), "must be for the owner"),
        (lambda written: order(written, ALICE, OUTBOX).append(str(uuid4())), "not an item"),
        (
            lambda written: order(written, ALICE, OUTBOX).append(order(written, ALICE, OUTBOX)[0]),
            "twice in the order",
        ),
        (
            lambda written: order(written, BOB, f"inbox_{BOB}").append(
                order(written, BOB, f"inbox_{ALICE}").pop()
            ),
            "must be from that sender",
        ),
        (
            lambda written: order(written, BOB, OUTBOX).extend(order(written, BOB, f"inbox_{BOB}")),
            "in two progressions",
        ),
        (lambda written: written["flows"]["elements"].append({"name": str(ALICE)}), "two mailboxes"),
        (lambda written: written["flows"]["elements"].append(written["flows"]["elements"][0]), "same id"),
        (lambda written: box(written, BOB)["progressions"]["elements"].append({"name": OUTBOX}), "same name"),
    ],
)
def test_a_forged_exchange_is_refused(
    written: dict[str, Any], forge: Callable[[dict[str, Any]], None], why: str
) -> None:
    forge(written)
    with pytest.raises(BadRequest, match=why):
        Exchange.from_dict(written)


@pytest.mark.parametrize("forged", [True, False])
def test_mail_in_no_progression_is_refused(written: dict[str, Any], forged: bool) -> None:
    """One with the id of mail that is on its way would keep that from arriving."""
    waiting = order(written, ALICE, OUTBOX)[0]
    mail = next(item for item in box(written, ALICE)["items"]["elements"] if item["id"] == waiting)
    box(written, BOB)["items"]["elements"].append(mail if forged else Mail(sender=ALICE).to_dict())
    with pytest.raises(BadRequest, match="in no progression"):
        Exchange.from_dict(written)


@pytest.mark.parametrize("name", ["inbox", "inbox_x", f"inbox_{ALICE.hex}", "drafts", None])
def test_progressions_of_other_names_are_refused(written: dict[str, Any], name: str | None) -> None:
    box(written, BOB)["progressions"]["elements"].append({"name": name})
    with pytest.raises(BadRequest, match="neither"):
        Exchange.from_dict(written)


@pytest.mark.parametrize("name", ["Bob", None, ALICE.hex])
def test_mailboxes_of_nobody_are_refused(written: dict[str, Any], name: str | None) -> None:
    box(written, BOB)["name"] = name
    with pytest.raises(BadRequest, match="not named after its owner"):
        Exchange.from_dict(written)


def test_flows_may_be_given() -> None:
    flows = Pile[Flow[Mail, Progression]]()
    flows.add(Flow[Mail, Progression](name=str(ALICE)))
    exchange = Exchange(flows=flows)
    assert exchange.has(ALICE)
    exchange.send(ALICE, None, "hello")
    assert len(Exchange(flows=None)) == 0
