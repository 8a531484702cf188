"""
What `Memory(remember=...)` returns: of each session of a key, it's what the next one finds.

    sessions   remembered    what was returned for it, or else for one before; null for nothing

Sessions of a key are finished one after the other, in the order of its line. What one leaves is
stored and read again before the next one sees it. So it makes no difference whether both close in
one micro-batch, and no function can change what is stored. An early row leaves nothing.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._arrays import numbers_in, whole
from sessionkit._engine.rows.objects import (
    as_struct,
    check_rows,
    collected,
    decode_states,
    does_not_fit,
)
from sessionkit._engine.sessions.emission import Finished, Tell
from sessionkit.errors import StateMismatchError, StateValueError, UserFunctionError, with_hint
from sessionkit.spec.functions import Failure, call_failed, forgotten, name_of, wrong_class
from sessionkit.spec.session import AnySessionSpec
from sessionkit.spec.views import Session
from sessionkit.state._codec import ClassCodec, codec_of

TURN, BEFORE = "history.turn", "history.before"
KNOWN, LEAVES = "history.remembered", "history.leaves"
"""
Where in the line a session is; which session is before it, -1 for none; what is known of its key;
and whether it leaves something itself: an early row doesn't.
"""


@attrs.frozen(eq=False)
class Remembering:
    """What `remember` returns, and the one column in which that is stored."""

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

    def finish(self, spec: AnySessionSpec, given: pa.Table, tell: Tell) -> Finished:
        """Finish sessions one after the other, each with what those before it left."""
        states, of_rows, sessions = decode_states(spec.state, given), codec_of(spec.result), tell()
        before, known = numbers_in(given, BEFORE).tolist(), whole(given[KNOWN])
        leaves = given[LEAVES].to_pylist()
        rows: list[list[Any]] = [[] for _ in sessions]
        columns: list[Sequence[pa.Array]] = [()] * len(sessions)
        left: list[pa.Array] = [None] * len(sessions)
        failed: dict[int, Failure] = {}
        for place in np.argsort(numbers_in(given, TURN)).tolist():
            session, state, at = sessions[place], states[place], before[place]
            left[place] = known.slice(place, 1) if at < 0 else left[at]
            vars(session)["memory"] = next(iter(self.read(left[place])), None)
            try:
                results = self._rows(session, state)
                encoded = self._encoded_rows(session, results)
                if results and leaves[place]:
                    left[place] = self._remembered(session, state)
            except UserFunctionError as error:
                if spec.on_error == "raise":
                    raise
                failed[place] = Failure.of(error)
            else:
                rows[place], columns[place] = results, encoded
        none = of_rows.encode([])
        parts = zip(none, *filter(None, columns), strict=True)
        places = chain.from_iterable([n] * len(one) for n, one in enumerate(rows))
        return Finished(
            list(map(pa.concat_arrays, parts)), list(places), failed, pa.concat_arrays(left)
        )

    def read(self, stored: pa.Array) -> list[Any]:
        """Return new objects of what is stored, none for a null."""
        try:
            return self.codec.decode(stored.drop_null().flatten())
        except Exception as error:
            name = self.codec.type.cls.__name__
            unreadable = (
                f"what was remembered can't be read as {name}: {type(error).__name__}: {error}"
            )
            hint = "let the class take what it has taken before"
            raise StateMismatchError(with_hint(unreadable, hint)) from error

    def _rows(self, session: Session[Any], state: Any) -> list[Any]:
        finish = self.spec.finish
        if finish is None:
            return [state]
        try:
            return collected(finish(session, state), self.spec, "finish")
        except Exception as error:
            raise UserFunctionError(*_failed("finish", finish, session, error)) from error

    def _encoded_rows(self, session: Session[Any], rows: list[Any]) -> Sequence[pa.Array]:
        if not rows:
            return ()
        cls, finish = self.spec.result, self.spec.finish
        if finish is None:
            return codec_of(cls).encode(rows)
        check_rows(rows, self.spec, "finish", finish, session.key)
        try:
            return codec_of(cls).encode(rows)
        except StateValueError as misfit:
            message = does_not_fit("finish", finish, session.key, "a row that", misfit)
            raise UserFunctionError(message) from misfit

    def _remembered(self, session: Session[Any], state: Any) -> pa.Array:
        """Return what the next session of the key finds, as it's stored."""
        function, cls = self.function, self.codec.type.cls
        try:
            returned = function(session, state)
        except Exception as error:
            raise UserFunctionError(*_failed("remember", function, session, error)) from error
        must_return = "remember" in self.spec.must_return
        if returned is None and not must_return:
            return pa.nulls(1, self.codec.type.arrow)
        if returned.__class__ is not cls:
            what = f"`remember` ({name_of(function)}), for {session.key!r}, must return a"
            hint = forgotten(cls) if must_return else "build one, or return None"
            raise UserFunctionError(wrong_class(what, cls, returned, hint))
        try:
            return as_struct(self.codec.type.fields, self.codec.encode([returned]))
        except StateValueError as misfit:
            message = does_not_fit("remember", function, session.key, "what", misfit)
            raise UserFunctionError(message) from misfit


def _failed(
    role: str, function: Callable[..., Any], session: Session[Any], error: Exception
) -> Failure:
    return call_failed(role, function, repr(session.key), error, session.start)
