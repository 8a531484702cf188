"""
Check a release before anyone else gets it: build it, read it, install it, and follow the pages.

    python scripts/release_check.py                   all of it; what is built is left in dist/
    python scripts/release_check.py --tag v0.2.0      also that tag, version and changelog agree
    python scripts/release_check.py --wheel FILE      follow the pages from a wheel that is built

The pages are followed as a reader would: an environment with nothing in it, the `pip install` line
of the README with the wheel in place of the name, and each block in the order of the page.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import ZipFile

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ("README.md", "docs/tutorial/first-session-job.md")

BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BELOW: Final = re.compile(r"^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALL: Final = re.compile(r'pip\s+install\s+"(sessionkit-spark|\.)\[spark\]"')
NOT_RUN: Final = "# not run here: "

PACKAGE: Final = "sessionkit/"
NOT_IN_SDIST: Final = (".ci/", ".github/", ".pre-commit-config.yaml", "changes/")
RUN_TESTS: Final = """
for name, value in list(globals().items()):
    if name.startswith("test_"):
        value()
"""


class FailedError(Exception):
    """The release isn't ready; the text says why."""


class Step(NamedTuple):
    """A command that a reader types, and how long it took."""

    command: str
    seconds: float


# -- what is in the files ----------------------------------------------------------------------


def tracked(root: Path) -> set[str]:
    """Return the paths of all files of the project, as git knows them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
    return {name for name in listed.stdout.decode().split("\0") if name and (root / name).exists()}


def wheel_faults(names: Iterable[str], project: set[str]) -> list[str]:
    """Return what a wheel lacks, and what it has that nobody imports."""
    found = {name for name in names if ".dist-info/" not in name}
    expected = {name for name in project if name.startswith(PACKAGE)}
    return _differences("wheel", found, expected | {"sessionkit/py.typed"})


def sdist_faults(names: Iterable[str], project: set[str]) -> list[str]:
    """Return what a source distribution lacks or has too much; PKG-INFO and .gitignore are free."""
    found = {name.partition("/")[2] for name in names} - {"PKG-INFO", ".gitignore"}
    expected = {name for name in project if not name.startswith(NOT_IN_SDIST)} - {".gitignore"}
    return _differences("sdist", found, expected | {"docs/conf.py", "docs/index.md"})


def _differences(kind: str, found: set[str], expected: set[str]) -> list[str]:
    missing = [f"the {kind} lacks {name}" for name in sorted(expected - found)]
    return missing + [f"the {kind} has {name}" for name in sorted(found - expected)]


def tag_faults(tag: str, version: str, changelog: str, readme: str) -> list[str]:
    """Return where a release's tag, its version, the changelog and the README disagree."""
    faults = [] if tag == f"v{version}" else [f"the tag is {tag}, and the version {version}"]
    if not any(name == "sessionkit-spark" for name in INSTALL.findall(readme)):
        faults.append(
            "README.md installs from a checkout: set `released = true` in pyproject.toml, "
            "and run python -m scripts.fill_pages"
        )
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE
    ):
        faults.append(f"CHANGELOG.md has no line `## [{version}] - ` and the day of the release")
    return faults


def names_in_wheel(wheel: Path) -> list[str]:
    """Return the paths of all files in a wheel."""
    with ZipFile(wheel) as archive:
        return archive.namelist()


def names_in_sdist(sdist: Path) -> list[str]:
    """Return the paths of all files in a source distribution, below its one folder."""
    with tarfile.open(sdist) as archive:
        return [member.name for member in archive if member.isfile()]


# -- what a page says to do --------------------------------------------------------------------


def program_of(page: str) -> str:
    """Return the blocks of a page as one program, which then runs the tests in them."""
    blocks = [block for block in BLOCK.findall(page) if not block.startswith(NOT_RUN)]
    return "\n".join([*blocks, RUN_TESTS])


def outputs_missing(page: str, printed: str) -> list[str]:
    """Return what a page shows below its blocks, and its program didn't print."""
    return [shown for shown in BELOW.findall(page) if shown not in printed]


def install_line(readme: str, wheel: Path) -> str:
    """Return the README's line for a machine without Spark, with the wheel in place of a name."""
    found = INSTALL.search(readme)
    if found is None:
        said = 'the README has no `pip install "sessionkit-spark[spark]"`'
        raise FailedError(said)
    return f'pip install "{wheel}[spark]"'


