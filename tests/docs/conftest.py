"""What the tests of documents share: a server that runs."""

from collections.abc import Iterator

import pytest
from support.processes.server import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server")) as server:
        yield server
