"""What the calls of a micro-batch leave: result rows, failed events, failed outputs."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sessionkit._engine.keys.calls import KeyRun
from sessionkit._engine.rows.results import check_fit
from sessionkit._engine.rows.table import Rejected, key_schema, no_results, result_schema
from sessionkit.errors import StateValueError
from sessionkit.spec.functions import Failure
from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.state import codec_of

__all__ = ["failed_outputs", "result_rows"]


def result_rows(spec: AnyStatefulSpec, runs: Sequence[KeyRun]) -> pa.Table:
    """Return the result rows: the key, and the fields of the result."""
    results = [row for run in runs for _, rows in run.returned for row in rows]
    if not results:
        return no_results(spec)
    keys = [run.held.key for run in runs for _, rows in run.returned for _ in rows]
    columns = [*_key_arrays(spec, keys), *_encoded(spec, results, runs)]
    return pa.Table.from_arrays(columns, schema=result_schema(spec))


def failed_outputs(spec: AnyStatefulSpec, found: Sequence[tuple[Any, Failure]]) -> list[Rejected]:
    """Return the keys whose `on_timer` failed."""
    if not found:
        return []
    failures = dict(enumerate(failure for _, failure in found))
    arrays = _key_arrays(spec, [key for key, _ in found])
    rows = pa.Table.from_arrays(arrays, schema=pa.schema(key_schema(spec)))
    return Rejected.with_failures("failed_output", failures, rows)


def _key_arrays(spec: AnyStatefulSpec, keys: Sequence[Any]) -> list[pa.Array]:
    columns = zip(*keys, strict=True)
    return [
        pa.array(values if field.type.plain else map(field.type.dump, values), field.type.arrow)
        for field, values in zip(spec.key_fields, columns, strict=True)
    ]


def _encoded(spec: AnyStatefulSpec, results: list[Any], runs: Sequence[KeyRun]) -> list[pa.Array]:
    codec = codec_of(spec.result)
    try:
        return codec.encode(results)
    except StateValueError:
        place, _ = codec.first_misfit(results)
        sources = [(run, role) for run in runs for role, rows in run.returned for _ in rows]
        run, role = sources[place]
        function: Any = spec.function if role == "process" else spec.timer_function
        check_fit([results[place]], spec.result, role, function, run.held.key)
        raise
