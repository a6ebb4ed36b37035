"""What tests of different kinds share; pytest puts `tests/` on the path. What users need, too, is in `mail.testing`."""

import sys

from mail.testing import agents, changes, clock, contracts, rig, swarms

# The paths that these modules had before.
for module in (agents, changes, clock, rig, swarms):
    sys.modules[f"{__name__}.{module.__name__.rpartition('.')[2]}"] = module
sys.modules[f"{__name__}.contract"] = contracts
