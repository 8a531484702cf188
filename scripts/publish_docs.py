"""
Put a built site next to the sites of other versions, and list all versions in each.

    python scripts/publish_docs.py site pages v0.2.0    as the folder pages/0.2.0
    python scripts/publish_docs.py site pages main      as the folder pages/main

The start page of `pages` leads to the newest release, or to `main` before there is one.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Final

RELEASE: Final = re.compile(r"\d+(\.\d+)*")
START: Final = '<!doctype html>\n<meta http-equiv="refresh" content="0; url={}/index.html">\n'


def age(name: str) -> tuple[bool, list[int], str]:
    """Return what puts releases first, the newest on top."""
    numbers = [-int(part) for part in name.split(".")] if RELEASE.fullmatch(name) else []
    return not numbers, numbers, name


def publish(site: Path, pages: Path, ref: str) -> None:
    """Replace the version of a branch or a tag, and list the versions in all of them."""
    name = re.sub(r"^v(?=\d)", "", ref).replace("/", "-")
    shutil.rmtree(pages / name, ignore_errors=True)
    shutil.copytree(site, pages / name)
    names = sorted((path.parent.name for path in pages.glob("*/versions.json")), key=age)
    versions = json.dumps([{"name": name, "folder": f"../{name}/"} for name in names])
    for name in names:
        (pages / name / "versions.json").write_text(versions, "utf-8")
    (pages / "index.html").write_text(START.format(names[0]), "utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
