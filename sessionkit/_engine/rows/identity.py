"""Under which rules and with which types a group is stored, as far as every spec has them."""

from collections.abc import Sequence
from typing import Any

from sessionkit.spec.shared import AnySpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field, forms_of


def shared_identity(spec: AnySpec, state: Sequence[Field]) -> dict[str, Any]:
    """
    Return the entries of the identity that sessions and keys share.

    Args:
        spec: The spec.
        state: The fields of the state as they are stored.
    """
    entries: dict[str, Any] = {
        "layout": spec.storage.layout,
        "keys": [[field.name, field.type.form] for field in spec.key_fields],
        "bucket_count": spec.storage.buckets,
        "watermark_delay_ms": spec.delay_ms,
        "order": spec.order,
        "state": forms_of(state),
        "state_version": spec.storage.version,
    }
    if spec.order == "event_time":
        entries["event"] = forms_of(codec_of(spec.event).type.fields)
        entries["passthrough"] = forms_of(spec.passthrough_fields)
    return entries
