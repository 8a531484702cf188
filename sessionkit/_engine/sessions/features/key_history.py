"""
The history of keys: their sessions in a line, each after the memory of its key.

The entries of a line are numbered: first the memories of keys, then sessions. A *run* is a part of
a line in which each entry remembers those before it; it ends where a key was forgotten. A session
that gives an early row comes after all sessions of its key that are over, and before none.

What `Memory(remember=...)` returns for a session is what the next session of its key finds. It's
encoded and decoded in between. So it makes no difference whether both close in one micro-batch, and
no function can change what is stored. An early row leaves nothing.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import Mask, Numbers, mask_of, numbers_in, whole
from sessionkit._engine.rows.objects import (
    as_struct,
    check_fit,
    check_rows,
    collected,
    decode_states,
)
from sessionkit._engine.sessions.feature import Finished, Tell
from sessionkit.errors import StateError, UserFunctionError
from sessionkit.spec.functions import Failure, call_failed, forgotten, name_of, wrong_class
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session
from sessionkit.state._codec import ClassCodec, codec_of

NEVER: Final = np.iinfo(np.int64).max


@attrs.frozen
class KeyHistory:
    """
    Memories and sessions, as entries in order of key and start. Instants are in microseconds.

    Attributes:
        known: How many entries are memories of keys.
        order: The entries in order.
        early: Which entries in order give an early row.
        previous: The position in order of the entry before, in its run; -1 for none.
        runs: The position in order of the first entry of its run.
        numbers: The number of the session of each entry in order.
        starts: When the session of each entry began, by the entry's own number.
    """

    known: int
    order: Numbers
    early: Mask
    previous: Numbers
    runs: Numbers
    numbers: Numbers
    starts: Numbers

    @classmethod
    def of(
        cls,
        keys: Numbers,
        starts: Numbers,
        closes: Numbers,
        counts: Numbers,
        *,
        early: Mask,
        lives_us: int,
    ) -> "KeyHistory":
        """
        Put entries in order; `counts` has the sessions that each memory counts, 0 for a session.

        A session is remembered for `lives_us` after it was over.
        """
        # Key 0 has a memory of 3 sessions; of its new ones, the first and the last close, and the
        # second gives an early row. Key 1 is new. In order:
        #     keys      0  0  0  0  1
        #     counts    3  0  0  0  0
        #     early     -  -  -  y  -
        #     previous  -1 0  1  2  -1     an early row comes after all that are over
        #     runs      0  0  0  0  4
        #     numbers   3  4  5  6  1
        # Of several that begin at one instant, each but the last was cut there.
        order = np.lexsort((closes, starts, early, counts == 0, keys))
        at, early, keys = np.arange(len(order)), early[order], keys[order]
        over = np.maximum.accumulate(np.where(early, -1, at))
        previous = np.where(early, over, at - 1)
        begins = (previous < 0) | (keys[previous] != keys)
        begins |= starts[order] >= closes[order][previous] + lives_us
        runs = np.maximum.accumulate(np.where(begins & ~early, at, 0))
        # A memory counts as the last of its sessions; without a memory, the first session has 1.
        base = counts[order][runs]
        numbers = base + np.where(early, over + 1, at) - runs + (base == 0)
        runs, numbers = np.where(begins, at, runs), np.where(begins & early, 1, numbers)
        previous[begins] = -1
        return cls(int((counts > 0).sum()), order, early, previous, runs, numbers, starts)

    @property
    def owners(self) -> Numbers:
        """The position of each session in the order."""
        turns = np.empty(len(self.order), np.int64)
        # The order 2 0 1 puts entry 0 at 1, entry 1 at 2, and entry 2 at 0: 1 2 0.
        turns[self.order] = np.arange(len(self.order))
        return turns[self.known :]

    @property
    def before(self) -> Numbers:
        """For each entry in order, the previous entry of its run; -1 for none."""
        entries: Numbers = np.where(self.previous < 0, -1, self.order[self.previous])
        return entries

    def first_with(self, has: Mask) -> Numbers:
        """Return, for each entry, the first entry of its run so far with a value; -1 for none."""
        if not len(has):
            return np.zeros(0, np.int64)
        at = np.arange(len(has))
        begins = self.runs == at
        valued = np.where(has, at, NEVER)
        # The first of each run, spread over its entries. An early row counts for itself alone,
        # since no other session may depend on it.
        first = np.minimum.reduceat(np.where(self.early, NEVER, valued), np.flatnonzero(begins))
        first = np.minimum(first[np.cumsum(begins) - 1], np.where(self.early, valued, NEVER))
        entries: Numbers = np.where(first <= at, first, -1)
        return entries

    def last_with(self, has: Mask) -> Numbers:
        """Return, for each entry, the last entry of its run so far with a value; -1 for none."""
        valued = np.where(has, np.arange(len(has)), -1)
        # The running maximum crosses the edge of a run: what lies before it doesn't count.
        at = np.maximum.accumulate(np.where(self.early, -1, valued))
        at = np.maximum(at, valued)
        entries: Numbers = np.where(at >= self.runs, at, -1)
        return entries


@attrs.frozen
class Values:
    """The values of entries in order: each in a row of a column, -1 where it has none."""

    column: pa.ChunkedArray
    rows: Numbers

    @classmethod
    def of(
        cls,
        history: KeyHistory,
        known: pa.Array,
        results: pa.Array,
        owners: Numbers,
        *,
        first: bool,
    ) -> "Values":
        """
        Return the values of memories, and the first or the last value in the rows of each session.

        `owners` has the session of each result.
        """
        session_rows = np.full(len(history.order) - history.known, -1)
        # Of several rows for one session, NumPy keeps the one that it sets last.
        valid_rows = np.flatnonzero(mask_of(results.is_valid()))[:: -1 if first else 1]
        session_rows[owners[valid_rows]] = valid_rows
        # Of two known values, the second null, and a session with a value in row 5: [0, -1, 7].
        stored = np.where(mask_of(known.is_valid()), np.arange(len(known)), -1)
        of_sessions = np.where(session_rows < 0, -1, session_rows + len(known))
        rows = np.concatenate([stored, of_sessions])[history.order]
        return cls(pa.chunked_array([known, results]), rows)

    @property
    def has_value(self) -> Mask:
        return self.rows >= 0

    def at(self, entries: Numbers) -> pa.Array:
        """Return the values of some entries; null for -1."""
        return values_at(self.column, np.where(entries < 0, -1, self.rows[entries]))


def values_at(column: pa.Array | pa.ChunkedArray, rows: Numbers) -> pa.Array:
    """Return the values in some rows; null for -1."""
    return whole(column.take(pa.array(np.where(rows < 0, 0, rows), mask=rows < 0)))


TURN, BEFORE = "history.turn", "history.before"
KNOWN, LEAVES = "history.remembered", "history.leaves"
"""
The columns of a session's place in the line, of the session before it (-1 for none), of the memory
of its key, and of whether it leaves a memory: an early row doesn't.
"""


@attrs.frozen(eq=False)
class Remembering:
    """The values that `remember` returns, and the column in which they're stored."""

    spec: AnySessionSpec
    function: Callable[[Session[Any], Any], Any]
    codec: ClassCodec

    @classmethod
    def of(cls, spec: AnySessionSpec) -> "Remembering | None":
        memory = spec.memory
        if memory is None or memory.remember is None or memory.remembered is None:
            return None
        return cls(spec, memory.remember, codec_of(memory.remembered))

    @property
    def field(self) -> pa.Field:
        return pa.field("remembered", self.codec.type.arrow)

    def finish(self, spec: AnySessionSpec, emitting: pa.Table, tell: Tell) -> Finished:
        """Finish sessions one after the other, each with the memory of the previous session."""
        states, codec, sessions = decode_states(spec.state, emitting), codec_of(spec.result), tell()
        before, known = numbers_in(emitting, BEFORE).tolist(), whole(emitting[KNOWN])
        leaves = emitting[LEAVES].to_pylist()
        rows: list[list[Any]] = [[] for _ in sessions]
        columns: list[Sequence[pa.Array]] = [()] * len(sessions)
        left: list[pa.Array] = [None] * len(sessions)
        failed: dict[int, Failure] = {}
        for row in np.argsort(numbers_in(emitting, TURN)).tolist():
            session, state, at = sessions[row], states[row], before[row]
            left[row] = known.slice(row, 1) if at < 0 else left[at]
            vars(session)["memory"] = next(iter(self.read(left[row])), None)
            try:
                results, encoded = self._results(session, state)
                if results and leaves[row]:
                    left[row] = self._remembered(session, state)
            except UserFunctionError as error:
                if spec.on_error == "raise":
                    raise
                failed[row] = Failure.of(error)
            else:
                rows[row], columns[row] = results, encoded
        no_rows = codec.encode([])
        parts = zip(no_rows, *filter(None, columns), strict=True)
        owners = chain.from_iterable([n] * len(results) for n, results in enumerate(rows))
        return Finished(
            list(map(pa.concat_arrays, parts)), list(owners), failed, pa.concat_arrays(left)
        )

    def read(self, stored: pa.Array) -> list[Any]:
        """Decode stored values to new objects; a null gives none."""
        try:
            return self.codec.decode(stored.drop_null().flatten())
        except MemoryError:
            raise
        except Exception as error:
            name = self.codec.type.cls.__name__
            unreadable = (
                f"what was remembered can't be read as {name}: {type(error).__name__}: {error}"
            )
            hint = "let the class take what it has taken before"
            raise StateError(unreadable, hint) from error

    def _results(self, session: Session[Any], state: Any) -> tuple[list[Any], Sequence[pa.Array]]:
        """Return the result rows of a session, and their columns."""
        cls, finish = self.spec.result, self.spec.finish
        if finish is None:
            return [state], codec_of(cls).encode([state])
        try:
            rows = collected(finish(session, state), self.spec, "finish")
        except MemoryError:
            raise
        except Exception as error:
            raise UserFunctionError(*_failed("finish", finish, session, error)) from error
        if not rows:
            return rows, ()
        check_rows(rows, self.spec, "finish", finish, session.key)
        return rows, check_fit(rows, cls, "finish", finish, session.key)

    def _remembered(self, session: Session[Any], state: Any) -> pa.Array:
        """Return what `remember` leaves to the next session of the key, in stored form."""
        function, cls = self.function, self.codec.type.cls
        try:
            returned = function(session, state)
        except MemoryError:
            raise
        except Exception as error:
            raise UserFunctionError(*_failed("remember", function, session, error)) from error
        must_return = "remember" in self.spec.must_return
        if returned is None and not must_return:
            return pa.nulls(1, self.codec.type.arrow)
        if returned.__class__ is not cls:
            what = f"`remember` ({name_of(function)}), for {session.key!r}, must return a"
            hint = forgotten(cls) if must_return else "build one, or return None"
            raise UserFunctionError(wrong_class(what, cls, returned, hint))
        columns = check_fit([returned], cls, "remember", function, session.key, "returned what")
        return as_struct(self.codec.type.fields, columns)


def _failed(
    role: str, function: Callable[..., Any], session: Session[Any], error: Exception
) -> Failure:
    return call_failed(role, function, repr(session.key), error, session.session_start)
