"""With `--lazy-modules`, a module is imported by the process that runs it, and its tests are reported one by one."""

import sys

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def log():
    return []
"""

MODULES = {
    "test_one": """
        import pytest

        @pytest.fixture(scope="module", autouse=True)
        def of_the_module(log):
            log.append("started")
            yield
            log.append("ended")

        @pytest.mark.parametrize("number", [1, 2])
        def test_numbers(log, number):
            assert log == ["started"]
            assert number == 1

        def test_skipped():
            pytest.skip("not now")
    """,
    "test_three": """
        def test_fixtures(log):
            assert log == ["started", "ended"]
    """,
    "test_two": "import not_installed",
}


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\naddopts = -p support.plugins.lazy_modules -p no:xdist -p no:asyncio")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(**MODULES)
    return pytester


def test_no_module_is_imported_before_it_runs(project: pytest.Pytester) -> None:
    items, _ = project.inline_genitems()
    assert [item.nodeid for item in items] == ["test_one.py::all", "test_three.py::all", "test_two.py::all"]
    assert not MODULES.keys() & sys.modules.keys()


def test_each_test_is_reported(project: pytest.Pytester) -> None:
    seen = project.inline_run()
    passed, skipped, failed = seen.listoutcomes()
    assert [report.nodeid for report in passed] == [
        "test_one.py::test_numbers[1]",
        "test_three.py::test_fixtures",
    ]
    assert [report.nodeid for report in skipped] == ["test_one.py::test_skipped"]
    assert [report.nodeid for report in failed] == ["test_one.py::test_numbers[2]", "test_two.py"]
    assert seen.ret == pytest.ExitCode.TESTS_FAILED
