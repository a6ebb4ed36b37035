"""The page's scripts that need no page, in the node that comes with playwright."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from ui_needs import unavailable

from mail.http.routes.ui import FOLDER

UNITS = Path(__file__).parent / "units"


@pytest.mark.parametrize("test", sorted(path.name for path in UNITS.iterdir()))
def test_unit(test: str, tmp_path: Path) -> None:
    playwright = find_spec("playwright")
    if playwright is None or playwright.origin is None:
        unavailable("playwright")
    node = Path(playwright.origin).parent / "driver" / "node"
    shutil.copytree(FOLDER, tmp_path / "ui")
    shutil.copy(UNITS / test, tmp_path)
    (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
    done = subprocess.run(
        [node, "--test", test], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
