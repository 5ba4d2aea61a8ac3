"""Methods of the API by HTTP method and path, and the parameters of their queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

from griphub.pubsub.names import Collection, ResourceName, check_project, check_resource
from griphub.pubsub.status import ApiError, invalid, not_served

__all__ = ["Call", "MethodName", "Paging", "paging_of", "parse_call", "wants_numbers"]

MethodName = Literal[
    "CreateTopic",
    "UpdateTopic",
    "GetTopic",
    "DeleteTopic",
    "ListTopics",
    "ListTopicSubscriptions",
    "Publish",
    "CreateSubscription",
    "UpdateSubscription",
    "GetSubscription",
    "DeleteSubscription",
    "ListSubscriptions",
    "Pull",
    "Acknowledge",
    "ModifyAckDeadline",
    "ModifyPushConfig",
    "Seek",
    "DetachSubscription",
]
"""Methods that are served."""

PAGE_DEFAULT: Final = 100
"""Number of resources of a page, if the request names none."""

PAGE_MAX: Final = 1000
"""Greatest number of resources of a page."""

VERSION: Final = b"v1"
"""First segment of the path."""

_RESOURCES: Final[Mapping[tuple[str, bytes, str], MethodName]] = {
    ("topics", b"PUT", ""): "CreateTopic",
    ("topics", b"PATCH", ""): "UpdateTopic",
    ("topics", b"GET", ""): "GetTopic",
    ("topics", b"DELETE", ""): "DeleteTopic",
    ("topics", b"POST", "publish"): "Publish",
    ("subscriptions", b"PUT", ""): "CreateSubscription",
    ("subscriptions", b"PATCH", ""): "UpdateSubscription",
    ("subscriptions", b"GET", ""): "GetSubscription",
    ("subscriptions", b"DELETE", ""): "DeleteSubscription",
    ("subscriptions", b"POST", "pull"): "Pull",
    ("subscriptions", b"POST", "acknowledge"): "Acknowledge",
    ("subscriptions", b"POST", "modifyAckDeadline"): "ModifyAckDeadline",
    ("subscriptions", b"POST", "modifyPushConfig"): "ModifyPushConfig",
    ("subscriptions", b"POST", "seek"): "Seek",
    ("subscriptions", b"POST", "detach"): "DetachSubscription",
}
_LISTS: Final[Mapping[str, MethodName]] = {"topics": "ListTopics", "subscriptions": "ListSubscriptions"}
_ACCESS: Final = frozenset(("getIamPolicy", "setIamPolicy", "testIamPermissions"))
_NO_SNAPSHOTS: Final = "the hub has no snapshots of subscriptions: seek to a time"
_NO_ACCESS: Final = "rights are in tokens, not in policies of resources"
_NO_SCHEMAS: Final = "the hub has no schemas"

_PARAMETERS: Final = frozenset(
    (
        *("$alt", "alt", "fields", "key", "access_token", "oauth_token", "prettyPrint", "quotaUser", "callback"),
        *("upload_protocol", "uploadType", "$.xgafv", "pageSize", "page_size", "pageToken", "page_token"),
        *("updateMask", "update_mask"),
    )
)
"""Parameters of a query that may be there; those that are not looked at have no effect."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call of a method.

    Attributes:
        method: its name.
        project: project that it is about.
        name: resource that it is about; None for a list of those of the project.
    """

    method: MethodName
    project: str
    name: ResourceName | None


@dataclass(frozen=True, slots=True)
class Paging:
    """Part of a list.

    Attributes:
        size: greatest number of resources.
        token: text of the page before; empty for the first page.
    """

    size: int
    token: str


def _not_found(path: bytes) -> ApiError:
    shown = path[:200].decode("utf-8", "replace")
    return ApiError("NOT_FOUND", f"There is no such method: {shown}.")


def parse_call(method: bytes, path: bytes) -> Call:
    """Return the call of a request.

    Args:
        method: of HTTP.
        path: as received, without its query; segments are percent-decoded here, once, behind the division into parts.

    Raises:
        ApiError: NOT_FOUND, there is no such method; INVALID_ARGUMENT, a name is none; UNIMPLEMENTED, it is a method of
            the API that is not served.
    """
    parts = path.lstrip(b"/").split(b"/")
    if parts[0] != VERSION or len(parts) < 4 or parts[1] != b"projects":
        raise _not_found(path)
    last, _, verb_bytes = parts[-1].partition(b":")
    parts[-1] = last
    verb = _decoded(verb_bytes)
    project, collection, *rest = [_decoded(part) for part in parts[2:]]
    if collection == "schemas":
        raise not_served(_NO_SCHEMAS)
    if collection == "snapshots":
        raise not_served(_NO_ACCESS if verb in _ACCESS else _NO_SNAPSHOTS)
    if collection not in ("topics", "subscriptions"):
        raise _not_found(path)
    if not rest:
        if method != b"GET" or verb:
            raise _not_found(path)
        return Call(_LISTS[collection], check_project(project), None)
    if verb in _ACCESS:
        raise not_served(_NO_ACCESS)
    name = check_resource(project, _collection(collection), rest[0])
    found = _RESOURCES.get((collection, method, verb)) if len(rest) == 1 else _list_of(name, method, verb, rest[1:])
    if found is None:
        raise _not_found(path)
    return Call(found, project, name)


def _list_of(name: ResourceName, method: bytes, verb: str, rest: list[str]) -> MethodName | None:
    """Return the method of a list below a resource."""
    if name.collection != "topics" or method != b"GET" or verb:
        return None
    if rest == ["snapshots"]:
        raise not_served(_NO_SNAPSHOTS)
    return "ListTopicSubscriptions" if rest == ["subscriptions"] else None


def _collection(text: str) -> Collection:
    return "topics" if text == "topics" else "subscriptions"


def _decoded(part: bytes) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise invalid("The path is no UTF-8 after percent-decoding.") from None


def _one(query: Mapping[str, list[str]], *names: str) -> str:
    """Return the value of a parameter in one of its spellings; empty for none."""
    values = [value for name in names for value in query.get(name, ())]
    if len(values) > 1:
        raise invalid(f"The parameter {names[0]} is given {len(values)} times: give it once.")
    return values[0] if values else ""


def wants_numbers(query: Mapping[str, list[str]]) -> bool:
    """Return whether enumerations are to be written as numbers.

    Args:
        query: values of each parameter.

    Raises:
        ApiError: INVALID_ARGUMENT, a parameter is unknown, or another form than JSON is asked for.
    """
    for name in query:
        if name not in _PARAMETERS:
            raise invalid(f'Invalid request: Unknown name "{name[:80]}": Cannot bind query parameter.')
    form, _, options = _one(query, "$alt", "alt").partition(";")
    if form not in ("", "json"):
        raise invalid(f'Invalid value for the parameter alt: "{form[:80]}". Only json is served.')
    return options == "enum-encoding=int"


def paging_of(query: Mapping[str, list[str]]) -> Paging:
    """Return the part of a list that a request asks for.

    Args:
        query: values of each parameter.

    Raises:
        ApiError: INVALID_ARGUMENT, the size is out of bounds.
    """
    text = _one(query, "pageSize", "page_size")
    digits = text.removeprefix("-")
    if text and not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise invalid(f"Invalid value at 'page_size' (TYPE_INT32), \"{text[:80]}\"")
    size = int(text or "0")
    if not 0 <= size <= PAGE_MAX:
        raise invalid(
            f"The value for page_size is out of bounds. You passed {size} in the request,"
            f" but the value must be between 0 and {PAGE_MAX}."
        )
    return Paging(size or PAGE_DEFAULT, _one(query, "pageToken", "page_token"))
