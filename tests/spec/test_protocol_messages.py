"""SPEC, sections 3 and 4: the envelope, its payloads, and their priority."""

import json
from typing import Any

import pytest
from hypothesis import given
from protocol_samples import (
    ID_FIELDS,
    KINDS,
    MOMENT,
    OPTIONAL_FIELDS,
    PLURAL,
    UUID,
    address,
    envelope,
    envelopes,
    message,
    payload,
    timestamps,
)
from pydantic import ValidationError

from mail.core.protocol.message import (
    MAILBroadcast,
    MAILInterrupt,
    MAILMessage,
    MAILRequest,
    MAILResponse,
    Tier,
    tier_of,
)

SHAPES = {
    "request": MAILRequest,
    "response": MAILResponse,
    "broadcast": MAILBroadcast,
    "interrupt": MAILInterrupt,
    "broadcast_complete": MAILBroadcast,
}


def refused(wrong: Any) -> str:
    """Assert that it is no message; return why not."""
    with pytest.raises(ValidationError) as caught:
        MAILMessage.model_validate(wrong)
    with pytest.raises(ValidationError):
        MAILMessage.model_validate_json(json.dumps(wrong))
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_binds_the_shape_of_its_payload(kind: str) -> None:
    assert type(message(kind).message) is SHAPES[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_payload_of_another_shape_is_refused(kind: str, other: str) -> None:
    mixed = envelope(kind) | {"msg_type": other}
    if ID_FIELDS[kind] == ID_FIELDS[other]:
        assert type(MAILMessage.model_validate(mixed).message) is SHAPES[other]
    else:
        assert ID_FIELDS[other] in refused(mixed)


def test_a_payload_object_of_another_type_is_refused() -> None:
    response = MAILResponse.model_validate(payload("response"))
    with pytest.raises(ValidationError, match="carries a MAILRequest"):
        MAILMessage(id=UUID, timestamp=MOMENT, msg_type="request", message=response)


@pytest.mark.parametrize("wrong", ["question", "REQUEST", "", None, 1, [], {}])
def test_an_unknown_type_is_refused(wrong: object) -> None:
    assert "msg_type" in refused(envelope("request") | {"msg_type": wrong})


@pytest.mark.parametrize("field", ["id", "timestamp", "msg_type", "message"])
def test_every_field_of_the_envelope_is_required(field: str) -> None:
    whole = envelope("request")
    del whole[field]
    assert field in refused(whole)
    assert field in refused(whole | {field: None})


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_payload_but_the_optional_ones_is_required(kind: str) -> None:
    for field in payload(kind):
        whole = envelope(kind)
        del whole["message"][field]
        assert field in refused(whole)
        assert field in refused(envelope(kind, **{field: None}))


@pytest.mark.parametrize("kind", KINDS)
def test_optional_fields_may_be_absent_or_null_and_are_not_written(kind: str) -> None:
    absent, null = message(kind), message(kind, **dict.fromkeys(OPTIONAL_FIELDS[kind]))
    assert absent == null
    assert absent.as_json() == envelope(kind, routing_info={})
    assert MAILMessage.model_validate(absent.as_json()).as_json() == absent.as_json()
    stored = absent.model_dump_json()
    assert MAILMessage.model_validate_json(stored) == absent


@pytest.mark.parametrize("kind", KINDS)
def test_optional_fields_are_kept(kind: str) -> None:
    several = kind in PLURAL
    values = {
        "sender_swarm": "home",
        "recipient_swarms" if several else "recipient_swarm": ["meteo", "news"] if several else "meteo",
        "routing_info": {"hops": 2, "path": ["home", None]},
    }
    assert message(kind, **values).model_dump(mode="json")["message"] == payload(kind, **values)
    assert message(kind, **values).as_json()["message"] == payload(kind, **values)


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_fields_are_refused_everywhere(kind: str) -> None:
    assert "priority" in refused(envelope(kind) | {"priority": 1})
    assert "priority" in refused(envelope(kind, priority=1))
    assert "nick" in refused(envelope(kind, sender={**address("agent:x"), "nick": "y"}))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - PLURAL))
def test_a_request_or_response_has_one_recipient(kind: str) -> None:
    refused(envelope(kind, recipient=[address("agent:weather")]))
    refused(envelope(kind, recipients=[address("agent:weather")]))
    assert [each.address for each in message(kind).message.recipients] == ["weather"]


@pytest.mark.parametrize("kind", sorted(PLURAL))
def test_a_broadcast_or_interrupt_has_at_least_one_recipient(kind: str) -> None:
    assert "recipients" in refused(envelope(kind, recipients=[]))
    two = [address("agent:weather"), address("agent:math")]
    assert [each.address for each in message(kind, recipients=two).message.recipients] == ["weather", "math"]


@pytest.mark.parametrize(
    "wrong", ["message-1", "", UUID.replace("-", ""), UUID + "0", UUID[:-1] + "g", f"{{{UUID}}}", 7]
)
def test_the_id_is_a_uuid(wrong: object) -> None:
    assert "id" in refused(envelope("request") | {"id": wrong})


