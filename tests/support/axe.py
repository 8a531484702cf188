"""What axe-core, which npm brings, finds of a page that a reader has open."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.browser import Reader
from tests.support.cache import cached

VERSION: Final = "4.10.2"
FOUND: Final = (
    "axe.run().then(found => found.violations.map(one => "
    "[one.id, one.help, one.nodes.slice(0, 3).map(node => node.html)]))"
)


def violations(reader: Reader) -> Any:
    """Return the rules that the page breaks, each with its first places."""
    reader.run(_script())
    return reader.run(FOUND)


def _script() -> str:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("not run: there's no npm, which brings axe-core")

    def fill(folder: Path) -> None:
        command = [npm, "pack", f"axe-core@{VERSION}", "--silent", "--pack-destination"]
        subprocess.run(
            [*command, str(folder)], check=True, cwd=folder, capture_output=True, timeout=120
        )
        (archive,) = folder.glob("*.tgz")
        shutil.unpack_archive(archive, folder, filter="data")

    try:
        folder = cached(f"axe-core-{VERSION}", fill)
    except (subprocess.SubprocessError, ValueError) as error:
        pytest.skip(f"not run: npm can't bring axe-core: {error}")
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")
