"""The log of a server: strangers can't fill the disk with it."""

import logging
from collections.abc import Iterator

import pytest

from mail.server.logs import Throttle

INTERESTING = "uvicorn.error"
OTHER = "mail.core.engine"


class Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Log:
    def __init__(self) -> None:
        self.now = 1000.0
        self.handler = Collector()
        self.handler.addFilter(Throttle(lambda: self.now))

    @property
    def lines(self) -> list[str]:
        return self.handler.lines


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """A handler of these loggers themselves, as others that were set up may turn them off."""
    log = Log()
    loggers = [logging.getLogger(name) for name in (INTERESTING, "asyncio", OTHER)]
    for logger in loggers:
        monkeypatch.setattr(logger, "disabled", False)
        logger.addHandler(log.handler)
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    yield log
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
        logger.removeHandler(log.handler)


def test_the_same_warning_once_a_second(log: Log) -> None:
    logger = logging.getLogger(INTERESTING)
    for times in (1000, 3, 1):
        for _ in range(times):
            logger.warning("Invalid HTTP request received.")
        log.now += 1.0
    assert log.lines == [
        "Invalid HTTP request received.",
        "Invalid HTTP request received. (999 more since the last such line)",
        "Invalid HTTP request received. (2 more since the last such line)",
    ]


def test_arguments_make_no_difference_but_errors_do(log: Log) -> None:
    logger = logging.getLogger(INTERESTING)
    for n in range(3):
        logger.error("%d are open", n)
    for text in ("a", "b", "a"):
        logger.error("failed", exc_info=OSError(text))
    asyncio_logger = logging.getLogger("asyncio")
    for n in range(3):
        asyncio_logger.error(f"socket.accept() out of system resource\nsocket: {n}")
    assert [line.partition("\n")[0] for line in log.lines] == [
        "0 are open",
        "failed",
        "failed",
        "socket.accept() out of system resource",
    ]


def test_other_loggers_and_levels_are_left_alone(log: Log) -> None:
    for _ in range(3):
        logging.getLogger(OTHER).warning("a task failed")
    assert log.lines == ["a task failed"] * 3
