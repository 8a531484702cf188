"""A real browser without a screen: Chromium, which shows a page, or does what a reader does."""

import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT_MS = 20_000
PATIENCE_S = 30
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
    """The program, which is started for each look, and for each reader."""

    program: str
    home: Path

    def look(self, page: Path, choice: str = "", *, dark: bool = False, width: int = 1200) -> Shown:
        """Open a page, with a part of the address after `#`."""
        found = self._run(page, choice, "--dump-dom", dark=dark, width=width)
        return Shown(found.stdout, tuple(CONSOLE.findall(found.stderr)))

    def picture(self, page: Path, out: Path, *, dark: bool = False, width: int = 1200) -> bytes:
        self._run(page, "", f"--screenshot={out}", dark=dark, width=width)
        return out.read_bytes()

    @contextmanager
    def reader(self) -> Iterator["Reader"]:
        """Start a browser that does what it's told, until the block ends."""
        (theirs, to), (answers, their_answers) = os.pipe(), os.pipe()
        ends, quiet = (theirs, their_answers), subprocess.DEVNULL
        # Chromium reads at 3, and writes to 4.
        piped = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{their_answers}', "bash"]
        command = [*piped, *self._command, "--window-size=1200,900", "--remote-debugging-pipe"]
        with subprocess.Popen(command, pass_fds=ends, stdout=quiet, stderr=quiet) as process:
            for end in ends:
                os.close(end)
            try:
                yield Reader.at(to, answers)
            finally:
                process.kill()
                os.close(to)
                os.close(answers)

    @property
    def _command(self) -> list[str]:
        return [
            self.program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={self.home}",
        ]

    def _run(
        self, page: Path, choice: str, *what: str, dark: bool, width: int
    ) -> "subprocess.CompletedProcess[str]":
        command = [
            *self._command,
            "--enable-logging=stderr",
            f"--window-size={width},2400",
            f"--virtual-time-budget={WAIT_MS}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *what,
            f"file://{page}#{choice}",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


@attrs.define(eq=False)
class Reader:
    """Someone with one tab, who clicks and types; over the pipe of Chromium's DevTools."""

    to: int
    answers: int
    session: dict[str, str] = attrs.field(factory=dict)
    asked: int = 0
    rest: bytes = b""

    @classmethod
    def at(cls, to: int, answers: int) -> "Reader":
        """Return a reader with an empty tab, who may look at the clipboard."""
        reader = cls(to, answers)
        tab = reader.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = reader.ask("Target.attachToTarget", targetId=tab, flatten=True)
        granted = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        reader.ask("Browser.grantPermissions", permissions=granted)
        reader.session = {"sessionId": attached["sessionId"]}
        return reader

    def ask(self, method: str, **params: Any) -> Any:
        """Return what Chromium answers."""
        self.asked += 1
        message = {"id": self.asked, "method": method, "params": params, **self.session}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self.asked:
                assert "error" not in answer, (method, params, answer["error"])
                return answer["result"]

    def run(self, script: str) -> Any:
        """Return what an expression of the page is, or what its promise brings."""
        settings = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        found = self.ask("Runtime.evaluate", expression=script, **settings)
        assert "exceptionDetails" not in found, (script, found)
        return found["result"].get("value")

    def open(self, url: str) -> None:
        self.ask("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def wait_for(self, script: str) -> None:
        """Wait until an expression is true in the sense of JavaScript."""
        until = time.monotonic() + PATIENCE_S
        while not self.run(f"!!({script})"):
            assert time.monotonic() < until, f"never true: {script}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Click in the middle of an element."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.run(f"{element}.getBoundingClientRect().toJSON()")
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            params = {"type": kind, "button": "left", "clickCount": 1, **place}
            self.ask("Input.dispatchMouseEvent", **params)

    def type(self, text: str) -> None:
        """Type a line where the focus is."""
        self.ask("Input.insertText", text=text)
        self.press("Enter", 13, text="\r")

    def press(self, key: str, code: int, **what: str) -> None:
        """Press a key, which has a name and a number."""
        for kind in ("keyDown", "keyUp"):
            given = {"type": kind, "key": key, "windowsVirtualKeyCode": code, **what}
            self.ask("Input.dispatchKeyEvent", **given)

    def _next(self) -> bytes:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], PATIENCE_S)
            assert ready, "the browser doesn't answer"
            read = os.read(self.answers, 1 << 16)
            assert read, "the browser has ended"
            self.rest += read
        message, _, self.rest = self.rest.partition(b"\0")
        return message


def browser_in(home: Path) -> Browser:
    """Return a browser that keeps its files in a folder."""
    program = next((found for found in map(shutil.which, NAMES) if found), None)
    if program is None:
        text = f"there is no {' or '.join(NAMES)} on the path"
        raise BrowserMissingError(text)
    return Browser(program, home)
