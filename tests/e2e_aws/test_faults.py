"""Injected faults are as frequent as they were ordered to be, and the same for the same seed."""

import random

import pytest

from mail.local_aws.event_sources import Faults, Repeat

pytestmark = pytest.mark.soak

INVOCATIONS = 5_000


def live(faults: Faults, chance: random.Random) -> int:
    """Let invocations of all lengths happen; returns how many were killed."""
    killed = 0
    for _ in range(INVOCATIONS):
        seconds, death = chance.uniform(0.0, 0.1), faults.death()
        dies = death is not None and death < seconds
        faults.note(seconds, killed=dies)
        killed += dies
    return killed


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_the_share_of_killed_invocations_is_kept_though_many_end_before(share: float) -> None:
    assert live(Faults(kill=share, seed=1), random.Random(2)) == pytest.approx(share * INVOCATIONS, rel=0.02)


def test_messages_come_twice_in_every_way() -> None:
    faults = Faults(duplicate=1.0)
    assert {faults.repeat() for _ in range(100)} == set(Repeat) - {Repeat.NEVER}
    assert Faults().repeat() is Repeat.NEVER


def test_one_seed_makes_the_same_choices() -> None:
    first, second = (Faults(kill=0.5, duplicate=0.5, delay=1.0, seed=7) for _ in range(2))
    for _ in range(100):
        assert (first.death(), first.repeat(), first.lateness()) == (
            second.death(),
            second.repeat(),
            second.lateness(),
        )
