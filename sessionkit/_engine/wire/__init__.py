"""
The columns that cross between Spark and Python.

Before the shuffle: `_time`, `_future`, `_unreadable`, `_key_*`, `_event_*`, `_passthrough_*`, which
no key column can be called. They reach Python as Arrow columns, with their nulls and nested types.
Across the shuffle: `_events` and `_rejected`, Arrow record batches as bytes (see `packing`), and
`_watermark`, by which Spark moves its watermark. A seed adds `_kept` and `_held`.
After the shuffle, on a stream: `_counts`, which also holds the statistics of a bucket, and `_rows`,
result and rejected rows as bytes. A last step in Python turns these into columns, so no conversion
by pandas can change a value. On a batch: `_counts` and the columns that users see.
"""
