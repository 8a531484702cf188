"""The types of fields: what can be stored, how its values are converted, and what else is known."""

from sessionkit.state._changes import Change, Differences, changes_of
from sessionkit.state._codec import ClassCodec, codec_of, decode_column, encode_column
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    RenamedFrom,
    TupleType,
    inner_type,
)
from sessionkit.state._fields import field_type, fields_of
from sessionkit.state._forms import Form, form_of, form_text, forms_of
from sessionkit.state._scalars import (
    BoolType,
    BytesType,
    DatetimeType,
    DateType,
    DecimalType,
    EnumType,
    FloatType,
    IntType,
    StrType,
    TimedeltaType,
)
from sessionkit.state._types import FieldType

__all__ = [
    "AttrsType",
    "BoolType",
    "BytesType",
    "Change",
    "ClassCodec",
    "DateType",
    "DatetimeType",
    "DecimalType",
    "DictType",
    "Differences",
    "EnumType",
    "Field",
    "FieldType",
    "FloatType",
    "Form",
    "IntType",
    "ListType",
    "OptionalType",
    "RenamedFrom",
    "StrType",
    "TimedeltaType",
    "TupleType",
    "changes_of",
    "codec_of",
    "decode_column",
    "encode_column",
    "field_type",
    "fields_of",
    "form_of",
    "form_text",
    "forms_of",
    "inner_type",
]
