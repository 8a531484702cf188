"""What becomes of a state that an older class wrote: functions from version to version, checked."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import attrs

from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.functions import name_of
from sessionkit.spec.signatures import annotation_of, positional_parameters
from sessionkit.state import codec_of

__all__ = ["Upgrade", "UpgradeStep", "last_version", "read_upgrade", "upgrade_steps"]

Upgrade: TypeAlias = Mapping[int, Callable[[Any], Any]]


@attrs.frozen
class UpgradeStep:
    """
    The way from one version of a state to the next one.

    Attributes:
        version: The version that it starts from.
        function: Turns a state of that version into one of the next.
        old: The class of a state of that version.
        new: The class of a state of the next.
    """

    version: int
    function: Callable[[Any], Any]
    old: type[Any]
    new: type[Any]


def last_version(spec: Any) -> int:
    """Return the version to which the functions of a spec lead."""
    return 1 + max(spec.upgrade, default=0)


def read_upgrade(value: object) -> dict[int, Callable[[Any], Any]]:
    """Return `upgrade` as a dict in the order of versions, refused if it isn't one."""
    if isinstance(value, Mapping) and all(
        type(version) is int and version >= 1 and callable(function)
        for version, function in value.items()
    ):
        return dict(sorted(value.items()))
    found = f"`upgrade` must be a dict of versions from 1 and functions, found {value!r}"
    raise SpecError(with_hint(found, "write upgrade={1: from_v1}"))


def upgrade_steps(upgrade: Upgrade, version: int, state: type[Any]) -> tuple[UpgradeStep, ...]:
    """
    Return the way from the oldest version that can be read to the present one.

    Args:
        upgrade: The functions, by the version from which each starts.
        version: The present version.
        state: The present class.

    Raises:
        SpecError: A version is left out, or the classes of the functions don't follow each other.
        FieldTypeError: An older class has fields that can't be stored.
    """
    if not upgrade:
        return ()
    missing = sorted({*range(min(upgrade), version)} - upgrade.keys())
    if missing or max(upgrade) >= version:
        found = f"`upgrade` has the versions {', '.join(map(str, upgrade))}"
        hint = f"it needs each version from the oldest up to {version - 1}"
        raise SpecError(with_hint(f"{found}, and `state_version` is {version}", hint))
    steps = [_step(start, function) for start, function in upgrade.items()]
    for before, after in pairwise(steps):
        _check_follows(before, after.old, f"`upgrade[{after.version}]` takes")
    _check_follows(steps[-1], state, "the state is")
    return tuple(steps)


def _step(version: int, function: Callable[[Any], Any]) -> UpgradeStep:
    where = f"`upgrade[{version}]` ({name_of(function)})"
    hint = "write `def from_v1(old: VisitV1) -> Visit: ...`"
    if len(positional_parameters(function)) != 1:
        raise SpecError(with_hint(f"{where} must take the old state alone", hint))
    places: Sequence[int | None] = (0, None)
    old, new = (annotation_of(function, place) for place in places)
    for found, what in ((old, "takes"), (new, "returns")):
        if not (isinstance(found, type) and attrs.has(found)):
            text = f"{where} must say by an annotation which attrs class it {what}"
            raise SpecError(with_hint(f"{text}, found {found!r}", hint))
        codec_of(found)
    return UpgradeStep(version, function, old, new)


def _check_follows(step: UpgradeStep, cls: type[Any], what: str) -> None:
    if step.new is not cls:
        found = f"`upgrade[{step.version}]` returns {step.new.__name__}, and {what} {cls.__name__}"
        raise SpecError(with_hint(found, f"let it return a {cls.__name__}"))
