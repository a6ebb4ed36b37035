"""The bench is not installed: its tests find it beside `tests`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
