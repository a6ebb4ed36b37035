"""The folder `spec/`, whose scripts are no package: they are loaded by their path."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "spec"


def load_script(name: str) -> ModuleType:
    """Import `spec/<name>.py` without running it as a program."""
    known = f"mail_spec_{name}"
    if known not in sys.modules:
        found = spec_from_file_location(known, SPEC / f"{name}.py")
        assert found is not None
        assert found.loader is not None
        sys.modules[known] = module_from_spec(found)
        found.loader.exec_module(sys.modules[known])
    return sys.modules[known]
