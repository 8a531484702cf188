"""
From Kafka to Kafka: how long after an event the row that has it is there.

`python -m benchmarks.latency` runs each entrant at each rate, with a broker of its own.
Both times are the broker's: when it appended the event, and when it appended the row.
"""
