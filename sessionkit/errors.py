"""
The errors, grouped by who can fix them.

Only text crosses from a Spark worker to the driver, so every message is complete: what is wrong,
where, what was found, and a `Hint:` with the one thing to change.

    SessionkitError
      SpecError (ValueError)            a spec, policy or builder is wrong; raised on the driver
        SchemaError                       the input columns don't fit the spec
        NotPicklableError                 part of the spec can't be sent to the executors
      StateError                        stored state and the spec disagree
        StateCorruptedError               the stored bytes aren't what was written
        StateValueError (ValueError)      a value doesn't fit its declared field
      BalanceError                      the counts of a query don't account for every event
      SinkError                         a sink can't take a micro-batch
      UnsupportedError                  this version of Spark or of a library can't do that
      TimerError (ValueError)           a user function set an impossible timer
      UserFunctionError                 a user function raised, or returned a wrong value
      DriverError (ValueError)          testing: a driver can't do that
      ExpectationError (AssertionError) testing: an expectation isn't met

Import `SessionkitError`, `SpecError`, `SchemaError` and `UserFunctionError` from `sessionkit`.
"""

from typing import Final

__all__ = [
    "BalanceError",
    "DriverError",
    "ExpectationError",
    "NotPicklableError",
    "SinkError",
    "StateCorruptedError",
    "StateError",
    "StateValueError",
    "TimerError",
    "UnsupportedError",
]

HINT: Final = "\n\nHint: "
"""What stands between the message of an error and its hint."""


class SessionkitError(Exception):
    """
    The base class of every error that sessionkit raises.

    `str(error)` is the message and, where there is a hint, an empty line and `Hint:` with the hint.

    Args:
        message: What is wrong, where, and what was found.
        hint: The one thing to change; None for none.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        # A subclass may have another base, from another library, that takes no message.
        Exception.__init__(self, message if hint is None else with_hint(message, hint))


class SpecError(SessionkitError, ValueError):
    """
    Raised when an argument is wrong: of a spec, of one of its parts, or of a function.

    It comes at once, before any event is read: for a duration that isn't positive, for two options
    that contradict each other, or for a field of a type that can't be stored. It's a `ValueError`
    too.
    """


class SchemaError(SpecError):
    """
    Raised when a DataFrame doesn't fit the spec: a column is missing, or has another type.

    Also for a batch where a stream is needed, or for a value that isn't a DataFrame of Spark. It's
    a `SpecError`, and comes at once, before any event is read.
    """


class NotPicklableError(SpecError):
    """
    Raised when a function of the spec can't be sent to Spark's executors.

    Such a function uses a lock, an open file or a connection. `sessionize`, `apply_with_state` and
    `bootstrap` raise it at once. It's a `SpecError`.
    """


class StateError(SessionkitError):
    """
    Raised when stored state doesn't fit the spec, whose gap or state class has changed since.

    The message names each difference. `StateCorruptedError` and `StateValueError` are subclasses.
    """


class StateCorruptedError(StateError):
    """
    Raised when a checkpoint, or the state in it, is damaged, or wasn't written by sessionkit.

    It's a `StateError`.
    """


class StateValueError(StateError, ValueError):
    """
    Raised when a value of a key, a state or a result doesn't fit the type of its field.

    Also when a sum overflows, and by `state.get()` if there is no state. It's a `StateError` and a
    `ValueError`.
    """


class BalanceError(SessionkitError):
    """
    Raised when the counts of a query don't account for every event.

    `reconcile` and `Reconciliation.add` raise it.
    """


class SinkError(SessionkitError):
    """
    Raised when a sink can't take a micro-batch: the query stops and writes none of its rows.

    An example is a row whose `session_id` the table has for another session. `repair` raises it if
    another repair has committed first.
    """


class UnsupportedError(SessionkitError):
    """
    Raised when this version of Spark, or of another library, lacks a feature.

    Also when a library isn't installed that an optional part of sessionkit needs.
    """


class TimerError(SessionkitError, ValueError):
    """
    Raised inside `process` or `on_timer` when it sets a timer that can't be set.

    `set_event_timer` and `set_processing_timer` name the reasons. If your function doesn't catch
    it, it counts as a failure of the function: see `UserFunctionError`. It's a `ValueError` too.
    """


class UserFunctionError(SessionkitError):
    """
    Raised when a function that you wrote raises, or returns a wrong value.

    `str(error)` has the reason, the traceback and the hint.

    Attributes:
        reason: The message: what failed, and for which key.
        traceback: The traceback of your function; None if it didn't raise.
    """

    def __init__(self, reason: str, traceback: str | None = None, hint: str | None = None) -> None:
        message = f"{reason}\n\n{traceback}" if traceback else reason
        super().__init__(message, hint)
        self.reason, self.traceback = reason, traceback


class DriverError(SessionkitError, ValueError):
    """
    Raised by the tools for tests when a test asks for something impossible.

    Examples are a processing time that goes back, a time without a time zone, and an event of
    another class. `SessionDriver`, `StatefulDriver`, `at` and `explain_session` raise it. It's a
    `ValueError` too.
    """


class ExpectationError(SessionkitError, AssertionError):
    """
    Raised by `check_spec` and `check_merge_law` when a spec doesn't keep what they check.

    It's an `AssertionError` too, so pytest counts it as a failure.
    """


def with_hint(message: str, hint: str) -> str:
    """Join a message and a hint, in the format of every error."""
    return f"{message}{HINT}{hint}"


def printable(text: str, *, keep: str = "") -> str:
    r"""
    Escape unprintable characters of text from outside: `\x1b` is written out.

    Otherwise a name could move the cursor, change the title of the window or turn a line around.
    Characters in `keep`, such as a line feed, stay.
    """
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )
