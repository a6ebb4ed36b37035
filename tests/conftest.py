"""What every test shares: hypothesis' settings, the tiers (see `support.plugins.tiers`), and the stub of language
models.
"""

import gc
import importlib
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from support.plugins import tiers
from support.processes import forkserver

if TYPE_CHECKING:
    from support.services.llm_stub import LLMStub

# No test connects to the world: a client trusts one authority, as reading those of httpx2 or of the machine (which the
# variable often names) takes up to 80 ms of CPU time for each client.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "processes" / "authority.pem")

# Servers and commands write their state where the one who runs the tests doesn't look for it.
_STATE = tempfile.TemporaryDirectory(prefix="mail-tests-", ignore_cleanup_errors=True)
os.environ["XDG_STATE_HOME"] = os.environ["LOCALAPPDATA"] = _STATE.name

# Else each process, of tests too, compiles all that it imports: 6 of the 11 seconds of CPU time of a collection.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_SELECTED = pytest.StashKey[tiers.Tier | None]()
"""The tier whose tests are run; None for all that a path names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=tiers.TIERS, help="what to run (fast; all below a path where one is given)"
    )


def pytest_configure(config: pytest.Config) -> None:
    if (worker := getattr(config, "workerinput", None)) is not None:
        config.stash[_SELECTED] = worker["tier"]
        _set_hypothesis()
        return
    _check_markers(config)
    has_path = config.args_source is pytest.Config.ArgsSource.ARGS
    tier = config.option.tier or (None if has_path else "fast")
    config.stash[_SELECTED] = tier  # type: ignore[misc]
    if tier is not None:
        os.environ[tiers.VARIABLE] = tier
        if tier != "fast" and getattr(config.option, "numprocesses", None):
            forkserver.share()
    _set_hypothesis()


def _set_hypothesis() -> None:
    """Set how many examples a test without settings of its own tries; in CI they are the same in every run.

    A slow machine is not a bug: there is no deadline per example.
    """
    examples = tiers.sized(fast=25, full=25, soak=100)
    settings.register_profile("dev", deadline=None, max_examples=examples)
    settings.register_profile(
        "ci", deadline=None, max_examples=examples, derandomize=True, database=None, print_blob=True
    )
    settings.load_profile("ci" if os.environ.get("CI") else "dev")


def _check_markers(config: pytest.Config) -> None:
    """Refuse a marker that doesn't exist, as in `-m "not slow"`: pytest does so in each process of pytest-xdist, which
    then reports a crash instead of the mistake.
    """
    known = {re.split(r"\W", line)[0] for line in config.getini("markers")} | {"and", "or", "not"}
    named = re.findall(r"[^\W\d]\w*", re.sub(r"\(.*?\)", "", config.option.markexpr))
    if unknown := sorted({*named} - known):
        raise pytest.UsageError(
            f"-m names no marker: {', '.join(unknown)}; tiers are {', '.join(tiers.TIERS)}"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: pytest.Item) -> None:
    tier, has_path = node.config.stash[_SELECTED], node.config.args_source is pytest.Config.ArgsSource.ARGS
    node.workerinput |= {"tier": tier, "has_all": tier is not None and not has_path}  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep modules in one process that share something dear (`tiers.TOGETHER`)."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return tiers.scope_of(nodeid)

    return Scheduling(config, log)


def pytest_report_header(config: pytest.Config) -> str | None:
    tier = config.stash[_SELECTED]
    return tier and f"tier: {tier}, about {tiers.DURATIONS[tier]} on two cores"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    tier = config.stash[_SELECTED]
    name = collection_path.relative_to(config.rootpath).as_posix()
    return True if tier is not None and tiers.is_skipped_whole(tier, collection_path, name) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.stash[_SELECTED]
    if tier is not None:
        is_in = {item: tiers.is_in(tier, item) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not is_in[item]])
        items[:] = filter(is_in.__getitem__, items)
        items.sort(key=tiers.rank)


def pytest_collection(session: pytest.Session) -> None:
    """Collect no garbage meanwhile: what is imported and collected stays."""
    gc.disable()
    worker = getattr(session.config, "workerinput", {})
    if worker.get("has_all"):
        _import_modules(session.config, int(worker["workerid"].removeprefix("gw")) / worker["workercount"])


def _import_modules(config: pytest.Config, begin: float) -> None:
    """Import all modules of the tier, from another one on in each process.

    pytest rewrites and compiles a module that is in no cache, and a fresh checkout has none: one process takes twenty
    seconds for them all, and several that begin with the same one all do all of it.
    """
    paths = sorted((config.rootpath / "tests").glob("*/test_*.py"))
    first = int(len(paths) * begin)
    for path in (*paths[first:], *paths[:first]):
        if not pytest_ignore_collect(path, config):
            sys.path.insert(0, str(path.parent))
            with suppress(Exception, pytest.skip.Exception):  # the collection reports it
                importlib.import_module(path.stem)
            del sys.path[0]


def pytest_collection_finish() -> None:
    """Keep what thousands of collected tests consist of out of every later garbage collection."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per reason for which tests were skipped."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, times in sorted(reasons.items()):
        terminalreporter.write_line(f"SKIPPED [{times}] {reason}")


@pytest.fixture(scope="session")
def running_stub() -> "Iterator[LLMStub]":
    from support.services.llm_stub import LLMStub

    with LLMStub() as stub:
        yield stub


@pytest.fixture
async def stub(running_stub: "LLMStub", monkeypatch: pytest.MonkeyPatch) -> "AsyncIterator[LLMStub]":
    """The stub in the place of all providers, with an empty script; what they would refuse fails the test."""
    from mail.factories.ports import close_clients

    for name, value in running_stub.environ.items():
        monkeypatch.setenv(name, value)
    running_stub.reset()
    yield running_stub
    await close_clients()
    assert running_stub.complaints == []


@pytest.fixture
def unused_tcp_port() -> int:
    """A port that no connection gets meanwhile, unlike that of the fixture of pytest-asyncio."""
    from mail.local_aws.processes import free_port

    return free_port()


@pytest.fixture
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hash of a password take microseconds."""
    from mail.mail2 import passwords

    monkeypatch.setattr(passwords, "N", 2)
    monkeypatch.setattr(passwords, "P", 1)


@pytest.fixture
def two_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is due be in two partitions of DynamoDB's index: each sweep of a store asks for all of them."""
    from mail.adapters.aws import index, items

    for module in (index, items):
        monkeypatch.setattr(module, "SHARDS", "08")
