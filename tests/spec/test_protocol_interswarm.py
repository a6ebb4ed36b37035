"""SPEC, section 7: the wrapper in which mail travels between swarms."""

from typing import Any

import pytest
from protocol_samples import KINDS, MOMENT, UUID, payload
from pydantic import ValidationError

from mail.core.protocol.interswarm import MAILInterswarmMessage

OWNER = "user:ann@home"


def wrapper(kind: str = "request", **changes: Any) -> dict[str, Any]:
    """All ten fields, as they are sent over HTTP."""
    return {
        "message_id": UUID,
        "source_swarm": "home",
        "target_swarm": "meteo",
        "timestamp": MOMENT,
        "payload": payload(kind, routing_info={}),
        "msg_type": kind,
        "auth_token": "",
        "metadata": {},
        "task_owner": OWNER,
        "task_contributors": [OWNER],
        **changes,
    }


def refused(wrong: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        MAILInterswarmMessage.model_validate(wrong)
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_has_all_ten_fields_and_is_read_back(kind: str) -> None:
    read = MAILInterswarmMessage.model_validate(wrapper(kind))
    assert read.as_json() == wrapper(kind)
    assert MAILInterswarmMessage.model_validate_json(read.model_dump_json()) == read


@pytest.mark.parametrize("kind", KINDS)
def test_the_type_binds_the_shape_of_the_payload(kind: str) -> None:
    for other in KINDS:
        if payload(other).keys() != payload(kind).keys():
            assert "payload" in refused(wrapper(kind, msg_type=other))


@pytest.mark.parametrize("field", ["auth_token", "metadata"])
def test_token_and_metadata_may_be_absent_or_null(field: str) -> None:
    whole = wrapper()
    del whole[field]
    absent = MAILInterswarmMessage.model_validate(whole)
    assert absent == MAILInterswarmMessage.model_validate(whole | {field: None})
    assert absent[field] is None


@pytest.mark.parametrize("field", sorted(wrapper().keys() - {"auth_token", "metadata"}))
def test_every_other_field_is_required(field: str) -> None:
    whole = wrapper()
    del whole[field]
    assert field in refused(whole)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("priority", 1),
        ("message_id", ""),
        ("source_swarm", ""),
        ("target_swarm", ""),
        ("timestamp", "2026-03-02T09:15:00"),
        ("metadata", []),
        ("auth_token", 7),
        ("task_owner", "ann"),
        ("task_contributors", []),
        ("task_contributors", [OWNER, "meteo"]),
        ("payload", "hello"),
    ],
)
def test_wrong_values_are_refused(field: str, wrong: Any) -> None:
    assert field in refused(wrapper(**{field: wrong}))


def test_the_owner_is_among_the_contributors() -> None:
    hops = [OWNER, "swarm:home@meteo"]
    assert MAILInterswarmMessage.model_validate(wrapper(task_contributors=hops)).task_owner == OWNER
    assert "among task_contributors" in refused(wrapper(task_contributors=hops[1:]))


def test_it_is_frozen_and_can_be_read_by_subscript() -> None:
    read: Any = MAILInterswarmMessage.model_validate(wrapper())
    assert read["payload"]["body"] == "Is it raining?"
    with pytest.raises(ValidationError, match="frozen"):
        read.task_owner = OWNER
