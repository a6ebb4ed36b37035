"""What a browser loads before the page shows something: its size, without starting one."""

import gzip
import re
from posixpath import dirname, join, normpath

from mail.http.routes.ui import PAGE, assets

KILOBYTES = 150
"""As sent, compressed."""

_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?from "(\.[^"]+)"', re.MULTILINE)


def first_view() -> dict[str, bytes]:
    """The files that the page and its modules load at once; `import(…)` loads others when they are needed."""
    files = {name: asset.content for name, asset in assets().items()}
    found = {PAGE: files[PAGE]}
    waiting = re.findall(r'(?:src|href)="ui/([^"]+\.(?:js|css))"', files[PAGE].decode())
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = files[name]
        if name.endswith(".js"):
            waiting += [normpath(join(dirname(name), each)) for each in _IMPORT.findall(files[name].decode())]
    return found


def test_the_first_view_is_small() -> None:
    sizes = {name: len(gzip.compress(content)) for name, content in first_view().items()}
    assert sum(sizes.values()) <= KILOBYTES * 1024, sorted(sizes.items(), key=lambda each: -each[1])[:10]


def test_tabs_are_loaded_when_they_are_opened() -> None:
    first = first_view().keys()
    assert "app/app.js" in first
    assert "vendor/preact.js" in first
    for later in (
        "admin/admin.js",
        "graph/graph.js",
        "trace/trace.js",
        "vendor/dagre.js",
        "components/colours.js",
    ):
        assert later in assets()
        assert later not in first
