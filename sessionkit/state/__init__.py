"""Stored state: attrs classes as Arrow columns, and the bytes of a bucket."""

from sessionkit.state._codec import ClassCodec, codec_of, decode_column, encode_column
from sessionkit.state._collections import (
    AttrsType,
    DictType,
    Field,
    ListType,
    OptionalType,
    TupleType,
    inner_type,
    type_text,
)
from sessionkit.state._fields import field_type, fields_of
from sessionkit.state._payload import (
    FORMAT_VERSION,
    check_format,
    check_identity,
    identity_differences,
    pack,
    peek_identity,
    unpack,
)
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
    "FORMAT_VERSION",
    "AttrsType",
    "BoolType",
    "BytesType",
    "ClassCodec",
    "DateType",
    "DatetimeType",
    "DecimalType",
    "DictType",
    "EnumType",
    "Field",
    "FieldType",
    "FloatType",
    "IntType",
    "ListType",
    "OptionalType",
    "StrType",
    "TimedeltaType",
    "TupleType",
    "check_format",
    "check_identity",
    "codec_of",
    "decode_column",
    "encode_column",
    "field_type",
    "fields_of",
    "identity_differences",
    "inner_type",
    "pack",
    "peek_identity",
    "type_text",
    "unpack",
]
