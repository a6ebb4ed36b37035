"""What `docs/proofs.md` promises holds."""

import pytest

from chaos import proofs

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("name", proofs.PROOFS)
def test_it_holds(name: str) -> None:
    with proofs.served() as proof:
        proofs.PROOFS[name](proof)
    assert proof.problems == []
