"""The decisions of the set-up script, on machines that exist only in the arguments."""

from pathlib import Path

import pytest

from scripts.setup_env import Installer, Java, Which, choose_installer, parse_java, probe_java

REPORT = """\
Property settings:
    java.home = {home}
    java.version = {version}

{word} version "{version}" 2025-04-15
OpenJDK Runtime Environment (build {version}+6)
"""


def report(*, home: str = "/jdk", version: str = "17.0.15", word: str = "openjdk") -> str:
    return REPORT.format(home=home, version=version, word=word)


def path_with(*names: str) -> Which:
    """A PATH on which only these programs are found."""
    return {name: f"/usr/bin/{name}" for name in names}.get


def fake_java(home: Path, *, version: str) -> Path:
    """A program that reports itself as Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    text = report(home=str(home), version=version)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}END\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("version", "word", "major"),
    [
        ("17.0.15", "openjdk", 17),
        ("21", "openjdk", 21),
        ("25-ea", "openjdk", 25),
        ("1.8.0_412", "java", 8),
        ("17.0.2", "java", 17),
    ],
)
def test_version_is_the_major_one(version: str, word: str, major: int) -> None:
    """The major version is read from every way in which Java has written it."""
    assert Java(Path("/jdk"), major) == parse_java(report(version=version, word=word))


@pytest.mark.parametrize("text", ["", "Unable to locate a Java Runtime.", 'openjdk version "17"'])
def test_other_output_is_no_java(text: str) -> None:
    """What does not report both home and version is not taken for Java."""
    assert parse_java(text) is None


def test_a_java_is_asked_for_its_home_and_version(tmp_path: Path) -> None:
    """A program that runs is asked, so a link or a shim leads to the true home."""
    program = fake_java(tmp_path / "jdk", version="21.0.1")
    (tmp_path / "java").symlink_to(program)
    assert Java(tmp_path / "jdk", 21) == probe_java(tmp_path / "java")


@pytest.mark.parametrize(
    ("programs", "is_root", "can_sudo", "expected"),
    [
        (["apt-get"], True, False, Installer("apt-get")),
        (["apt-get"], False, True, Installer("apt-get", ("sudo", "-n"))),
        (["apt-get"], False, False, None),
        (["dnf", "yum"], True, False, Installer("dnf")),
        (["apk"], True, False, Installer("apk")),
        (["brew"], False, False, Installer("brew")),
        (["brew"], True, False, None),
        ([], True, True, None),
    ],
)
def test_installer_never_asks_for_a_password(
    programs: list[str], is_root: bool, can_sudo: bool, expected: Installer | None
) -> None:
    """A package manager is used by root, with a sudo that asks nothing, or if it needs neither."""
    found = choose_installer(path_with(*programs), is_root=is_root, can_sudo=can_sudo)
    assert expected == found
