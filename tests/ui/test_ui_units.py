"""The page's modules that need no page, in the node that comes with playwright."""

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from ui_needs import unavailable

from mail.http.routes.ui import FOLDER

UNITS = Path(__file__).parent / "units"


def test_units(tmp_path: Path) -> None:
    playwright = find_spec("playwright")
    if playwright is None or playwright.origin is None:
        unavailable("playwright")
    node = Path(playwright.origin).parent / "driver" / "node"
    shutil.copytree(FOLDER, tmp_path / "ui")
    shutil.copy(UNITS / "visible.cases.json", tmp_path)
    tests = sorted(path.name for path in UNITS.glob("*.test.js"))
    for test in tests:
        shutil.copy(UNITS / test, tmp_path)
    (tmp_path / "package.json").write_text(json.dumps({"type": "module"}))
    done = subprocess.run(
        [node, "--test", "--test-isolation=none", *tests],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.search(r"^ℹ tests (\d+)$", done.stdout, re.MULTILINE)
    assert ran is not None
    assert int(ran[1]) >= len(tests), done.stdout
