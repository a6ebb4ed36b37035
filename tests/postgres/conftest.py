"""What the tests of PostgreSQL share: a database with empty tables, and two servers' ends of it."""

from collections.abc import AsyncIterator, Iterator

import pytest
from support.engines.postgres import PostgresAdapter, borrow_database, has_postgres, return_database

from mail.testing.changes import Maker


@pytest.fixture(autouse=True)
def _installed() -> None:
    if not has_postgres():
        pytest.skip("PostgreSQL is not installed")


@pytest.fixture
def url() -> Iterator[str]:
    lent = borrow_database()
    yield lent
    return_database(lent)


@pytest.fixture
async def adapter() -> AsyncIterator[PostgresAdapter]:
    made = PostgresAdapter()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def make() -> Maker:
    return Maker()
