"""Push configs of subscriptions: endpoint, form, identity and signing keys of requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from griphub.pubsub.proto_json import Field, Kind, MessageType, Values
from griphub.pubsub.status import invalid

__all__ = ["ATTRIBUTES", "CLOUDEVENTS", "HANDSHAKE", "PUSH_CONFIG", "RATE", "SIGNING_KEYS", "check_push_config"]

ENDPOINT_MAX: Final = 2048
"""Greatest length of an endpoint, in characters."""

SIGNING_KEYS: Final = "x-hub-signing-keys"
"""Attribute with the names of the keys that sign requests (Standard Webhooks), separated by commas."""

CLOUDEVENTS: Final = "x-hub-cloudevents"
"""Attribute whose value ``binary`` makes requests CloudEvents in binary mode."""

HANDSHAKE: Final = "x-hub-webhook-origin"
"""Attribute with the name of the sender: the receiver must consent to it before messages are sent."""

RATE: Final = "x-hub-webhook-rate"
"""Attribute with the requests a minute that the receiver is asked to consent to."""

_FORMS: Final[Mapping[str, re.Pattern[str]]] = {
    "x-goog-version": re.compile("v1"),
    SIGNING_KEYS: re.compile(r"[A-Za-z0-9_-]{1,64}(?:,[A-Za-z0-9_-]{1,64}){0,3}"),
    CLOUDEVENTS: re.compile("binary"),
    HANDSHAKE: re.compile(r"[A-Za-z0-9.-]{1,253}"),
    RATE: re.compile(r"[1-9][0-9]{0,6}"),
}

ATTRIBUTES: Final = tuple(_FORMS)
"""Attributes of a push config."""

_MAIL: Final = re.compile(r"[^\s@]{1,64}@[^\s@]{1,253}")

OIDC_TOKEN: Final = MessageType(
    "OidcToken", (Field("serviceAccountEmail", Kind.STRING), Field("audience", Kind.STRING))
)
PUBSUB_WRAPPER: Final = MessageType("PubsubWrapper", ())
NO_WRAPPER: Final = MessageType("NoWrapper", (Field("writeMetadata", Kind.BOOL),))
PUSH_CONFIG: Final = MessageType(
    "PushConfig",
    (
        Field("pushEndpoint", Kind.STRING),
        Field("attributes", Kind.STRINGS),
        Field("oidcToken", Kind.MESSAGE, OIDC_TOKEN),
        Field("pubsubWrapper", Kind.MESSAGE, PUBSUB_WRAPPER, oneof="wrapper"),
        Field("noWrapper", Kind.MESSAGE, NO_WRAPPER, oneof="wrapper"),
    ),
)
"""Push config."""


def check_push_config(values: Mapping[str, Any], *, plain: bool) -> Values:
    """Return the fields of a push config, checked; of one without endpoint, which means pull, there are none.

    Args:
        values: of its fields.
        plain: whether http is allowed.

    Raises:
        ApiError: INVALID_ARGUMENT, one is not allowed.
    """
    endpoint = values.get("pushEndpoint", "")
    if not endpoint:
        return {}
    _check_endpoint(endpoint, plain=plain)
    found: Values = {"pushEndpoint": endpoint}
    if attributes := values.get("attributes"):
        _check_attributes(attributes)
        found["attributes"] = dict(attributes)
    if (token := values.get("oidcToken")) is not None:
        if not _MAIL.fullmatch(token.get("serviceAccountEmail", "")):
            raise invalid(
                "You have passed an invalid argument to the service"
                " (argument=PushConfig::oidc_token::service_account_email)."
            )
        if len(token.get("audience", "")) > ENDPOINT_MAX:
            raise invalid(
                "You have passed an invalid argument to the service (argument=PushConfig::oidc_token::audience)."
            )
        found["oidcToken"] = dict(token)
    for wrapper in ("pubsubWrapper", "noWrapper"):
        if wrapper in values:
            found[wrapper] = dict(values[wrapper])
    if found.get("attributes", {}).get(CLOUDEVENTS) and "noWrapper" in found:
        raise invalid(f"A push config has either no_wrapper or the attribute {CLOUDEVENTS}.")
    return found


def _check_endpoint(endpoint: str, *, plain: bool) -> None:
    problem = ""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, problem = None, None, "it is no URL"
    else:
        if len(endpoint) > ENDPOINT_MAX:
            problem = f"it is longer than {ENDPOINT_MAX} characters"
        elif not endpoint.isascii() or any(character <= " " or character == "\x7f" for character in endpoint):
            problem = "it has a character that must be percent-encoded"
        elif parts.scheme not in ("https", "http") or not host:
            problem = "it is no https URL"
        elif parts.scheme == "http" and not plain:
            problem = "http is not allowed here: use https, or set push_http"
        elif parts.username is not None or parts.password is not None:
            problem = "it has user information"
        elif parts.fragment or endpoint.endswith("#"):
            problem = "it has a fragment"
        elif port == 0:
            problem = "port 0 is none"
    if problem:
        raise invalid(f"Invalid push endpoint given (endpoint={endpoint[:400]}). The endpoint is refused: {problem}.")


def _check_attributes(attributes: Mapping[str, str]) -> None:
    for name, value in attributes.items():
        form = _FORMS.get(name)
        if form is None:
            raise invalid(
                f"Invalid push config attribute given (name={name[:80]}): expected one of {', '.join(ATTRIBUTES)}."
            )
        if not form.fullmatch(value):
            raise invalid(f"Invalid push config attribute given (name={name}, value={value[:80]}).")
    if RATE in attributes and HANDSHAKE not in attributes:
        raise invalid(f"The push config attribute {RATE} needs {HANDSHAKE}.")