# -- actions -----------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print what is being done, at once even if the output is a file."""
    print(f"release: {text}", flush=True)


def run(command: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command, and return what it printed; a failure shows all of it."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"`{' '.join(map(str, command))}` failed\n{done.stdout}{done.stderr}"
        raise FailedError(said)
    return done.stdout


def build(folder: Path, *, isolated: bool = True) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return both."""
    how = [] if isolated else ["--no-isolation"]
    run([sys.executable, "-m", "build", *how, "--outdir", folder], ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check_files(sdist: Path, wheel: Path, tag: str | None) -> None:
    """Check metadata, contents and version."""
    run([sys.executable, "-m", "twine", "check", "--strict", sdist, wheel], ROOT)
    project = tracked(ROOT)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    in_wheel, in_sdist = names_in_wheel(wheel), names_in_sdist(sdist)
    faults = wheel_faults(in_wheel, project) + sdist_faults(in_sdist, project)
    if tag is not None:
        texts = ((ROOT / page).read_text("utf-8") for page in ("CHANGELOG.md", PAGES[0]))
        faults += tag_faults(tag, version, *texts)
    if faults:
        raise FailedError("\n".join(faults))
    for path, names in ((sdist, in_sdist), (wheel, in_wheel)):
        say(f"{path.name}: {len(names)} files, {path.stat().st_size / 1000:,.0f} kB, as expected")


def variables(environment: Path) -> dict[str, str]:
    """Return the variables of a shell in which the environment is active, and nothing of ours."""
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ours = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "SESSIONKIT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(environment), "SPARK_LOCAL_IP": "127.0.0.1"}


def follow(wheel: Path, folder: Path) -> list[Step]:
    """Make an empty environment, install the wheel, and follow each page; return the steps."""
    env = variables(folder / "env")
    steps = []

    def step(shown: str, command: Sequence[str | Path]) -> str:
        began = time.monotonic()
        printed = run(command, folder, env)
        steps.append(Step(shown, time.monotonic() - began))
        say(f"{shown}: {steps[-1].seconds:.0f} s")
        return printed

    began = time.monotonic()
    venv.create(folder / "env", with_pip=True)
    steps.append(Step("python -m venv env", time.monotonic() - began))
    install = install_line((ROOT / "README.md").read_text("utf-8"), wheel)
    step(install, ["bash", "-c", install])
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        program = folder / f"{Path(page).stem.lower().replace('-', '_')}.py"
        program.write_text(program_of(text), "utf-8")
        printed = step(f"python {program.name}", ["python", program])
        if missing := outputs_missing(text, printed):
            said = f"{page} shows what its blocks don't print:\n{missing[0]}\nbut:\n{printed}"
            raise FailedError(said)
    return steps


def summary(steps: Sequence[Step]) -> str:
    """Return how many commands and minutes lead to the first rows, which the README shows."""
    first = steps[: 1 + next(i for i, step in enumerate(steps) if step.command.endswith(".py"))]
    minutes = sum(step.seconds for step in first) / 60
    return f"{len(first)} commands and {minutes:.1f} minutes to the first rows"


def check_site(sdist: Path, folder: Path) -> None:
    """Build the site from the source distribution."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (root,) = (path for path in folder.iterdir() if path.is_dir())
    sphinx = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "docs", "site"]
    run(sphinx, root, {**os.environ, "PYTHONPATH": str(root)})
    say(f"the site from the sdist: {len(list((root / 'site').rglob('*.html')))} pages")


def main() -> int:
    """Check the release; the exit status says whether it's ready."""
    parser = argparse.ArgumentParser(description="Check a release before anyone else gets it.")
    parser.add_argument("--tag", help="the tag of the release, which names its version")
    parser.add_argument("--wheel", type=Path, help="a wheel from which to follow the pages alone")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            if chosen.wheel is None:
                dist = ROOT / "dist"
                for old in (*dist.glob("*.tar.gz"), *dist.glob("*.whl")):
                    old.unlink()
                sdist, wheel = build(dist)
                check_files(sdist, wheel, chosen.tag)
                check_site(sdist, folder / "sdist")
            else:
                wheel = chosen.wheel.resolve()
            (folder / "reader").mkdir()
            say(summary(follow(wheel, folder / "reader")))
        except FailedError as error:
            say(str(error))
            return 1
    say("ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
