"""Specs from one flat list of words: each goes to the group, or the logic, that it belongs to."""

from typing import Any, Final, TypeVar, cast

import attrs

from sessionkit import (
    Aggregates,
    Events,
    Functions,
    Inputs,
    Lateness,
    Results,
    SessionSpec,
    Storage,
    by_processing_time,
)

T = TypeVar("T")
GROUPS: Final[dict[str, type[Any]]] = {
    "lateness": Lateness,
    "results": Results,
    "inputs": Inputs,
    "storage": Storage,
}
GROUP_OF: Final = {
    field.name: group for group, cls in GROUPS.items() for field in attrs.fields(cls)
}
LOGIC: Final = {"create", "update", "merge", "finish", "event", "state", "result", "aggregates"}


def grouped(**words: Any) -> dict[str, Any]:
    """Return the arguments of a spec, with words of groups in their groups."""
    found = {name: value for name, value in words.items() if name not in GROUP_OF}
    for group, cls in GROUPS.items():
        own = {name: value for name, value in words.items() if GROUP_OF.get(name) == group}
        if own:
            found[group] = attrs.evolve(found[group], **own) if group in found else cls(**own)
    if found.pop("processing_timers", False):
        found["on_timer"] = by_processing_time(found["on_timer"])
    return found


def session_spec(**words: Any) -> SessionSpec[Any, Any, Any]:
    """Return a spec of functions, of aggregates, or of events where neither is given."""
    given = {name: words.pop(name) for name in LOGIC & words.keys()}
    if "update" in given:
        words["logic"] = Functions(**given)
    elif "aggregates" in given:
        words["logic"] = Aggregates(given.pop("event"), given.pop("aggregates"), **given)
    elif given:
        words["logic"] = Events(**given)
    return SessionSpec(**grouped(**words))


def evolved(spec: T, **words: Any) -> T:
    """Return a spec with words of it changed."""
    own = {name: words[name] for name in words if name not in GROUP_OF}
    if isinstance(spec, SessionSpec):
        of_logic = {name: own.pop(name) for name in LOGIC & own.keys()}
        if of_logic:
            own["logic"] = attrs.evolve(spec.logic, **of_logic)
    for name, group in GROUP_OF.items():
        if name in words:
            own[group] = attrs.evolve(own.get(group, getattr(spec, group)), **{name: words[name]})
    found: T = attrs.evolve(cast("Any", spec), **own)
    return found
