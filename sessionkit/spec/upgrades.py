"""State of older classes: the steps from each version to the next."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import attrs

from sessionkit._classes import is_record
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.functions import name_of
from sessionkit.spec.options import Upgrade
from sessionkit.spec.signatures import signature_of
from sessionkit.state._codec import codec_of


@attrs.frozen
class UpgradeStep:
    """How a state of a version, of class `old`, becomes one of the next, of class `new`."""

    version: int
    function: Callable[[Any], Any]
    old: type[Any]
    new: type[Any]


def upgrade_steps(upgrade: Upgrade, version: int, state: type[Any]) -> tuple[UpgradeStep, ...]:
    """Return the steps from the oldest version that can be read to the present one, of a class."""
    if not upgrade:
        return ()
    missing = sorted({*range(min(upgrade), version)} - upgrade.keys())
    if missing or max(upgrade) >= version:
        found = f"`upgrade` has the versions {', '.join(map(str, upgrade))}"
        hint = f"it needs each version from the oldest up to {version - 1}"
        raise SpecError(with_hint(f"{found}, and `version` is {version}", hint))
    steps = [_step(start, function) for start, function in upgrade.items()]
    for before, after in pairwise(steps):
        _check_follows(before, after.old, f"`upgrade[{after.version}]` takes")
    _check_follows(steps[-1], state, "the state is")
    return tuple(steps)


def _step(version: int, function: Callable[[Any], Any]) -> UpgradeStep:
    where = f"`upgrade[{version}]` ({name_of(function)})"
    hint = "write `def from_v1(old: VisitV1) -> Visit: ...`"
    signature = signature_of(function)
    if len(signature.parameters) != 1:
        raise SpecError(with_hint(f"{where} must take the old state alone", hint))
    old, new = signature.parameters[0].annotation, signature.returned.annotation
    for found, what in ((old, "takes"), (new, "returns")):
        if not is_record(found):
            text = f"{where} must say by an annotation which class it {what}"
            raise SpecError(with_hint(f"{text}, found {found!r}", hint))
        codec_of(found)
    return UpgradeStep(version, function, old, new)


def _check_follows(step: UpgradeStep, cls: type[Any], what: str) -> None:
    if step.new is not cls:
        found = f"`upgrade[{step.version}]` returns {step.new.__name__}, and {what} {cls.__name__}"
        raise SpecError(with_hint(found, f"let it return a {cls.__name__}"))
