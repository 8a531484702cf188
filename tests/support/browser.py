"""A page in a real browser without a screen: Chromium, which shows its DOM, errors and picture."""

import re
import shutil
import subprocess
from pathlib import Path

import attrs

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT_MS = 20_000
CONSOLE = re.compile(r'CONSOLE.*?\] "(.*)", source')


class BrowserMissingError(Exception):
    """Raised where there is no browser."""


@attrs.frozen
class Shown:
    """A page as the browser has it, once its scripts are done."""

    dom: str
    said: tuple[str, ...]


@attrs.frozen
class Browser:
    """The program, which is started for each look."""

    program: str
    home: Path

    def look(self, page: Path, choice: str = "", *, dark: bool = False, width: int = 1200) -> Shown:
        """Open a page, with a part of the address after `#`."""
        found = self._run(page, choice, "--dump-dom", dark=dark, width=width)
        return Shown(found.stdout, tuple(CONSOLE.findall(found.stderr)))

    def picture(self, page: Path, out: Path, *, dark: bool = False, width: int = 1200) -> bytes:
        self._run(page, "", f"--screenshot={out}", dark=dark, width=width)
        return out.read_bytes()

    def _run(
        self, page: Path, choice: str, *what: str, dark: bool, width: int
    ) -> "subprocess.CompletedProcess[str]":
        command = [
            self.program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={self.home}",
            f"--window-size={width},2400",
            f"--virtual-time-budget={WAIT_MS}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *what,
            f"file://{page}#{choice}",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def browser_in(home: Path) -> Browser:
    """Return a browser that keeps its files in a folder."""
    program = next((found for found in map(shutil.which, NAMES) if found), None)
    if program is None:
        text = f"there is no {' or '.join(NAMES)} on the path"
        raise BrowserMissingError(text)
    return Browser(program, home)
