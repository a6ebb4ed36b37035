"""The package `chaos` lies beside the tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
