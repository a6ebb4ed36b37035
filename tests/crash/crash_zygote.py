"""Starts lives and watches them die: a process that has imported everything once and forks for each life.

Reads one run per line (JSON) from its standard input and answers with one line: what went wrong, where the
processes died, how many there were.
"""

import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from crash_points import read_lines
from crash_process import Life
from crash_sabotage import SABOTAGES

DEADLY = {signal.SIGKILL, signal.SIGXFSZ}
ALARM_SECONDS = 40
SHARED_MEMORY = Path("/dev/shm")


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Live and die as ordered, one life after the other in the same folder, until the scenario is over."""
    folder = Path(tempfile.mkdtemp(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
    deaths: list[str] = []
    answer: dict[str, Any] = {"problem": "", "points": []}
    try:
        for number, fate in enumerate([*order["fates"], {}]):
            life = Life(
                folder,
                seed=order["seed"] + number,
                target=fate.get("point", 0),
                file_limit=_file_limit(folder, fate.get("grow", 0)),
                deaths=len(deaths),
                patience=order.get("patience", 20.0),
            )
            killer, answer = _fork(life, fate.get("seconds"), order.get("sabotage"))
            if killer is None:
                break
            if killer not in DEADLY:
                answer["problem"] = f"the process died of {killer.name}"
                break
            deaths.append(_last_words(folder, len(deaths), fate))
    finally:
        shutil.rmtree(folder)
    return {**answer, "deaths": deaths}


def _file_limit(folder: Path, grow: int) -> int:
    """No file may grow past this: `grow` bytes more than the write-ahead log has, and enough for its index."""
    log = folder / "mail.db-wal"
    return max(40_000, (log.stat().st_size if log.exists() else 0)) + grow if grow else 0


def _last_words(folder: Path, deaths: int, fate: dict[str, Any]) -> str:
    labels = read_lines(folder / "deaths")
    if "point" in fate:
        return labels[-1] if labels else "?"
    return f"{next(iter(fate))} {next(iter(fate.values()))}"


def _fork(
    life: Life, seconds: float | None, sabotage: str | None
) -> tuple[signal.Signals | None, dict[str, Any]]:
    """One life in a process of its own. Returns the signal it died of, or else what it has to say."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        signal.alarm(ALARM_SECONDS)
        try:
            with SABOTAGES[sabotage]() if sabotage else nullcontext():
                problem = life.run()
        except BaseException:
            problem = f"the suite itself is broken: {traceback.format_exc()}"
        with os.fdopen(writing, "w") as pipe:
            json.dump({"problem": problem, "points": life.points.labels}, pipe)
        os._exit(0)
    os.close(writing)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)), {"problem": "", "points": []}
    return None, json.loads(said)


def main() -> None:
    random.seed(0)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
