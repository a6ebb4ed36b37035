"""The server of a swarm built in Python, with its web interface if there is one."""

import logging
import os
import shutil
import subprocess
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from mail import server
from mail.config import SettingsConfig, load_config
from mail.core.task.swarm import SwarmCore
from mail.errors import MAILError

logger = logging.getLogger(__name__)

URL_VARIABLES = ("MAIL_SERVER_URL", "NEXT_PUBLIC_MAIL_SERVER_URL")
"""Environment variables with the server's URL; browsers see only those that begin with NEXT_PUBLIC_."""


def serve_swarm(
    name: str,
    build: Callable[[SettingsConfig], SwarmCore],
    *,
    port: int,
    host: str,
    ui_path: Path | None,
    ui_port: int,
    open_browser: bool,
) -> None:
    """Serve the swarm that `build` makes for the server's settings, until the process is stopped.

    Raises MAILError if it can't start.
    """
    config = load_config().server.with_overrides(host=host, port=port, swarm_name=name, reload=False)
    swarm = build(config.settings)
    interface = _interface(ui_path, ui_port, port) if ui_path is not None and _is_there(ui_path) else None
    url = f"http://localhost:{port if interface is None else ui_port}"
    with interface or nullcontext():
        server.serve_swarm(swarm, config, on_ready=lambda: webbrowser.open(url) if open_browser else None)


def _is_there(path: Path) -> bool:
    if (path / "package.json").is_file():
        return True
    logger.warning("there is no web interface in %s (no package.json); the API is served alone", path)
    return False


@contextmanager
def _interface(path: Path, port: int, server_port: int) -> Iterator[None]:
    """Run the development server of the web interface during the block."""
    npm = shutil.which("npm")
    if npm is None:
        raise MAILError("launch_ui needs npm; install Node.js, or leave launch_ui out")
    environ = {**os.environ, **dict.fromkeys(URL_VARIABLES, f"http://localhost:{server_port}")}
    process = subprocess.Popen(  # noqa: S603
        [npm, "run", "dev", "--", "--port", str(port)], cwd=path, env=environ
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
