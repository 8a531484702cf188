"""
Make this folder ready to run: a virtual environment, the dependencies, and Java.

The Makefile calls it before every target. It leaves alone what is ready, so the second call takes
well under a second. It uses only the standard library, because it runs before anything is
installed. Functions that decide take the machine as arguments; the few that act follow them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
OWN_JDKS = ROOT / ".jdk"
OLDEST_JAVA = 17
# Every Spark since 3.5 runs on Java 17, so this is what is installed if there is none.
WANTED_JAVA = "17"

PROJECT = ".[avro,demo,hypothesis,monitor,postgres,report,spark]"
INSTALL = ["install", "--quiet", "--editable", PROJECT, "--group", "dev", "--group", "docs"]

JAVA_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdk/*",
    "~/.jdks/*",
)

# The first package that installs is enough: names differ between releases of a distribution.
JAVA_PACKAGES = {
    "apt-get": ("openjdk-17-jdk-headless", "openjdk-21-jdk-headless", "default-jdk-headless"),
    "dnf": ("java-17-openjdk-devel", "java-21-openjdk-devel", "java-latest-openjdk-devel"),
    "yum": ("java-17-openjdk-devel", "java-17-amazon-corretto-devel"),
    "apk": ("openjdk17-jdk", "openjdk21-jdk"),
    "brew": ("openjdk@17",),
}

INSTALL_COMMANDS = {
    "apt-get": ("apt-get", "install", "--yes", "--no-install-recommends"),
    "dnf": ("dnf", "install", "--assumeyes"),
    "yum": ("yum", "install", "--assumeyes"),
    "apk": ("apk", "add"),
    "brew": ("brew", "install"),
}

FETCH_JAVA = """\
import sys, jdk
try:
    jdk.install(sys.argv[1], path=sys.argv[2])
except Exception as error:
    sys.exit(f"install-jdk: {error}")
"""

NO_JAVA = f"""\
Spark needs Java {OLDEST_JAVA} or newer. None was found through JAVA_HOME, on PATH or in the usual \
folders, and none could be installed.

Hint: install a JDK, for example from https://adoptium.net, and set JAVA_HOME to its folder."""

Which = Callable[[str], str | None]


class Java(NamedTuple):
    """A Java that runs: its home folder and its major version."""

    home: Path
    version: int


class Installer(NamedTuple):
    """A package manager that may be used, and the prefix of its commands."""

    manager: str
    prefix: tuple[str, ...] = ()


# -- decisions ---------------------------------------------------------------------------------


def parse_java(text: str) -> Java | None:
    """Read home and version from what `java -XshowSettings:properties -version` prints."""
    home = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    version = re.search(r'^\w+ version "(?:1\.)?(\d+)', text, re.MULTILINE)
    return Java(Path(home[1]), int(version[1])) if home and version else None


def java_candidates(environ: Mapping[str, str], which: Which) -> Iterator[Path]:
    """Yield the `java` programs that the user has chosen: JAVA_HOME first, then PATH."""
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]) / "bin" / "java"
    if on_path := which("java"):
        yield Path(on_path)


def java_in_folders(patterns: Iterable[str]) -> Iterator[Path]:
    """Yield the `java` programs below the folders that match one of the patterns."""
    for pattern in patterns:
        anchor, *parts = Path(pattern).expanduser().parts
        yield from sorted(Path(anchor).glob(str(Path(*parts, "bin", "java"))))


def choose_java(chosen: Iterable[Java | None], others: Iterable[Java | None]) -> Java | None:
    """Return the first of the user's choices that is new enough, else the oldest other that is."""
    for java in chosen:
        if java and java.version >= OLDEST_JAVA:
            return java
    enough = [java for java in others if java and java.version >= OLDEST_JAVA]
    return min(enough, key=lambda java: java.version, default=None)


def choose_installer(which: Which, *, is_root: bool, can_sudo: bool) -> Installer | None:
    """Return the package manager that can be used without asking anyone for a password."""
    manager = next((name for name in JAVA_PACKAGES if which(name)), None)
    if manager is None:
        return None
    if manager == "brew":
        return None if is_root else Installer(manager)
    if is_root:
        return Installer(manager)
    return Installer(manager, ("sudo", "-n")) if can_sudo else None


def install_commands(installer: Installer, packages: Iterable[str]) -> list[list[str]]:
    """Return the commands to try in turn; the first that succeeds is enough."""
    start = [*installer.prefix, *INSTALL_COMMANDS[installer.manager]]
    return [[*start, package] for package in packages]


def fingerprint(pyproject: bytes, *facts: str) -> str:
    """Return a hash of what the installation depends on; a new hash means a new installation."""
    return hashlib.sha256(b"\0".join([pyproject, *(fact.encode() for fact in facts)])).hexdigest()


def venv_package(version: tuple[int, int]) -> str:
    """Return the package in which Debian and Ubuntu keep `ensurepip`."""
    return f"python{version[0]}.{version[1]}-venv"


