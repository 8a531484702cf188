"""
What crosses between Spark and Python.

In    `_time`, `_future`, `_unreadable`, `_key_*`, `_event_*`, `_passthrough_*`: names that no key
      column can have. They reach Python as Arrow columns, with nulls and nested types as they are.
Over  the shuffle, `_events` and `_rejected`: Arrow record batches as bytes (`packing` has both
      ends), and `_watermark`, by which Spark moves its watermark. A seed adds `_kept` and `_held`.
Out   of a stream, `_counts`, after which a bucket says what it holds, and `_rows`: result and
      rejected rows as bytes too, which a last step in Python turns back into columns. So no
      conversion of pandas can change a value. Out of a batch, the columns as users see them, and
      `_counts`.
"""
