"""A real Prometheus for tests: the program on PATH, or the one in Debian's package."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import attrs

from tests.support.debian import PackageMissingError, files_of
from tests.support.ports import free_ports

PATIENCE_S: Final = 60
SETTINGS: Final = """\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: tests
    metrics_path: {path}
    static_configs: [{{targets: ["{target}"]}}]
"""


class PrometheusMissingError(Exception):
    """Raised where no Prometheus can be had, with the reason."""


@attrs.frozen
class Prometheus:
    url: str

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression says now: its series, each with labels and a value."""
        return list(self._get("query", query=expression)["result"])

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression says, as soon as it says anything."""
        end = time.monotonic() + PATIENCE_S
        while not (found := self.ask(expression)):
            if time.monotonic() > end:
                message = f"{expression} said nothing for {PATIENCE_S} s"
                raise TimeoutError(message)
            time.sleep(0.1)
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        with _fetched(f"{self.url}/api/v1/{path}?{urlencode(parameters)}") as answer:
            return json.load(answer)["data"]


@contextmanager
def running_prometheus(folder: Path, metrics: str, rules: str) -> Iterator[Prometheus]:
    """Run a server until the end of the block."""
    program = _program()
    where, (port,) = urlsplit(metrics), free_ports(1)
    (folder / "rules.yml").write_text(rules)
    settings = folder / "prometheus.yml"
    settings.write_text(
        SETTINGS.format(rules=folder / "rules.yml", path=where.path, target=where.netloc)
    )
    command = [program, f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("w") as output:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=output
        )
    try:
        yield _started(process, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _started(process: "subprocess.Popen[bytes]", url: str) -> Prometheus:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if process.poll() is not None:
            message = f"Prometheus ended with {process.returncode}"
            raise PrometheusMissingError(message)
        try:
            with _fetched(f"{url}/-/ready"):
                return Prometheus(url)
        except (URLError, OSError):
            time.sleep(0.1)
    message = f"Prometheus took longer than {PATIENCE_S} s to start"
    raise PrometheusMissingError(message)


def _fetched(url: str) -> Any:
    return urlopen(url, timeout=10)  # noqa: S310 (of the server that this module has started)


def _program() -> str:
    """Return the path of the program; from Debian's package it is taken out, not installed."""
    on_path = shutil.which("prometheus")
    if on_path is not None:
        return on_path
    try:
        return str(files_of("prometheus") / "usr" / "bin" / "prometheus")
    except PackageMissingError as error:
        raise PrometheusMissingError(str(error)) from None
