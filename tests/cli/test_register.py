"""`mail register`: what it registers with the operating system for swarm:// links."""

import configparser
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from support.processes.server import ServerProcess, run_mail

from mail.cli.register import desktop_entry, macos_steps, windows_steps

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the steps are printed")

RECORDER = '#!/bin/sh\nprintf "%s\\n" "$0" "$@" >> "$XDG_DATA_HOME/told"\nexit ${EXIT_CODE:-0}\n'


def exec_words(entry: str) -> list[str]:
    """The words of a desktop file's Exec line, as the specification has them read."""
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(entry)
    value = parser["Desktop Entry"]["Exec"].replace("\\\\", "\\")
    words, word, quoted, escaped = [], "", False, False
    for character in value + " ":
        if escaped:
            word, escaped = word + character, False
        elif quoted and character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == " " and not quoted:
            words.append(word)
            word = ""
        else:
            word += character
    return [each.replace("%%", "%") for each in words]


@pytest.mark.parametrize(
    "program", ["/usr/bin/mail", "/home/a b/mail", '/odd/"q"$x`y\\z', "/per%cent/mail", "/grüße/mail"]
)
def test_the_desktop_file_runs_the_client_with_the_link(program: str) -> None:
    assert exec_words(desktop_entry([program, "client"])) == [program, "client", "%u"]
    assert "MimeType=x-scheme-handler/swarm;\n" in desktop_entry([program, "client"])


@LINUX
@pytest.mark.skipif(shutil.which("desktop-file-validate") is None, reason="there is no desktop-file-validate")
def test_the_desktop_file_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "mail-swarm.desktop"
    file.write_text(desktop_entry([sys.executable, "-m", "mail.cli", "client"]), encoding="utf-8")
    subprocess.run(["desktop-file-validate", file], check=True)


@pytest.fixture
def desktop(tmp_path: Path) -> dict[str, str]:
    """The environment of a desktop whose tools write down their arguments."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("xdg-mime", "update-desktop-database"):
        (tools / name).write_text(RECORDER, encoding="utf-8")
        (tools / name).chmod(0o755)
    return {"XDG_DATA_HOME": str(tmp_path / "data"), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}


@LINUX
def test_linux_is_told(tmp_path: Path, desktop: dict[str, str]) -> None:
    for _ in range(2):  # it may be repeated
        done = run_mail("register", cwd=tmp_path, env=desktop)
        assert (done.returncode, done.stderr) == (0, "")
    file = tmp_path / "data" / "applications" / "mail-swarm.desktop"
    assert str(file) in done.stdout
    told = (tmp_path / "data" / "told").read_text(encoding="utf-8").splitlines()
    assert told[1:4] == ["default", "mail-swarm.desktop", "x-scheme-handler/swarm"]
    assert told[5] == str(file.parent)


@LINUX
def test_the_registered_command_opens_a_link(
    server: ServerProcess, tmp_path: Path, desktop: dict[str, str]
) -> None:
    assert run_mail("register", cwd=tmp_path, env=desktop).returncode == 0
    entry = (tmp_path / "data" / "applications" / "mail-swarm.desktop").read_text(encoding="utf-8")
    link = "swarm://connect?server=127.0.0.1:9&token=t"  # https, and nobody is there
    command = [link if word == "%u" else word for word in exec_words(entry)]
    done = subprocess.run(
        command, cwd=tmp_path, input="ping\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    # `mail` is called by its name if it is on PATH, else by its path.
    start = "mail: cannot connect to https://127.0.0.1:9; start a server there with: "
    assert done.stderr.startswith(start)
    assert done.stderr.endswith("mail server\n")


@LINUX
def test_what_stands_in_the_way_is_said(tmp_path: Path, desktop: dict[str, str]) -> None:
    failing = run_mail("register", cwd=tmp_path, env={**desktop, "EXIT_CODE": "3"})
    assert (failing.returncode, failing.stdout) == (1, "")
    assert "xdg-mime default mail-swarm.desktop x-scheme-handler/swarm: exit code 3" in failing.stderr
    without = run_mail("register", cwd=tmp_path, env={**desktop, "PATH": "/nowhere"})
    assert without.returncode == 1
    assert "install xdg-utils" in without.stderr
    (tmp_path / "file").touch()
    unwritable = run_mail("register", cwd=tmp_path, env={**desktop, "XDG_DATA_HOME": str(tmp_path / "file")})
    assert unwritable.returncode == 1
    assert "can't be written" in unwritable.stderr


def test_steps_for_macos_hold_a_property_list_and_a_script() -> None:
    text = macos_steps(["/opt/my tools/mail", "client"])
    plist = text[text.index("   <key>CFBundleIdentifier") : text.index("\n\n4.")]
    keys = [key.text for key in ET.fromstring(f"<dict>{plist}</dict>").iter("key")]
    assert keys == ["CFBundleIdentifier", "CFBundleURLTypes", "CFBundleURLName", "CFBundleURLSchemes"]
    assert "do script \"'/opt/my tools/mail' client \" & quoted form of link" in text


def test_steps_for_windows_quote_the_command() -> None:
    text = windows_steps(["C:\\Program Files\\O'Neil\\mail.exe", "client"])
    assert '-Value \'"C:\\Program Files\\O\'\'Neil\\mail.exe" "client" "%1"\'' in text
    assert "'URL Protocol'" in text


def test_steps_are_printed_anywhere(tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    assert "Info.plist" in run_mail("register", "--steps", "macos", cwd=tmp_path, env=env).stdout
    assert "PowerShell" in run_mail("register", "--steps", "windows", cwd=tmp_path, env=env).stdout
    assert not (tmp_path / "data").exists()
