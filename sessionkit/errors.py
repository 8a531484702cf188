"""
What can go wrong, by who can fix it.

Only text crosses from a Spark worker to the driver, so the message of every error is complete:
what was wrong, where, what was found, and a `Hint:` with the one thing to change.

    SessionkitError
      SpecError (ValueError)            a spec, policy or builder is wrong; raised on the driver
        FieldTypeError (TypeError)        a field of a class has no encoding
        SchemaError                       the input columns do not fit the spec
        NotPicklableError                 part of the spec cannot be sent to the executors
      StateError                        stored state and the code disagree
        StateCorruptedError               the stored bytes are not what was written
        StateMismatchError                the state was written under other rules
        StateValueError (ValueError)      a value does not fit its declared field
      TimerError (ValueError)           a function of the user set a timer that cannot be
      UserFunctionError                 a function of the user raised, or returned the wrong thing
      ScriptError (ValueError)          testing: the step asked for is impossible
      ExpectationError (AssertionError) testing: what was expected did not come
"""

__all__ = [
    "ExpectationError",
    "FieldTypeError",
    "NotPicklableError",
    "SchemaError",
    "ScriptError",
    "SessionkitError",
    "SpecError",
    "StateCorruptedError",
    "StateError",
    "StateMismatchError",
    "StateValueError",
    "TimerError",
    "UserFunctionError",
    "with_hint",
]


class SessionkitError(Exception):
    """The root of every error that sessionkit raises itself."""


class SpecError(SessionkitError, ValueError):
    """Raised on the driver when a spec, a policy or an argument cannot work."""


class FieldTypeError(SpecError, TypeError):
    """Raised on the driver when a class has fields that cannot be stored or read."""


class SchemaError(SpecError):
    """Raised on the driver when the columns of the input do not fit the spec."""


class NotPicklableError(SpecError):
    """Raised on the driver when a part of the spec cannot be sent to the executors."""


class StateError(SessionkitError):
    """The root of the errors about stored state."""


class StateCorruptedError(StateError):
    """Raised when stored bytes are damaged or were not written by sessionkit."""


class StateMismatchError(StateError):
    """Raised when state was stored under rules that the spec does not have any more."""


class StateValueError(StateError, ValueError):
    """Raised when a value does not fit the type that its field declares."""


class TimerError(SessionkitError, ValueError):
    """Raised inside a function of the user that sets a timer which cannot be."""


class UserFunctionError(SessionkitError):
    """Raised when a function of the user raised, or returned something it must not."""


class ScriptError(SessionkitError, ValueError):
    """Raised by the testing tools when a step is impossible, such as a clock that goes back."""


class ExpectationError(SessionkitError, AssertionError):
    """Raised by the testing tools when what was expected did not come."""


def with_hint(message: str, hint: str) -> str:
    """Return the message followed by a blank line and the hint: the shape of every text here."""
    return f"{message}\n\nHint: {hint}"
