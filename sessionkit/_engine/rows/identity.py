"""What must not change while a checkpoint lives, as far as every spec has it."""

from typing import Any

from sessionkit._spec import AnySpec
from sessionkit.errors import StateMismatchError, with_hint
from sessionkit.state import codec_of, type_text

__all__ = ["check_bucket_count", "shared_identity"]


def shared_identity(spec: AnySpec) -> dict[str, Any]:
    """Return the entries of the identity that sessions and keys share."""
    entries: dict[str, Any] = {
        "layout": spec.layout,
        "keys": [[field.name, type_text(field.type)] for field in spec.key_fields],
        "bucket_count": spec.bucket_count,
        "watermark_delay_ms": spec.delay_ms,
        "order": spec.order,
        "state": {field.name: type_text(field.type) for field in codec_of(spec.state).type.fields},
        "state_version": spec.state_version,
    }
    if spec.order == "event_time":
        fields = (*codec_of(spec.event).type.fields, *spec.passthrough_fields)
        entries["buffered"] = {field.name: type_text(field.type) for field in fields}
    return entries


def check_bucket_count(spec: AnySpec, stored: int) -> None:
    """
    Check the number of buckets under which a row was stored.

    Raises:
        StateMismatchError: The spec has another.
    """
    if stored != spec.bucket_count:
        found = f"`bucket_count` is {spec.bucket_count} in the spec, {stored} in the checkpoint"
        raise StateMismatchError(with_hint(found, f"write bucket_count={stored}"))
