"""The suites of `mail.testing.contracts`, over every store and every queue."""

import pytest

from mail.testing.contracts.commit import *  # noqa: F403
from mail.testing.contracts.queue import *  # noqa: F403
from mail.testing.contracts.queue import test_order_under_load
from mail.testing.contracts.turns import *  # noqa: F403

pytest.mark.soak(on="sqs-moto")(test_order_under_load)
