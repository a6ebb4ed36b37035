"""The page's scripts that need no page, in node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from ui_needs import unavailable

from mail.http.ui_routes import FOLDER

UNITS = Path(__file__).parent / "units"


@pytest.mark.parametrize("test", sorted(path.name for path in UNITS.iterdir()))
def test_unit(test: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        unavailable("node")
    shutil.copytree(FOLDER, tmp_path / "ui")
    shutil.copy(UNITS / test, tmp_path)
    (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
    done = subprocess.run(
        [node, "--test", test], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
