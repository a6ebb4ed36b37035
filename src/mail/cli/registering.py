"""What each operating system has to be told so that it opens swarm:// links."""

import re
import shlex
from collections.abc import Sequence

SCHEME = "swarm"
MIME_TYPE = f"x-scheme-handler/{SCHEME}"

_NEEDS_QUOTES = re.compile(r"[^\w@+=:,./-]")
_ESCAPED = re.compile(r'(["`$\\])')


def desktop_entry(command: Sequence[str]) -> str:
    """A desktop file that runs the command with a link, in a terminal."""
    words = " ".join(_quote(word) for word in command)
    return f"""\
[Desktop Entry]
Type=Application
Name=MAIL client
Comment=Talk to a swarm of agents
Exec={words} %u
Terminal=true
NoDisplay=true
MimeType={MIME_TYPE};
"""


def _quote(word: str) -> str:
    """A word of an Exec line: quoted, then escaped as any value (Desktop Entry Specification, "The Exec key")."""
    word = word.replace("%", "%%")
    if _NEEDS_QUOTES.search(word):
        word = '"' + _ESCAPED.sub(r"\\\1", word) + '"'
    return word.replace("\\", "\\\\")


def macos_steps(command: Sequence[str]) -> str:
    """How to make an application that macOS opens links with."""
    words = shlex.join(command)
    script = words.replace("\\", "\\\\").replace('"', '\\"')
    return f"""\
macOS opens links with applications only. To make one:

1. Save this as swarm.applescript:

   on open location link
     tell application "Terminal"
       activate
       do script "{script} " & quoted form of link
     end tell
   end open location

2. osacompile -o "$HOME/Applications/MAIL.app" swarm.applescript

3. Add this to the outer <dict> of ~/Applications/MAIL.app/Contents/Info.plist:

   <key>CFBundleIdentifier</key>
   <string>org.mail.client</string>
   <key>CFBundleURLTypes</key>
   <array>
     <dict>
       <key>CFBundleURLName</key>
       <string>MAIL swarm</string>
       <key>CFBundleURLSchemes</key>
       <array>
         <string>{SCHEME}</string>
       </array>
     </dict>
   </array>

4. open "$HOME/Applications/MAIL.app"     once, which makes macOS read it"""


def windows_steps(command: Sequence[str]) -> str:
    """How to enter the client in the registry."""
    words = " ".join(f'"{word}"' for word in (*command, "%1")).replace("'", "''")
    key = f"HKLM:\\Software\\Classes\\{SCHEME}"
    return f"""\
Windows looks links up in its registry. In a PowerShell that runs as administrator
(or as yourself, with HKCU: in the place of HKLM:, for you alone):

New-Item -Force -Path '{key}\\shell\\open\\command' | Out-Null
Set-ItemProperty -Path '{key}' -Name '(Default)' -Value 'URL:MAIL swarm'
Set-ItemProperty -Path '{key}' -Name 'URL Protocol' -Value ''
Set-ItemProperty -Path '{key}\\shell\\open\\command' -Name '(Default)' -Value '{words}'"""
