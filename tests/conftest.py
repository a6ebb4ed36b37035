"""What every test shares."""

import os

from hypothesis import settings

# A slow machine is not a bug: no deadline per example. In CI the examples are the same in every run.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
