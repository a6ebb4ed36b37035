"""Bytecode of the tests and of what they import, made once before the processes of pytest-xdist start.

In a fresh checkout each of them would rewrite the assertions of all test modules, which takes longer than to collect them.
"""

import compileall
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from support import tiers

_CONFIG: list[pytest.Config] = []
"""Inherited by the processes that compile, as it can't be sent to them."""


def compile_all(config: pytest.Config, tier: tiers.Tier) -> None:
    """Compile the modules that the tests of a tier import, but for those whose bytecode is newer."""
    if sys.dont_write_bytecode or not hasattr(os, "fork"):
        return
    root = config.rootpath
    tests = list(_outdated_tests(root, tier))
    if tests:
        _CONFIG[:] = [config]
        with multiprocessing.get_context("fork").Pool(os.cpu_count()) as processes:
            processes.map(_rewrite, tests, chunksize=8)
    rewritten = re.compile(r"/(test_\w+|conftest)\.py$")
    for folder, skipped in (("src", None), ("tests", rewritten)):
        compileall.compile_dir(root / folder, quiet=2, rx=skipped)


def _outdated_tests(root: Path, tier: tiers.Tier) -> Iterator[Path]:
    for folder, folders, names in (root / "tests").walk():
        folders[:] = [each for each in folders if not _is_skipped(folder / each, root, tier)]
        for path in (folder / name for name in names if re.fullmatch(r"(test_\w+|conftest)\.py", name)):
            bytecode = _bytecode(path)
            is_new = bytecode.exists() and bytecode.stat().st_mtime >= path.stat().st_mtime
            if not is_new and not _is_skipped(path, root, tier):
                yield path


def _is_skipped(path: Path, root: Path, tier: tiers.Tier) -> bool:
    return tiers.is_skipped_whole(tier, path.relative_to(root).as_posix())


def _bytecode(path: Path) -> Path:
    return rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)


def _rewrite(path: Path) -> None:
    """Do what pytest's import hook does when a test module is imported, without running it."""
    (config,) = _CONFIG
    bytecode = _bytecode(path)
    source_hash, code = rewrite._rewrite_test(path, config)
    if rewrite.try_makedirs(bytecode.parent):
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, bytecode)
