"""The types of fields: what can be stored, how its values are converted, and what else is known."""

from sessionkit.state._changes import Change, Differences, changes_of, form_text
from sessionkit.state._codec import (
    codec_of,
    decode_column,
    encode_column,
    stored_numbers,
    unreadable,
)
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    RenamedFrom,
    TupleType,
    forms_of,
    inner_type,
)
from sessionkit.state._fields import field_type, fields_of
from sessionkit.state._scalars import (
    SCALARS,
    BoolType,
    BytesType,
    DecimalType,
    EnumType,
    FloatType,
    IntType,
    StrType,
)
from sessionkit.state._times import DatetimeType, DateType, TimedeltaType, TimeType
from sessionkit.state._types import FieldType, key_form, may_be_key, type_name

__all__ = [
    "SCALARS",
    "AttrsType",
    "BoolType",
    "BytesType",
    "Change",
    "DateType",
    "DatetimeType",
    "DecimalType",
    "DictType",
    "Differences",
    "EnumType",
    "Field",
    "FieldType",
    "FloatType",
    "IntType",
    "ListType",
    "OptionalType",
    "RenamedFrom",
    "StrType",
    "TimeType",
    "TimedeltaType",
    "TupleType",
    "changes_of",
    "codec_of",
    "decode_column",
    "encode_column",
    "field_type",
    "fields_of",
    "form_text",
    "forms_of",
    "inner_type",
    "key_form",
    "may_be_key",
    "stored_numbers",
    "type_name",
    "unreadable",
]
