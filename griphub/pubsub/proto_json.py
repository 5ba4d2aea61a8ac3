"""JSON of messages as proto3 maps it: fields in both spellings, and strict types.

A message is read into a dict by the camelCase names of its fields; those that are absent or null are not in it. Values:
durations and times in nanoseconds, bytes as bytes, enumerations by name, messages and maps as dicts, lists as lists.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from griphub.pubsub.durations import duration_text, parse_duration, parse_time, time_text
from griphub.pubsub.status import ApiError, bad_fields, not_served

__all__ = [
    "Field",
    "Kind",
    "MessageType",
    "camel_case",
    "decode_bytes",
    "encode_bytes",
    "read_message",
    "snake_case",
    "write_message",
]

Values = dict[str, Any]
"""Values of a message's fields."""


class Kind(Enum):
    """Types of fields."""

    STRING = auto()
    BOOL = auto()
    INT32 = auto()
    BYTES = auto()
    DURATION = auto()
    TIMESTAMP = auto()
    ENUM = auto()
    MESSAGE = auto()
    STRINGS = auto()
    """Map from string to string."""
    OUTPUT = auto()
    """Field that only the service sets: any value is ignored."""


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a message.

    Attributes:
        name: in camelCase.
        kind: its type.
        message: type of the message, of a field that is one.
        names: of an enumeration, by their numbers.
        repeated: whether it is a list.
        oneof: name of the group of which one field may be set; empty for none.
        reason: why it is not served; empty if it is. Unless it is empty or false, it is refused.
    """

    name: str
    kind: Kind
    message: MessageType | None = None
    names: Sequence[str] = ()
    repeated: bool = False
    oneof: str = ""
    reason: str = ""


@dataclass(frozen=True)
class MessageType:
    """Type of a message.

    Attributes:
        name: of the type.
        fields: in the order in which they are written.
    """

    name: str
    fields: tuple[Field, ...]

    def field(self, name: str) -> Field | None:
        """Return the field with a ``name`` in either spelling; None if there is none."""
        for each in self.fields:
            if name in (each.name, snake_case(each.name)):
                return each
        return None


_UPPER: Final = re.compile(r"[A-Z]")
_DIGITS: Final = re.compile(r"-?[0-9]{1,18}(?:\.0{1,9})?")
_SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

_TYPES: Final[Mapping[Kind, str]] = {
    Kind.STRING: "TYPE_STRING",
    Kind.BOOL: "TYPE_BOOL",
    Kind.INT32: "TYPE_INT32",
    Kind.BYTES: "TYPE_BYTES",
    Kind.DURATION: "type.googleapis.com/google.protobuf.Duration",
    Kind.TIMESTAMP: "type.googleapis.com/google.protobuf.Timestamp",
    Kind.ENUM: "TYPE_ENUM",
    Kind.MESSAGE: "TYPE_MESSAGE",
    Kind.STRINGS: "TYPE_MAP",
}


def snake_case(name: str) -> str:
    """Return a ``name`` in camelCase in the spelling of the protocol, such as ``ack_ids``."""
    return _UPPER.sub(lambda found: f"_{found[0].lower()}", name)


def camel_case(name: str) -> str:
    """Return a ``name`` in snake_case in the spelling of JSON, such as ``ackIds``."""
    head, *rest = name.split("_")
    return head + "".join([part[:1].upper() + part[1:] for part in rest])


# --- reading


def read_message(type: MessageType, value: object, path: str = "") -> Values:
    """Return the fields of a message.

    Args:
        type: of the message.
        value: JSON value.
        path: of the message within the body, in the spelling of the protocol; empty for the body itself.

    Returns:
        Values of the fields that are set.

    Raises:
        ApiError: INVALID_ARGUMENT, a field is unknown, is there twice, or has a wrong value; UNIMPLEMENTED, one is not
            served.
    """
    if not isinstance(value, dict):
        raise _wrong(path or "body", type.name, value)
    unknown = []
    found: Values = {}
    groups: dict[str, str] = {}
    for name, content in value.items():
        field = type.field(name)
        if field is None:
            place = f" at '{path}'" if path else ""
            unknown.append(f'Unknown name "{name[:_SHOWN]}"{place}: Cannot find field.')
            continue
        if content is None:
            continue
        where = f"{path}.{snake_case(field.name)}" if path else snake_case(field.name)
        if field.name in found:
            raise bad_fields([f"Invalid JSON payload received. Field '{where}' is there in two spellings."])
        if field.kind is Kind.OUTPUT:
            continue
        if field.reason:
            if content not in ({}, [], "", False, 0):
                raise not_served(f"{where}: {field.reason}")
            continue
        if field.oneof:
            if field.oneof in groups:
                raise bad_fields(
                    [f"Invalid value (oneof), oneof field '{field.oneof}' is already set. Cannot set '{field.name}'"]
                )
            groups[field.oneof] = field.name
        found[field.name] = _read_field(field, content, where)
    if unknown:
        raise bad_fields([f"Invalid JSON payload received. {each}" for each in unknown[:20]])
    return found


def _read_field(field: Field, value: object, path: str) -> Any:
    if not field.repeated:
        return _read_value(field, value, path)
    if not isinstance(value, list):
        raise _wrong(path, _TYPES[field.kind], value)
    return [_read_value(field, each, f"{path}[{number}]") for number, each in enumerate(value)]


def _read_value(field: Field, value: object, path: str) -> Any:
    kind = field.kind
    found: Any = None
    match kind:
        case Kind.MESSAGE:
            assert field.message is not None
            return read_message(field.message, value, path)
        case Kind.STRING:
            found = value if isinstance(value, str) else None
        case Kind.BOOL:
            found = value if isinstance(value, bool) else None
        case Kind.INT32:
            found = _integer(value)
        case Kind.BYTES:
            found = decode_bytes(value) if isinstance(value, str) else None
        case Kind.DURATION:
            found = parse_duration(value) if isinstance(value, str) else None
        case Kind.TIMESTAMP:
            found = parse_time(value) if isinstance(value, str) else None
        case Kind.ENUM:
            found = _name_of(field.names, value)
        case Kind.STRINGS:
            found = _strings(value)
    if found is None:
        raise _wrong(path, _TYPES[kind], value)
    return found


def _integer(value: object) -> int | None:
    """Return an integer of 32 bits from a number or a string of digits; None for another value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value):
            return None
        value = int(value.partition(".")[0])
    if isinstance(value, float):
        if not value.is_integer() or abs(value) > 2**31:
            return None
        value = int(value)
    return value if isinstance(value, int) and -(2**31) <= value < 2**31 else None


