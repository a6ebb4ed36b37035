"""The three tiers of the tests: which of them runs a test, and how much a test that can do more or less does in it.

    fast    in this process, on SQLite in memory: `scripts/dev.py test`, and pytest without a path
    full    every store, other processes, the documents, crashes at a sample of points: `--full`, what CI runs
    soak    every crash point, chaos, fuzzing by the ten thousand, the deployed shape under faults: `--soak`

A tier includes those before it. A path on the command line runs whatever its tier. A test is in the tier of its marker,
in the module (`pytestmark = pytest.mark.full`), at its class or itself; the closest one decides.
`@pytest.mark.soak(on="stdio")` is for those of its parameters, or their id, that contain this, or one of several:
`on=("moto", "postgres")`. A test without one is in the tier of its folder (`FOLDERS`).
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast, get_args
from zlib import crc32

import pytest

Tier = Literal["fast", "full", "soak"]
TIERS: tuple[Tier, ...] = get_args(Tier)
DURATIONS: dict[Tier, str] = {"fast": "2 minutes", "full": "12 minutes", "soak": "1 hour"}
"""How long each takes on two cores."""

VARIABLE = "MAIL_TEST_TIER"
"""Holds the tier for the workers of pytest-xdist and the processes that tests start."""

FOLDERS: dict[str, Tier] = {
    "tests/aws": "full",
    "tests/chaos": "soak",
    "tests/cli": "full",
    "tests/client": "full",
    "tests/crash": "full",
    "tests/deploy": "full",
    "tests/docs": "full",
    "tests/e2e": "full",
    "tests/e2e_aws": "full",
    "tests/examples": "full",
    "tests/factories": "full",
    "tests/handlers": "full",
    "tests/postgres": "full",
    "tests/ui": "full",
}
"""The tier of a test without a marker; in the folders that are not here, it is the fast one."""

SERVERS_AND_FILES = ("ministack", "dynoxide", "dynamodb-local", "custom", "postgres", "sqlite-slow")
"""Ends of parameters that take a test of the fast tier to the full one."""

SECOND_ENGINES = ("ministack", "dynoxide", "dynamodb-local")
"""Ends of parameters with which a test does again what it does on moto: it is left to the soak tier."""

IN_TURN = ("dynamodb-moto", "postgres")
"""The stores behind a network: in the full tier a test of the contract runs on SQLite in memory, and on one of these,
by its name. On both run those that users may import for a store of their own (`ON_EACH`), and all in the soak tier.
"""

ON_EACH = "tests/contract/test_contract_suites.py"

ON_MOTO = ("tests/aws/", "tests/contract/", "tests/exchange/")
"""The folders whose tests moto runs, too. For what it can't show, a marker names the engine: `full(on="ministack")`."""

LONGEST = (
    "tests/docs/test_documented_commands.py",
    "tests/factories/",
    "tests/crash/test_crash_stores.py",
    "tests/handlers/test_handlers_queues.py",
    "tests/ui/test_ui_admin.py",
    "tests/handlers/test_handlers_http.py",
    "tests/ui/test_ui_live.py",
    "tests/e2e/test_init.py",
    "tests/contract/test_contract_suites.py",
    "tests/ui/test_ui_in_chromium.py",
    "tests/e2e/test_server",
    "tests/crash/",
    "tests/ui/test_ui_trace.py",
    "tests/contract/test_contract_store_snapshots.py",
    "tests/e2e_aws/",
    "tests/ui/test_ui_leftovers.py",
    "tests/handlers/",
    "tests/exchange/test_exchange_processes.py",
    "tests/ui/",
)
"""What is started first, by the beginning of the ids, so that no process ends long after the others. The tests of the
page are between others, so that few Chromiums run at once.
"""


TOGETHER = (
    r"tests/(factories/|http/test_http_openai_litellm|api/test_(api_facade|model_samples|documented_))",
    r"tests/ui/test_ui_[a-k]",
    r"tests/ui/test_ui_[l-z]",
)
"""Modules that one process runs, by what their ids match: they share a Chromium, or litellm, which takes seconds to
import.
"""


def scope_of(nodeid: str) -> str:
    """Return the name of what one process runs as a whole: a module, or those that are to be together."""
    return next((each for each in TOGETHER if re.match(each, nodeid)), nodeid.partition("::")[0])


