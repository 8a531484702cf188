"""A stateful spec on a stream, in a unit test: no JVM, no Spark, both clocks moved by hand."""

from typing import ClassVar, Generic

import attrs

from sessionkit._engine.keys.view import StoredKey, stored_keys_of
from sessionkit.spec.shared import E, R, S
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.testing.drivers.driver import Driver
from sessionkit.testing.drivers.results import KeyRow

__all__ = ["StatefulDriver"]


@attrs.define(init=False)
class StatefulDriver(Driver[StatefulSpec[E, S, R], E, KeyRow[R], R], Generic[E, S, R]):
    """
    Runs a `StatefulSpec` as a streaming query does, micro-batch by micro-batch.

    It calls the same worker that Spark calls; only the group state and the source of the rows
    differ. `add` adds events to the source, and `run_batch` runs one micro-batch over all that
    wait. A batch sees the watermark as it was when the batch started; its own events move the
    watermark of the next one. The processing time moves by hand only. Nothing happens in the
    background, and no clock goes back.

    Not simulated: triggers, partitions and the order of rows, sinks, several watermarks in one
    query, and the check of the input's columns.

    Args:
        spec: The definition.
        processing_time: The processing time of the first batch, with a time zone. A spec with a
            clock in processing time needs it. Without it the functions of other specs see
            1970-01-01, and no event time is too far in the future.

    Raises:
        ScriptError: The processing time has no time zone, or the spec needs one.
    """

    _spec_class: ClassVar = StatefulSpec
    _other_driver: ClassVar = "SessionDriver"
    _order: ClassVar = ("key",)

    def stored_keys(self) -> list[StoredKey[S]]:
        """Return the keys that have a state or a timer, sorted."""
        found = [key for memory in self._memories() for key in stored_keys_of(self.spec, memory)]
        return sorted(found, key=lambda stored: tuple(stored.key))