def _name_of(names: Sequence[str], value: object) -> str | None:
    if isinstance(value, str):
        return value if value in names else None
    number = _integer(value)
    return names[number] if number is not None and 0 <= number < len(names) else None


def _strings(value: object) -> dict[str, str] | None:
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return value
    return None


def decode_bytes(text: str) -> bytes | None:
    """Return the bytes of a text in Base64, standard or URL-safe, padded or not; None if it is none.

    Args:
        text: the text.
    """
    plain = text.rstrip("=")
    padding = len(text) - len(plain)
    if padding > 2 or len(plain) % 4 == 1 or (padding and (len(plain) + padding) % 4):
        return None
    if "-" in plain or "_" in plain:
        plain = plain.replace("-", "+").replace("_", "/")
    try:
        return binascii.a2b_base64(plain + "=" * (-len(plain) % 4), strict_mode=True)
    except (binascii.Error, ValueError):
        return None


def _wrong(path: str, type: str, value: object) -> ApiError:
    shown = f'"{value[:_SHOWN]}"' if isinstance(value, str) else str(value)[:_SHOWN]
    return bad_fields([f"Invalid value at '{path}' ({type}), {shown}"])


# --- writing


def write_message(type: MessageType, values: Mapping[str, Any], *, numbers: bool = False) -> dict[str, Any]:
    """Return the JSON value of a message.

    Args:
        type: of the message.
        values: of its fields; those that are not there are left out.
        numbers: whether enumerations are written as numbers.
    """
    found: dict[str, Any] = {}
    for field in type.fields:
        value = values.get(field.name)
        if value is None:
            continue
        if field.repeated:
            found[field.name] = [_write_value(field, each, numbers=numbers) for each in value]
        else:
            found[field.name] = _write_value(field, value, numbers=numbers)
    return found


def _write_value(field: Field, value: Any, *, numbers: bool) -> Any:
    match field.kind:
        case Kind.MESSAGE:
            assert field.message is not None
            return write_message(field.message, value, numbers=numbers)
        case Kind.BYTES:
            return encode_bytes(value)
        case Kind.DURATION:
            return duration_text(value)
        case Kind.TIMESTAMP:
            return time_text(value)
        case Kind.ENUM:
            return field.names.index(value) if numbers else value
        case _:
            return value


def encode_bytes(value: bytes) -> str:
    """Return the Base64 of bytes, standard and padded; ``value``: the bytes."""
    return binascii.b2a_base64(value, newline=False).decode()