def current() -> Tier:
    """Return the tier that runs; a single test and a path are run as in the full one."""
    return next((tier for tier in TIERS if tier == os.environ.get(VARIABLE)), "full")


def sized(*, fast: int, full: int, soak: int) -> int:
    """Return how many examples, points or rounds a test tries in the tier that runs."""
    return {"fast": fast, "full": full, "soak": soak}[current()]


def rank(item: pytest.Item) -> int:
    """Return the place of a test in the order in which they are started: that in `LONGEST`, or the one after them."""
    places = (place for place, prefix in enumerate(LONGEST) if item.nodeid.startswith(prefix))
    return next(places, len(LONGEST))


def is_in(tier: Tier, item: pytest.Item) -> bool:
    """Return whether a tier runs a test."""
    return TIERS.index(tier_of(item)) <= TIERS.index(tier)


def tier_of(item: pytest.Item) -> Tier:
    """Return the lowest tier that runs a test: its closest marker's, or its folder's, and higher for some
    parameters.
    """
    folder = FOLDERS.get("/".join(item.nodeid.split("/")[:2]), "fast")
    marked = [mark for mark in item.iter_markers() if mark.name in TIERS]
    for mark in marked:
        if _contains(item, mark.kwargs.get("on", ())):
            return cast(Tier, mark.name)
    found = next((cast(Tier, mark.name) for mark in marked if not mark.kwargs), folder)
    if item.nodeid.startswith("tests/handlers/") and _ends(item, "source"):
        return "soak"
    if item.nodeid.startswith(ON_MOTO) and _ends(item, *SECOND_ENGINES):
        return "soak"
    if item.nodeid.startswith("tests/contract/") and _is_for_another(item):
        return "soak"
    if item.nodeid.startswith("tests/factories/") and _is_streamed_too(item):
        return "soak"
    is_slow = _ends(item, *SERVERS_AND_FILES)
    is_slow |= item.nodeid.startswith("tests/exchange/") and _ends(item, "dynamodb-moto")
    return "full" if found == "fast" and is_slow else found


def _is_for_another(item: pytest.Item) -> bool:
    """Return whether the full tier leaves a test of the contract to another store than that of this item."""
    stores = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    store = stores.get("adapter", stores.get("durable"))
    if store == "sqlite-slow":
        return "adapter" in stores
    if store not in IN_TURN or item.nodeid.startswith(ON_EACH):
        return False
    return store != IN_TURN[crc32(item.nodeid.replace(store, "").encode()) % len(IN_TURN)]


def _is_streamed_too(item: pytest.Item) -> bool:
    """Return whether a test does with a streamed reply what it does with a whole one; `test_ports` compares both."""
    name, _, values = item.nodeid.rpartition("::")[2].partition("[")
    return values.endswith("-streamed]") and "stream" not in name and "/test_ports.py" not in item.nodeid


def _contains(item: pytest.Item, named: str | tuple[str, ...]) -> bool:
    parts = (named,) if isinstance(named, str) else named
    call = getattr(item, "callspec", None)
    return call is not None and any(
        part in text for part in parts for text in (call.id, *call.params.values()) if isinstance(text, str)
    )


def _ends(item: pytest.Item, *endings: str) -> bool:
    return _has_parameter(item, lambda value: value.endswith(endings))


def _has_parameter(item: pytest.Item, fits: Callable[[str], bool]) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and any(isinstance(value, str) and fits(value) for value in call.params.values())


def is_skipped_whole(tier: Tier, path: Path, name: str) -> bool:
    """Return whether a tier runs nothing of a folder or file, which is called `name` in the project."""
    folder = FOLDERS.get("/".join(name.split("/")[:2]), "fast")
    if path.is_dir():
        return TIERS.index(folder) > TIERS.index(tier) and not any(
            _lowest(file, folder) <= TIERS.index(tier) for file in path.rglob("test_*.py")
        )
    return path.name.startswith("test_") and _lowest(path, folder) > TIERS.index(tier)


def _lowest(file: Path, folder: Tier) -> int:
    """Return the number of the lowest tier that the text of a module names, for all of it or for some tests."""
    text = file.read_text(encoding="utf-8")
    module = re.search(r"^pytestmark = .*?mark\.(fast|full|soak)\b", text, re.MULTILINE)
    named = re.findall(r"mark\.(fast|full|soak)\b", text)
    return min(map(TIERS.index, (module[1] if module else folder, *named)))
