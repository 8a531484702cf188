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


class SessionkitError(Exception):
    """The base class of every error that sessionkit raises."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else with_hint(message, hint))


class SpecError(SessionkitError, ValueError):
    """Raised on the driver when a spec, a policy or an argument can't work."""


class SchemaError(SpecError):
    """Raised on the driver when the columns of the input don't fit the spec."""


class NotPicklableError(SpecError):
    """Raised on the driver when a part of the spec can't be sent to the executors."""


class StateError(SessionkitError):
    """Raised when stored state doesn't fit the spec, such as its session rules."""


class StateCorruptedError(StateError):
    """Raised when stored bytes are damaged or were not written by sessionkit."""


class StateValueError(StateError, ValueError):
    """Raised when a value doesn't fit the type of its field."""


class BalanceError(SessionkitError):
    """Raised on the driver when the counts of a query don't account for every event."""


class SinkError(SessionkitError):
    """Raised when a sink can't take a micro-batch: the query stops and writes none of its rows."""


class UnsupportedError(SessionkitError):
    """Raised on the driver when this version of Spark or of a library lacks a feature."""


class TimerError(SessionkitError, ValueError):
    """Raised inside a user function that sets an impossible timer."""


class UserFunctionError(SessionkitError):
    """
    Raised when a user function raises, or returns a wrong value.

    Attributes:
        reason: The message without the traceback.
        traceback: The traceback of the function; None where it didn't raise.
    """

    def __init__(self, reason: str, traceback: str | None = None, hint: str | None = None) -> None:
        message = f"{reason}\n\n{traceback}" if traceback else reason
        super().__init__(message, hint)
        self.reason, self.traceback = reason, traceback


class DriverError(SessionkitError, ValueError):
    """Raised by the testing tools for an impossible step, such as a clock that goes back."""


class ExpectationError(SessionkitError, AssertionError):
    """Raised by the testing tools when an expectation isn't met."""


def with_hint(message: str, hint: str) -> str:
    """Join a message and a hint, in the format of every error."""
    return f"{message}\n\nHint: {hint}"


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
