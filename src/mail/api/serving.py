"""The server of a swarm built in Python, with a web interface: its own if there is one, or the server's page `/ui`."""

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
    database: str | None = None,
) -> None:
    """Serve the swarm that `build` makes for the server's settings, until the process is stopped.

    `database` replaces the one of the settings.

    Raises MAILError if it can't start.
    """
    config = load_config().server.with_overrides(
        host=host, port=port, swarm_name=name, reload=False, database=database
    )
    swarm = build(config.settings)
    has_own = ui_path is not None and (ui_path / "package.json").is_file()
    interface = _interface(ui_path, ui_port, port) if ui_path is not None and has_own else nullcontext()

    def show_page(signed_in: str) -> None:
        page = f"http://localhost:{ui_port}" if has_own else f"{os.environ['BASE_URL']}/ui"
        if ui_path is not None:
            print(f"The web interface is at {page}", flush=True)  # noqa: T201
        if open_browser or not has_own:
            webbrowser.open(page if has_own else signed_in)

    with interface:
        is_shown = open_browser or ui_path is not None
        server.serve_swarm(swarm, config, show_page=show_page if is_shown else None)


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
