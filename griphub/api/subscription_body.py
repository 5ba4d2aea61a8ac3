"""Subscriptions as JSON: the parameters and keys in requests, and a subscription in answers. Sans-I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from griphub.api.json_document import check_members, load_object, type_name
from griphub.api.problem import bad_request, limited, too_large
from griphub.api.query import TOKEN_PARAMETER, nearest
from griphub.api.subscription_feed import DeliveryStatus
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import CallbackUrl, parse_callback
from griphub.sender.signature import SigningKey
from griphub.store.cursor import parse_cursor
from griphub.store.subscription import Keys, Subscription
from griphub.topics.event_text import Epochs
from griphub.topics.times import parse_time, time_text

__all__ = [
    "BODY_MAX",
    "ID_MAX",
    "KEY_OVERLAP",
    "LIST_DEFAULT",
    "LIST_MAX",
    "LIST_PARAMETERS",
    "NUMBER_MAX",
    "OWNER_PARAMETERS",
    "SIGNING_KEYS_MAX",
    "SubscriptionBody",
    "SubscriptionListQuery",
    "check_subscription_id",
    "owner_query",
    "rotated_keys",
    "signing_key_of_body",
    "subscription_body",
    "subscription_document",
    "subscription_list_query",
]

BODY_MAX: Final = 20_000
"""Greatest size of a request about a subscription, in bytes: the longest values fit with all characters escaped."""

ID_MAX: Final = 255
"""Greatest length of a subscription's id, in bytes of UTF-8."""

KEY_OVERLAP: Final = 86_400.0
"""Seconds for which an earlier key signs too after a rotation: the receiver changes its key in this time."""

SIGNING_KEYS_MAX: Final = 3
"""Keys of one subscription that sign together: each signs the whole body of each request."""

LIST_MAX: Final = 1000
"""Greatest number of subscriptions in one list."""

LIST_DEFAULT: Final = 100
"""Subscriptions in a list without ``limit``."""

