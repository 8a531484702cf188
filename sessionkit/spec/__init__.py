"""
Specs: what a user writes of a session, or of the state of a key. Valid once they exist.

Import specs and their options from `sessionkit`. The names here are for a `StatefulSpec` whose
`process` takes a whole bucket, or whose order is that of processing time.
"""

from sessionkit.spec.stateful import BucketResult, by_bucket, by_processing_time
from sessionkit.spec.views import BatchTimes, Timer

__all__ = ["BatchTimes", "BucketResult", "Timer", "by_bucket", "by_processing_time"]