def no_venv_message(version: tuple[int, int], python: str) -> str:
    """Return what to do about a Python that can't make virtual environments."""
    package = venv_package(version)
    return (
        f"{python} cannot make a virtual environment: its module `ensurepip` is missing.\n\n"
        f"Hint: on Debian and Ubuntu `sudo apt-get install {package}`; elsewhere pass a complete "
        "Python: make test PYTHON=/path/to/python3"
    )


# -- actions -----------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print what is being done, at once even if the output is a file."""
    print(f"setup: {text}", flush=True)


def refuse(message: str) -> NoReturn:
    """Exit with a message for the user."""
    sys.exit(f"setup: {message}")


def succeeds(command: list[str]) -> bool:
    """Return whether a command succeeds in this folder, with nobody to answer its questions."""
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "NONINTERACTIVE": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        say(str(error))
        return False
    return done.returncode == 0


def probe_java(program: Path) -> Java | None:
    """Ask a `java` program for its home and version; None if it doesn't run."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java(done.stderr + done.stdout)


def find_java() -> Java | None:
    """Find a Java that Spark can use on this machine."""
    chosen = java_candidates(os.environ, shutil.which)
    others = java_in_folders((*JAVA_FOLDERS, f"{OWN_JDKS}/*", f"{OWN_JDKS}/*/Contents/Home"))
    return choose_java(map(probe_java, chosen), map(probe_java, others))


def find_installer() -> Installer | None:
    """Find a package manager that this user may use."""
    is_root = os.geteuid() == 0
    can_sudo = not is_root and bool(shutil.which("sudo")) and succeeds(["sudo", "-n", "true"])
    return choose_installer(shutil.which, is_root=is_root, can_sudo=can_sudo)


def install_packages(installer: Installer, packages: Iterable[str]) -> bool:
    """Install the first of the packages that this system knows."""
    if installer.manager == "apt-get":
        succeeds([*installer.prefix, "apt-get", "update", "--quiet"])
    for command in install_commands(installer, packages):
        say(" ".join(command))
        if succeeds(command):
            return True
    return False


def install_java_with_manager() -> bool:
    """Install a JDK with the system's package manager, if that needs no password."""
    installer = find_installer()
    if installer is None:
        return False
    return install_packages(installer, JAVA_PACKAGES[installer.manager])


def install_java_with_install_jdk() -> bool:
    """Download a JDK into this folder with the PyPI package install-jdk."""
    say(f"fetching Java {WANTED_JAVA} into {OWN_JDKS.name}/ with install-jdk")
    OWN_JDKS.mkdir(exist_ok=True)
    python = str(VENV_PYTHON)
    return succeeds([python, "-m", "pip", "install", "--quiet", "install-jdk>=1.1"]) and succeeds(
        [python, "-c", FETCH_JAVA, WANTED_JAVA, str(OWN_JDKS)]
    )


def ensure_java() -> Java:
    """Find Java, or install it: with the system's package manager, else with install-jdk."""
    if java := find_java():
        return java
    say(f"no Java {OLDEST_JAVA} or newer found")
    for install in (install_java_with_manager, install_java_with_install_jdk):
        if install() and (java := find_java()):
            return java
    refuse(NO_JAVA)


def ensure_venv() -> None:
    """Make the virtual environment, unless there is one that works."""
    fit = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    if VENV_PYTHON.exists() and succeeds([str(VENV_PYTHON), "-c", fit]):
        return
    ensure_ensurepip()
    say(f"making {VENV.name} with {sys.executable}")
    if not succeeds([sys.executable, "-m", "venv", "--clear", str(VENV)]):
        refuse("the virtual environment could not be made.\n\nHint: Python says why, just above.")


def ensure_ensurepip() -> None:
    """Install `ensurepip`, which Debian keeps in its own package, if that is allowed."""
    if find_spec("ensurepip"):
        return
    version = sys.version_info[:2]
    packages = [venv_package(version)]
    installer = find_installer()
    if installer and installer.manager == "apt-get" and install_packages(installer, packages):
        return
    refuse(no_venv_message(version, sys.executable))


def ensure_dependencies() -> None:
    """Install what `pyproject.toml` lists, unless it is already there."""
    stamp = VENV / "installed"
    now = fingerprint((ROOT / "pyproject.toml").read_bytes(), str(ROOT))
    if stamp.exists() and stamp.read_text() == now:
        return
    say("installing the dependencies (once; it takes minutes: Spark alone is about 400 MB)")
    pip = [str(VENV_PYTHON), "-m", "pip"]
    # --group needs a pip of 2025 or newer; the one that comes with Python may be older.
    if not (succeeds([*pip, "install", "--quiet", "pip>=25.1"]) and succeeds([*pip, *INSTALL])):
        refuse("the dependencies could not be installed.\n\nHint: pip says why, just above.")
    stamp.write_text(now)


def main() -> None:
    """Make the folder ready, and write Java's home where the Makefile reads it."""
    ensure_venv()
    ensure_dependencies()
    java = ensure_java()
    (VENV / "java-home").write_text(f"{java.home}\n")


if __name__ == "__main__":
    main()