NUMBER_MAX: Final = 10**18 - 1
"""Greatest number of a subscription."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""

LIST_PARAMETERS: Final = ("after", "limit", TOKEN_PARAMETER)
"""Parameters of a list."""

OWNER_PARAMETERS: Final = ("owner", TOKEN_PARAMETER)
"""Parameters of a request about one subscription, which may be that of another owner."""

_MEMBERS: Final = ("subscription_id", "callback", "after", "since", "signing_key")
_KEY_MEMBERS: Final = ("signing_key",)
_INTEGER: Final = re.compile(r"[0-9]{1,18}")
# The last two are the ends of a line for many programs.
_CONTROL: Final = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class SubscriptionBody:
    """Parameters of ``POST /topics/T/subscriptions``; one of ``after`` and ``since`` is not None.

    Attributes:
        id: chosen by the subscriber.
        callback: URL that events are sent to.
        after: cursor behind which the subscription begins; None if it is not named.
        since: time behind which it begins, in microseconds since 1970; None if it is not named.
        key: signing key; None: the hub makes one.
    """

    id: str
    callback: CallbackUrl
    after: str | None
    since: int | None
    key: SigningKey | None

    @property
    def start(self) -> str:
        """Text of the place that was asked for, equal for equal places."""
        return f"after={self.after}" if self.since is None else f"since={time_text(self.since)}"

    def difference(self, earlier: Subscription) -> str:
        """Return the text of the first parameter that an earlier subscription with this id has another value of.

        Args:
            earlier: the subscription.

        Returns:
            The parameter with the earlier value, which is not shown for a key; empty if all are equal.
        """
        if earlier.callback != str(self.callback):
            return f"callback {earlier.callback!r}"
        if earlier.start != self.start:
            return f"place, {earlier.start!r}"
        if self.key is not None and earlier.keys[0][0] != str(self.key):
            return "signing_key"
        return ""


@dataclass(frozen=True, slots=True)
class SubscriptionListQuery:
    """Parameters of ``GET /topics/T/subscriptions``.

    Attributes:
        after: number behind which the list begins.
        limit: greatest number of subscriptions.
    """

    after: int
    limit: int


def check_subscription_id(id: str) -> str:
    """Check the id of a subscription.

    Args:
        id: from a body, or from a path and percent-decoded once.

    Returns:
        The id.

    Raises:
        Problem: 400, it is empty, too long, or has a form that a path could not carry.
    """
    size = len(id.encode())
    if not 1 <= size <= ID_MAX:
        raise bad_request(f"subscription_id {id[:SHOWN]!r} has {size} bytes: expected 1 to {ID_MAX}")
    if id in (".", ".."):
        raise bad_request(f"subscription_id {id!r} is a step of a path: choose another one")
    control = _CONTROL.search(id)
    if control is not None:
        raise bad_request(
            f"subscription_id {id[:SHOWN]!r} has the control character U+{ord(control[0]):04X}: remove it"
        )
    return id


def subscription_body(body: bytes, policy: AddressPolicy) -> SubscriptionBody:
    """Return the parameters of a request that makes a subscription.

    Args:
        body: JSON object.
        policy: judges a callback whose host is an IP address.

    Raises:
        Problem: 400, it is no such object, or the id is not allowed; 413, it is too large.
        BadCallback: the callback is refused.
        BadCursor: ``after`` is no cursor.
        BadTime: ``since`` is no time.
        BadSigningKey: the signing key has another form.
    """
    members = _texts(body, _MEMBERS)
    for name in ("subscription_id", "callback"):
        if name not in members:
            raise bad_request(f"the body has no {name}: expected {{'subscription_id', 'callback', 'after' or 'since'}}")
    after, since, key = members.get("after"), members.get("since"), members.get("signing_key")
    if after is None and since is None:
        raise bad_request("the body has neither after nor since: give the cursor or the time to begin behind")
    if after is not None and since is not None:
        raise bad_request("after and since contradict each other: give one of them")
    return SubscriptionBody(
        id=check_subscription_id(members["subscription_id"]),
        callback=parse_callback(members["callback"], policy),
        after=None if after is None else str(parse_cursor(after)),
        since=None if since is None else parse_time(since, "since"),
        key=None if key is None else SigningKey.parse(key),
    )


def signing_key_of_body(body: bytes) -> SigningKey | None:
    """Return the signing key that a rotation names; None: the hub makes one.

    Args:
        body: JSON object, or empty.

    Raises:
        Problem: 400, it is no such object; 413, it is too large.
        BadSigningKey: the signing key has another form.
    """
    key = _texts(body, _KEY_MEMBERS).get("signing_key") if body else None
    return None if key is None else SigningKey.parse(key)


def rotated_keys(keys: Keys, key: str, now: float) -> Keys:
    """Return keys with another one as the newest.

    Args:
        keys: the newest first.
        key: the other; if it is the newest already, that stays so.
        now: wall time in seconds since 1970.

    Returns:
        The keys: the newest of before ends after the overlap, and those that have ended are left out.

    Raises:
        Problem: 429, there would be too many that sign.
    """
    earlier = tuple(
        (text, now + KEY_OVERLAP if end is None else end)
        for text, end in keys
        if text != key and (end is None or end > now)
    )
    if len(earlier) >= SIGNING_KEYS_MAX:
        wait = math.ceil(min(end for _, end in earlier) - now)
        text = f"{len(earlier)} keys of the subscription sign: repeat the request in {wait} s, when one has ended"
        raise limited(text, "signing_keys_per_subscription_max", SIGNING_KEYS_MAX, wait)
    return ((key, None), *earlier)


def _texts(body: bytes, known: Sequence[str]) -> dict[str, str]:
    """Return the members of an object, all of them strings."""
    if len(body) > BODY_MAX:
        raise too_large(f"the body has {len(body)} bytes: at most {BODY_MAX} are allowed", "subscription", BODY_MAX)
    document = load_object(body, "the body")
    check_members(document, known, "the body")
    for name, value in document.items():
        if not isinstance(value, str):
            raise bad_request(f"{name} is {type_name(value)}: expected a string")
    return document


# --- queries


def subscription_list_query(query: Mapping[str, Sequence[str]]) -> SubscriptionListQuery:
    """Return the parameters of a request for a list of subscriptions.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, one is unknown, repeated or beyond its bound.
    """
    values = _single(query, LIST_PARAMETERS)
    return SubscriptionListQuery(
        _integer(values, "after", 0, 0, NUMBER_MAX), _integer(values, "limit", LIST_DEFAULT, 1, LIST_MAX)
    )


def owner_query(query: Mapping[str, Sequence[str]]) -> str | None:
    """Return the key of the owner that a request names; None for the caller.

    Args:
        query: values of each parameter.

    Raises:
        Problem: 400, one is unknown or repeated.
    """
    return _single(query, OWNER_PARAMETERS).get("owner")


def _single(query: Mapping[str, Sequence[str]], known: Sequence[str]) -> dict[str, str]:
    """Return the only value of each parameter."""
    for name, texts in query.items():
        if name not in known:
            expected = ", ".join(known)
            raise bad_request(f"unknown parameter {name[:SHOWN]!r}: {nearest(name, known)}expected one of {expected}")
        if len(texts) != 1:
            raise bad_request(f"the parameter {name} is given {len(texts)} times: give it once")
    return {name: texts[0] for name, texts in query.items()}


def _integer(values: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    number = int(text) if _INTEGER.fullmatch(text) else -1
    if not least <= number <= most:
        raise bad_request(f"{name}={text[:SHOWN]!r} is not allowed: expected an integer from {least} to {most}")
    return number


# --- answers


def subscription_document(
    subscription: Subscription, topic: str, status: DeliveryStatus, newest: int, epochs: Epochs
) -> dict[str, Any]:
    """Return a subscription as the members of a JSON object, without its keys.

    Args:
        subscription: the subscription.
        topic: name of its topic.
        status: state of its delivery.
        newest: id of the topic's last event; 0 for none.
        epochs: those of the store.
    """
    return {
        "subscription_id": subscription.id,
        "topic": topic,
        "callback": subscription.callback,
        "state": status.state,
        **({"reason": status.rest} if status.rest else {}),
        "position": epochs.cursor(status.position),
        "newest": epochs.cursor(newest),
        "lag": round(status.lag, 3),
        **({"failure": status.failure} if status.failure else {}),
        "failures": dict(status.failures),
        "delivered": status.delivered,
        "in_flight": status.in_flight,
        "created": time_text(subscription.created),
        "rights_end": time_text(subscription.rights_end),
    }
