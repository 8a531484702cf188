"""The example that counts words, driven over a real socket and over files."""

import os
import re
import socket
import time
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession

from examples.word_counts import from_socket, main, running_counts, start

Capture: TypeAlias = pytest.CaptureFixture[str]

PATIENCE_SECONDS = 60
LATE: tuple[str, ...] = (
    "2024-03-10T12:07:00Z dog\n2024-03-10T12:08:00Z owl",
    "2024-03-10T12:14:00Z dog\n2024-03-10T12:09:00Z cat",
    "2024-03-10T12:15:00Z cat\n2024-03-10T12:08:00Z dog\n2024-03-10T12:21:00Z owl",
    "2024-03-10T12:17:00Z owl",
    "2024-03-10T12:04:00Z donkey",
    "2024-03-10T12:30:00Z owl",
)
"""
The dog of 12:08 comes late; the donkey of 12:04 comes when the watermark is 12:11. The session of
the tests shows times in New York, four hours behind.
"""


def put(folder: Path, *texts: str) -> None:
    """Write a file a text, in the order of their times."""
    for number, text in enumerate(texts):
        path = folder / f"{number}.txt"
        path.write_text(text, encoding="utf-8")
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def batches(output: str) -> list[list[str]]:
    """Return what was shown of each micro-batch."""
    return [part.rstrip().split("\n  ")[1:] for part in re.split(r"batch \d+", output)[1:]]


def wait_for(shown: list[str], line: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while line not in shown:
        assert time.monotonic() < end, f"{line!r} did not come; there is {shown}"
        time.sleep(0.02)


@pytest.mark.usefixtures("spark")
class TestFiles:
    """The program over text files."""

    def run(self, capsys: Capture, *arguments: Any) -> list[list[str]]:
        """Run the program and return what it showed of each micro-batch."""
        assert 0 == main(list(map(str, arguments)))
        return batches(capsys.readouterr().out)

    @pytest.mark.parametrize(
        ("mode", "second"), [("complete", ["cat 1", "dog 3"]), ("update", ["dog 3"])]
    )
    def test_complete_mode_shows_all_words_and_update_mode_the_changed(
        self, tmp_path: Path, capsys: Capture, mode: str, second: list[str]
    ) -> None:
        """Complete mode shows all words each time, update mode those that have changed."""
        put(tmp_path, "cat dog\n dog", "dog")
        shown = self.run(capsys, "--files", tmp_path, "--mode", mode)

        assert [["cat 1", "dog 2"], second] == shown

    def test_append_mode_shows_each_window_once_when_it_is_over(
        self, tmp_path: Path, capsys: Capture
    ) -> None:
        """Append mode shows each window once, when it is over, with the late dog, no donkey."""
        put(tmp_path, *LATE)
        rows = [row for rows in self.run(capsys, *_windowed(tmp_path, "append")) for row in rows]

        assert [
            "cat 08:00 08:10 1",
            "cat 08:05 08:15 1",
            "cat 08:10 08:20 1",
            "dog 08:00 08:10 2",
            "dog 08:05 08:15 3",
            "dog 08:10 08:20 1",
            "owl 08:00 08:10 1",
            "owl 08:05 08:15 1",
            "owl 08:10 08:20 1",
        ] == sorted(rows)

    def test_update_mode_shows_the_windows_that_a_late_word_changes(
        self, tmp_path: Path, capsys: Capture
    ) -> None:
        """Update mode shows the windows that the late dog changes, and none for the donkey."""
        put(tmp_path, *LATE)
        shown = self.run(capsys, *_windowed(tmp_path, "update"))

        assert ["dog 08:00 08:10 2", "dog 08:05 08:15 3"] == [
            row for row in shown[2] if row.startswith("dog")
        ]
        assert not [row for rows in shown for row in rows if row.startswith("donkey")]


def _windowed(folder: Path, mode: str) -> list[Any]:
    return ["--files", folder, "--windows", "--mode", mode]


def test_a_socket_gives_the_running_counts_of_files(spark: SparkSession) -> None:
    """A word that is sent later is added to its count; those that stay aren't shown again."""
    shown: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        counts = running_counts(from_socket(spark, *listener.getsockname()))
        query = start(counts, "update", show=shown.append)
        try:
            client, _ = listener.accept()
            with client:
                client.sendall(b"cat dog\n")
                wait_for(shown, "  dog 1")
                wait_for(shown, "  cat 1")
                del shown[:]
                client.sendall(b"dog owl\n")
                wait_for(shown, "  dog 2")
                wait_for(shown, "  owl 1")
        finally:
            query.stop()

    assert "  cat 1" not in shown
