"""The proofs of `docs/proofs.md` hold."""

import pytest

from chaos.proofs import PROOFS, served


@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_holds(name: str) -> None:
    with served() as proof:
        PROOFS[name](proof)
        assert proof.problems == []
