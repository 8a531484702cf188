"""
Specs: the definition of a session, or of the state of a key. A spec that exists is valid.

Import specs and their options from `sessionkit`. The names here are for a `StatefulSpec` whose
`process` takes a whole bucket, or whose timers run in processing time.
"""

from sessionkit.spec.stateful import BucketResult, by_bucket, by_processing_time
from sessionkit.spec.views import BatchTimes, Timer

__all__ = ["BatchTimes", "BucketResult", "Timer", "by_bucket", "by_processing_time"]
