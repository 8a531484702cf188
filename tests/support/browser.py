"""A real browser without a screen: Chromium, told by a program what a reader does."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 30
NAVIGATED = "Inspected target navigated or closed"
SAID = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}


class BrowserMissingError(Exception):
    """Raised where there is no browser."""


class NavigatedError(Exception):
    """Raised where the page that was asked is left before it has answered."""


@contextmanager
def browser_in(home: Path) -> Iterator["Reader"]:
    """Start a browser that keeps its files in a folder, and end it after the block."""
    program = next((found for found in map(shutil.which, NAMES) if found), None)
    if program is None:
        text = f"there is no {' or '.join(NAMES)} on the path"
        raise BrowserMissingError(text)
    (theirs, to), (answers, their_answers) = os.pipe(), os.pipe()
    ends, quiet = (theirs, their_answers), subprocess.DEVNULL
    # Chromium reads at 3, and writes to 4.
    piped = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{their_answers}', "bash"]
    command = [
        program,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={home}",
        "--remote-debugging-pipe",
    ]
    with subprocess.Popen([*piped, *command], pass_fds=ends, stdout=quiet, stderr=quiet) as process:
        for end in ends:
            os.close(end)
        try:
            yield Reader.at(to, answers)
        finally:
            process.kill()
            os.close(to)
            os.close(answers)


@pytest.fixture(scope="module", name="reader")
def open_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Reader"]:
    """Who reads a page; tests are skipped where there's no browser."""
    try:
        with browser_in(tmp_path_factory.mktemp("browser")) as reader:
            yield reader
    except BrowserMissingError as error:
        pytest.skip(f"not run: {error}")


@attrs.define(eq=False)
class Reader:
    """
    Someone with one tab, who clicks and types; over the pipe of Chromium's DevTools.

    `said` is what the console has said of the page, errors too.
    """

    to: int
    answers: int
    said: list[Any] = attrs.field(factory=list)
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
        for said in ("Runtime.enable", "Log.enable"):
            reader.ask(said)
        reader.show()
        return reader

    def ask(self, method: str, **params: Any) -> Any:
        """Return what Chromium answers."""
        self.asked += 1
        message = {"id": self.asked, "method": method, "params": params, **self.session}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self.asked:
                if answer.get("error", {}).get("message") == NAVIGATED:
                    raise NavigatedError(params)
                assert "error" not in answer, (method, params, answer["error"])
                return answer["result"]
            if answer.get("method") in SAID:
                self.said.append(answer["params"])

    def run(self, script: str) -> Any:
        """Return what an expression of the page is, or what its promise brings."""
        settings = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        found = self.ask("Runtime.evaluate", expression=script, **settings)
        assert "exceptionDetails" not in found, (script, found)
        return found["result"].get("value")

    def open(self, url: str) -> None:
        """Open a page anew, whatever is open."""
        for address in ("about:blank", url):
            self.said.clear()
            self.ask("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def show(self, *, dark: bool = False, width: int = 1200) -> None:
        """Take a light or a dark screen of a width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, place: Sequence[float]) -> bytes:
        """Return a PNG of a place of the page: its left and upper edge, its width and height."""
        clip = dict(zip(("x", "y", "width", "height"), place, strict=True)) | {"scale": 1}
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(found["data"])

    def wait_for(self, script: str) -> None:
        """Wait until an expression is true in the sense of JavaScript."""
        until = time.monotonic() + PATIENCE_S
        while not self._holds(script):
            assert time.monotonic() < until, f"never true: {script}"
            time.sleep(0.05)

    def _holds(self, script: str) -> bool:
        try:
            return bool(self.run(f"!!({script})"))
        except NavigatedError:
            return False  # The page that was asked leads to another one.

    def press(self, key: str, code: int) -> None:
        """Press a key, which has a name and a number."""
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "windowsVirtualKeyCode": code}
            self.ask("Input.dispatchKeyEvent", **event)

    def _next(self) -> bytes:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], PATIENCE_S)
            assert ready, "the browser doesn't answer"
            read = os.read(self.answers, 1 << 16)
            assert read, "the browser has ended"
            self.rest += read
        message, _, self.rest = self.rest.partition(b"\0")
        return message
