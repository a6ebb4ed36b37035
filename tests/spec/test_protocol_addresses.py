"""SPEC, section 2: addresses and principals."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mail.core.protocol.address import (
    MAILAddress,
    Principal,
    create_admin_address,
    create_agent_address,
    create_system_address,
    create_user_address,
    format_agent_address,
    join_agent_address,
    parse_agent_address,
)
from mail.errors import BadRequest, ConfigurationError
from mail.testing.agents import build_agent, build_swarm, complete, request, turns, wait
from mail.testing.rig import Rig, ask_once

names = st.text(st.characters(codec="utf-8", exclude_characters=":@"), min_size=1)


@pytest.mark.parametrize("kind", ["admin", "agent", "user", "system"])
def test_an_address_has_a_type_and_a_text(kind: str) -> None:
    address = MAILAddress.model_validate({"address_type": kind, "address": "x"})
    assert address.model_dump() == {"address_type": kind, "address": "x"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"address_type": "swarm", "address": "x"},
        {"address_type": "Agent", "address": "x"},
        {"address_type": "agent", "address": ""},
        {"address_type": "agent", "address": "x" * 513},
        {"address_type": "agent", "address": None},
        {"address_type": "agent", "address": 7},
        {"address_type": "agent"},
        {"address": "x"},
        {"address_type": "agent", "address": "x", "name": "X"},
        "agent:x",
    ],
)
def test_anything_else_is_no_address(wrong: object) -> None:
    with pytest.raises(ValidationError):
        MAILAddress.model_validate(wrong)


def test_there_is_a_helper_for_every_kind_of_address() -> None:
    made = [
        create_admin_address("root"),
        create_agent_address("weather@meteo"),
        create_user_address("ann"),
        create_system_address("home"),
    ]
    assert [(each.address_type, each.address) for each in made] == [
        ("admin", "root"),
        ("agent", "weather@meteo"),
        ("user", "ann"),
        ("system", "home"),
    ]


@pytest.mark.parametrize("name", ["all", "", "weather@home", "a#b"])
def test_no_agent_may_take_a_name_that_means_something_else(name: str) -> None:
    supervisor = build_agent(turns(), supervises=True)
    swarm = build_swarm({"supervisor": supervisor})
    with pytest.raises(ConfigurationError):
        replace(swarm, agents={"supervisor": supervisor, name: supervisor})


@pytest.mark.parametrize("name", ["", "a@b", "a:b", "a#b"])
def test_no_swarm_may_take_a_name_that_could_be_read_otherwise(name: str) -> None:
    with pytest.raises(ConfigurationError):
        build_swarm({"supervisor": turns()}, name=name)


def test_remote_agents_are_written_with_their_swarm() -> None:
    assert parse_agent_address("weather@meteo") == ("weather", "meteo")
    assert parse_agent_address("weather") == ("weather", None)
    assert join_agent_address("weather", "meteo") == "weather@meteo"
    assert join_agent_address("weather") == "weather"
    remote = {"address_type": "agent", "address": "weather@meteo"}
    assert dict(format_agent_address(agent_name="weather", swarm_name="meteo")) == remote
    assert format_agent_address("weather") == create_agent_address("weather")


@given(agent=names, swarm=st.none() | names)
def test_parsing_an_agent_address_undoes_formatting(agent: str, swarm: str | None) -> None:
    assert parse_agent_address(join_agent_address(agent, swarm)) == (agent, swarm)


async def test_an_agent_of_the_own_swarm_may_be_written_either_way() -> None:
    policies = {
        "supervisor": turns([request("helper@example"), wait()], [complete("done")]),
        "helper": turns([request("supervisor@example", "heard"), wait()]),
    }
    outcome = await ask_once(build_swarm(policies))
    assert [message.message.body for message in outcome.sent_to("supervisor@example")] == ["heard"]


@given(role=st.sampled_from(["admin", "user", "swarm"]), principal_id=names, swarm=names)
def test_a_principal_is_read_as_it_was_written(role: str, principal_id: str, swarm: str) -> None:
    text = f"{role}:{principal_id}@{swarm}"
    principal = Principal.parse(text)
    assert (principal.role, principal.id, principal.swarm) == (role, principal_id, swarm)
    assert str(principal) == text


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "ann",
        "ann@home",
        "user:ann",
        "user:@home",
        "user:ann@",
        "agent:ann@home",
        "system:home@home",
        "User:ann@home",
        "user:a:b@home",
        "user:a@b@home",
        "user:ann@ho:me",
        " user:ann@home",
    ],
)
def test_anything_else_is_no_principal(wrong: str) -> None:
    with pytest.raises(BadRequest, match="is not a caller"):
        Principal.parse(wrong)


def test_principals_write_from_their_own_address() -> None:
    senders = [Principal.parse(f"{role}:x@home").address for role in ("admin", "user", "swarm")]
    assert [sender.address_type for sender in senders] == ["admin", "user", "system"]
    assert {sender.address for sender in senders} == {"x"}


async def test_the_owner_is_a_contributor_of_the_task() -> None:
    async with Rig(build_swarm({"supervisor": turns([complete()])})) as rig:
        outcome = await rig.ask()
    assert outcome.task.owner == str(rig.user) == outcome.task.instance
    assert outcome.task.owner in outcome.task.contributors


async def test_messages_of_the_runtime_come_from_the_system_address_of_the_swarm() -> None:
    async with Rig(build_swarm({"supervisor": turns([], [complete()])})) as rig:
        outcome = await rig.ask()
    told = outcome.sent_to("supervisor")[-1]
    assert told.sender == create_system_address(rig.swarm.name)
