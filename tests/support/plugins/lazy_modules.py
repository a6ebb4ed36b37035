"""A test module as one item of the collection, which only the process that runs it imports: `--lazy-modules`.

Otherwise each process of pytest-xdist collects all tests, and in a fresh clone rewrites the assertions of all modules.
"""

import gc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> "LazyModule":
    return LazyModule.from_parent(parent, path=module_path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run an item.

    Of a test, what no one reads isn't reported: each message to the main process takes half a millisecond.
    """
    if isinstance(item, ModuleItem):
        item.nextitem = nextitem
        item.runtest()
        return True
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


class LazyModule(pytest.File):
    """Collects one item."""

    def collect(self) -> Iterator["ModuleItem"]:
        yield ModuleItem.from_parent(self, name="all")


class ModuleItem(pytest.Item):
    """Collects and runs the tests of a module."""

    nextitem: pytest.Item | None = None
    running: pytest.Item | None = None

    @property
    def nodeid(self) -> str:
        """The id of the running test: pytest-xdist compares its reports' with that of the item it has given out."""
        return self.running.nodeid if self.running is not None else super().nodeid

    def runtest(self) -> None:
        """Run each test as pytest's main loop does."""
        hook = self.config.hook
        items = self._tests()
        hook.pytest_collection_modifyitems(session=self.session, config=self.config, items=items)
        for item, following in pairwise([*items, self.nextitem]):
            self.running = item
            hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.shouldfail or self.session.shouldstop:
                break
        self.running = None

    def _tests(self) -> list[pytest.Item]:
        """Collect the tests, and keep what they consist of out of later garbage collections."""
        assert self.parent is not None
        gc.collect()
        gc.disable()
        try:
            module = pytest.Module.from_parent(self.parent.parent, path=self.path)
            return list(self.session.genitems(module))
        finally:
            gc.enable()
            gc.freeze()