def test_a_uuid_may_be_written_in_either_case() -> None:
    shout = envelope("request") | {"id": UUID.upper()}
    assert MAILMessage.model_validate(shout).id == UUID.upper()


@given(moment=timestamps())
def test_a_timestamp_is_kept_as_it_was_written(moment: str) -> None:
    assert MAILMessage.model_validate(envelope("request") | {"timestamp": moment}).timestamp == moment


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "2026-03-02",
        "2026-03-02T09:15:00",
        "2026-03-02 09:15:00Z",
        "2026-03-02T09:15Z",
        "2026-03-02t09:15:00z",
        "2026-03-02T09:15:00.Z",
        "2026-03-02T09:15:00+01",
        "2026-03-02T09:15:00+0100",
        "2026-03-02T09:15:00Z\n",
        "2026-02-30T09:15:00Z",
        "2026-03-02T25:15:00Z",
        "2026-03-02T09:15:60Z",
        "٢٠٢٦-03-02T09:15:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-10:00",
        1772442900,
    ],
)
def test_a_timestamp_is_an_rfc_3339_moment_with_its_offset(wrong: object) -> None:
    assert "timestamp" in refused(envelope("request") | {"timestamp": wrong})


@pytest.mark.parametrize("wrong", ["", "a#b", "a\nb", "\x00", "\x7f", "x" * 257])
def test_a_task_id_is_short_and_plain(wrong: str) -> None:
    assert "task_id" in refused(envelope("request", task_id=wrong))
    assert message("request", task_id="Tâche 1/2: übermorgen").task_id == "Tâche 1/2: übermorgen"


@pytest.mark.parametrize("kind", KINDS)
def test_the_id_of_a_payload_is_any_short_text(kind: str) -> None:
    field = ID_FIELDS[kind]
    assert field in refused(envelope(kind, **{field: ""}))
    assert field in refused(envelope(kind, **{field: "x" * 257}))
    assert message(kind, **{field: "no uuid at all"}).message.model_dump()[field] == "no uuid at all"


@pytest.mark.parametrize("field", ["subject", "body", "sender_swarm"])
def test_text_that_has_no_form_in_utf_8_is_refused(field: str) -> None:
    with pytest.raises(ValidationError, match="unicode"):
        MAILMessage.model_validate(envelope("request", **{field: "half a character: \ud83d"}))


def test_subject_and_body_may_be_empty() -> None:
    assert message("request", subject="", body="").message.body == ""


@given(whole=envelopes())
def test_a_message_survives_a_round_trip_to_the_letter(whole: dict[str, Any]) -> None:
    read = MAILMessage.model_validate(whole)
    written = read.model_dump_json()
    assert MAILMessage.model_validate_json(written) == read
    optional = dict.fromkeys(OPTIONAL_FIELDS[whole["msg_type"]])
    assert json.loads(written) == whole | {"message": optional | whole["message"]}


def test_the_order_of_fields_in_json_does_not_matter() -> None:
    backwards = dict(reversed(envelope("interrupt").items()))
    assert MAILMessage.model_validate_json(json.dumps(backwards)) == message("interrupt")


def test_messages_can_be_read_by_subscript() -> None:
    response = message("broadcast_complete", body="It is raining.")
    assert response["message"]["body"] == "It is raining."
    assert response["message"]["sender"]["address"] == "supervisor"
    assert response["msg_type"] == "broadcast_complete"
    assert response.get("message").get("subject") == "Weather"
    assert response["message"].get("request_id") is None
    assert response.get("nothing", "else") == "else"
    assert "message" in response
    assert "priority" not in response
    assert dict(response)["id"] == UUID
    with pytest.raises(KeyError):
        response["model_config"]


def test_messages_are_frozen() -> None:
    response: Any = message("response")
    with pytest.raises(ValidationError, match="frozen"):
        response.timestamp = MOMENT
    with pytest.raises(ValidationError, match="frozen"):
        response.message.body = "other"
    with pytest.raises(TypeError):
        response["message"]["body"] = "other"


TIERS = (
    {("system", kind): Tier.SYSTEM for kind in KINDS}
    | {(person, kind): Tier.PERSON for person in ("admin", "user") for kind in KINDS}
    | {
        ("agent", "interrupt"): Tier.INTERRUPT,
        ("agent", "broadcast_complete"): Tier.INTERRUPT,
        ("agent", "broadcast"): Tier.BROADCAST,
        ("agent", "request"): Tier.AGENT,
        ("agent", "response"): Tier.AGENT,
    }
)


@pytest.mark.parametrize(("sender", "kind"), TIERS)
def test_the_tier_follows_from_sender_and_type(sender: str, kind: str) -> None:
    tier = TIERS[sender, kind]
    assert tier_of(message(kind, sender=address(f"{sender}:x"))) is tier
    shouting = message(
        kind, sender=address(f"{sender}:x"), subject="::runtime_error::", body="::task_error::"
    )
    assert tier_of(shouting) is tier


def test_there_are_five_tiers_and_the_lowest_goes_first() -> None:
    assert [tier.value for tier in sorted(Tier)] == [1, 2, 3, 4, 5]
    assert len(TIERS) == 4 * len(KINDS)
