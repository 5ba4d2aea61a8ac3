"""Requests of the push API as raw JSON, and their answers: each case is named by the rule of the service that it shows.

In paths and bodies ``P`` is the project of the case. It has the topics ``tt-1`` and ``dead``, and the subscription
``ss-1`` of ``tt-1`` with one message under way, whose ack id is ``ACK``.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest
from yarl import URL

from tests.faults.hub_owner_tokens import KEY, token
from tests.support.hub import HubSite, hub_site

SETTINGS: Final = {"hub.hub_key": KEY, "hub.hub_anonymous": "none", "hub.push_signing_keys": "one:whsec_" + "YWFh" * 8}
T, S, DEAD = "projects/P/topics/tt-1", "projects/P/subscriptions/ss-1", "projects/P/topics/dead"
NEW_T, NEW_S = "topics/tt-2", "subscriptions/ss-2"
PUSH: Final = {"pushEndpoint": "https://example.com/push"}
_projects = itertools.count(1)


@dataclass(frozen=True)
class Case:
    """Request and answer.

    Attributes:
        rule: section and rule of the description of the service.
        method: of the request.
        path: behind ``/v1/projects/P/``.
        body: JSON value, or text that is sent as it is; None for none.
        status: of the answer.
        answer: members that the answer has; or a pattern of the error's message.
        code: of the error.
    """

    rule: str
    method: str
    path: str
    body: Any
    status: int
    answer: Any
    code: str = ""


def good(rule: str, method: str, path: str, body: Any, answer: Any) -> Case:
    return Case(rule, method, path, body, 200, answer)


def bad(rule: str, method: str, path: str, body: Any, message: str, code: str = "INVALID_ARGUMENT") -> Case:
    statuses = {"NOT_FOUND": 404, "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "UNIMPLEMENTED": 501}
    return Case(rule, method, path, body, statuses.get(code, 400), message, code)


def new(**fields: Any) -> dict[str, Any]:
    """Return the body that makes a subscription."""
    return {"topic": T, **fields}


def patch(mask: str, **fields: Any) -> dict[str, Any]:
    """Return the body that changes a subscription."""
    return {"subscription": fields, "updateMask": mask}


def messages(*each: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(each)}


def text(length: int) -> str:
    return base64.b64encode(b"x" * length).decode()


GONE = r"^Resource not found \(resource=none\)\.$"
THERE = r"^Resource already exists in the project \(resource={}\)\.$"
NAME = r"^Invalid resource name given \(name=projects/P/{}\)\. Refer to "
UNKNOWN = r'^Invalid JSON payload received. Unknown name "{}": Cannot find field.$'

CASES: Final = [
    # --- topics
    good("1.1 topic: labels alone", "PUT", NEW_T, {"labels": {"a": "b"}}, {"name": "projects/P/topics/tt-2", "labels": {"a": "b"}}),
    good("1.1 topic: a plain one is its name alone", "PUT", NEW_T, {}, {"name": "projects/P/topics/tt-2"}),
    good("1.4 empty body = {}", "PUT", NEW_T, None, {"name": "projects/P/topics/tt-2"}),
    good("1.1 CreateTopic: the path wins over a name", "PUT", NEW_T, {"name": "projects/P/topics/other"}, {"name": "projects/P/topics/tt-2"}),
    good("1.1 topic: retention", "PUT", NEW_T, {"messageRetentionDuration": "600s"}, {"messageRetentionDuration": "600s"}),
    good("1.1 topic: output fields are ignored", "PUT", NEW_T, {"satisfiesPzs": True, "state": "ACTIVE"}, {"name": "projects/P/topics/tt-2"}),
    good("1.1 topic: empty tags are not set", "PUT", NEW_T, {"tags": {}, "labels": {}}, {"name": "projects/P/topics/tt-2"}),
    bad("1.1 topic: schemas are not there", "PUT", NEW_T, {"schemaSettings": {"schema": "projects/P/schemas/s"}}, "schema", "UNIMPLEMENTED"),
    bad("1.1 topic: keys of encryption are not there", "PUT", NEW_T, {"kmsKeyName": "k"}, "kms", "UNIMPLEMENTED"),
    bad("1.3 topic: exists, equal or not", "PUT", "topics/tt-1", {}, THERE.format("tt-1"), "ALREADY_EXISTS"),
    bad("1.3 topic: missing", "GET", "topics/none", None, GONE, "NOT_FOUND"),
    bad("1.3 topic: missing at a deletion", "DELETE", "topics/none", None, GONE, "NOT_FOUND"),
    bad("1.3 topic: missing for its list", "GET", "topics/none/subscriptions", None, GONE, "NOT_FOUND"),
    bad("1.3 topic: missing for a publication", "POST", "topics/none:publish", messages({"data": "YQ=="}), GONE, "NOT_FOUND"),
    bad("1.3 topic: missing for a change", "PATCH", "topics/none", {"topic": {}, "updateMask": "labels"}, GONE, "NOT_FOUND"),
    good("1.2 topic: a change", "PATCH", "topics/tt-1", {"topic": {"labels": {"a": "b"}}, "updateMask": "labels"}, {"labels": {"a": "b"}}),
    bad("1.2 topic: a mask without paths", "PATCH", "topics/tt-1", {"topic": {"labels": {}}}, "must be set, and must contain a non-empty paths list"),
    bad("1.2 topic: an immutable path", "PATCH", "topics/tt-1", {"topic": {}, "updateMask": "name"}, "the 'name' field in the Topic is not mutable"),
    bad("1.1 topic: a retention of more than 31 days", "PUT", NEW_T, {"messageRetentionDuration": "2678401s"}, "between 10m and 744h"),
    good("1.1 DeleteTopic", "DELETE", "topics/dead", None, {}),
    # --- names
    bad("2 ids have three characters", "PUT", "topics/ab", {}, NAME.format("topics/ab")),
    bad("2 ids do not begin with goog", "PUT", "topics/goog-x", {}, NAME.format("topics/goog-x")),
    bad("2 ids begin with a letter", "PUT", "topics/1xx", {}, NAME.format("topics/1xx")),
    bad("2 ids have no other characters", "PUT", "topics/a$bc", {}, NAME.format(r"topics/a\$bc")),
    bad("2 ids have 255 characters", "PUT", "topics/" + "t" * 256, {}, NAME.format("topics/t{256}")),
    good("2 ids are decoded once", "PUT", "topics/a%2Bb%2520~c.d", {}, {"name": "projects/P/topics/a+b%20~c.d"}),
    bad("1.3 a path that is none", "GET", "nothing/x", None, "", "NOT_FOUND"),
    bad("1.3 a method that is none", "POST", "topics/tt-1", {}, "", "NOT_FOUND"),
    bad("1.3 a verb that is none", "POST", "topics/tt-1:shout", {}, "", "NOT_FOUND"),
    # --- labels
    bad("2 labels: keys begin with a letter", "PUT", NEW_T, {"labels": {"1a": "b"}}, "label key"),
    bad("2 labels: keys are in lower case", "PUT", NEW_T, {"labels": {"Aa": "b"}}, "label key"),
    bad("2 labels: keys have 63 characters", "PUT", NEW_T, {"labels": {"a" * 64: "b"}}, "label key"),
    bad("2 labels: values have 63 characters", "PUT", NEW_T, {"labels": {"a": "b" * 64}}, "label value"),
    bad("2 labels: 64", "PUT", NEW_T, {"labels": {f"a{n}": "" for n in range(65)}}, "The value for labels is too large"),
    good("2 labels: letters without case", "PUT", NEW_T, {"labels": {"鍵-1": "値_2"}}, {"labels": {"鍵-1": "値_2"}}),
    # --- JSON
    bad("1.4 an unknown field", "PUT", NEW_T, {"nothing": 1}, UNKNOWN.format("nothing")),
    bad("1.4 an unknown field below", "PUT", NEW_S, new(pushConfig={"nothing": 1}), """Unknown name "nothing" at 'push_config': Cannot find field"""),
    bad("1.4 a field in both spellings", "PUT", NEW_S, new(ackDeadlineSeconds=20, ack_deadline_seconds=20), "ackDeadlineSeconds|ack_deadline_seconds"),
    good("1.4 snake case", "PUT", NEW_S, new(ack_deadline_seconds=20), {"ackDeadlineSeconds": 20}),
    good("1.4 null = absent", "PUT", NEW_S, new(ackDeadlineSeconds=None, labels=None, pushConfig=None), {"ackDeadlineSeconds": 10}),
    good("1.4 int32 as text", "PUT", NEW_S, new(ackDeadlineSeconds="20"), {"ackDeadlineSeconds": 20}),
    good("1.4 int32 as 20.0", "PUT", NEW_S, new(ackDeadlineSeconds=20.0), {"ackDeadlineSeconds": 20}),
    bad("1.4 int32 is whole", "PUT", NEW_S, new(ackDeadlineSeconds=20.5), "ackDeadlineSeconds|ack_deadline"),
    bad("1.4 bool is not coerced", "PUT", NEW_S, new(retainAckedMessages="true"), "retainAckedMessages|retain"),
    bad("1.4 string is not coerced", "PUT", NEW_S, new(filter=1), "filter"),
    bad("1.3 bad JSON", "PUT", NEW_T, "{", "JSON"),
    bad("1.3 a root that is no object", "PUT", NEW_T, "[]", "The root must be an object"),
    bad("8.23 broken UTF-8", "PUT", NEW_T, b'{"labels": {"a": "\xff"}}', "UTF-8"),
    bad("1.4 a member twice", "PUT", NEW_T, '{"labels": 1, "labels": 2}', "labels"),
    bad("1.4 duration without a unit", "PUT", NEW_T, {"messageRetentionDuration": 600}, "messageRetentionDuration|message_retention"),
    bad("1.4 duration as a number in a text", "PUT", NEW_T, {"messageRetentionDuration": "600"}, "messageRetentionDuration|message_retention"),
    bad("8.8 a duration below 0", "PUT", NEW_T, {"messageRetentionDuration": "-600s"}, "between 10m and 744h"),
    bad("8.8 599.999999999s", "PUT", NEW_T, {"messageRetentionDuration": "599.999999999s"}, "between 10m and 744h"),
    bad("8.8 2678400.000000001s", "PUT", NEW_T, {"messageRetentionDuration": "2678400.000000001s"}, "between 10m and 744h"),
    bad("8.8 ten digits", "PUT", NEW_T, {"messageRetentionDuration": "600.0000000001s"}, "messageRetentionDuration|message_retention"),
    good("8.8 three digits come back", "PUT", NEW_T, {"messageRetentionDuration": "600.5s"}, {"messageRetentionDuration": "600.500s"}),
    # --- subscriptions
    good("1.1 subscription: defaults", "PUT", NEW_S, new(), {
        "name": "projects/P/subscriptions/ss-2", "topic": T, "pushConfig": {}, "ackDeadlineSeconds": 10,
        "messageRetentionDuration": "604800s", "expirationPolicy": {"ttl": "2678400s"}, "state": "ACTIVE",
    }),
    good("1.4 enumerations as numbers", "PUT", NEW_S + "?%24alt=json%3Benum-encoding%3Dint", new(), {"state": 1}),
    good("1.4 enumerations as numbers, as Node asks", "PUT", NEW_S + "?$alt=json%3Benum-encoding=int", new(), {"state": 1}),
    bad("8.24 another form of answers", "GET", "subscriptions/ss-1?alt=media", None, "alt"),
    good("1.4 other standard parameters are ignored", "GET", "subscriptions/ss-1?prettyPrint=false&fields=name&quotaUser=x", None, {"name": S}),
    good("1.1 expirationPolicy: {} = never", "PUT", NEW_S, new(expirationPolicy={}), {"expirationPolicy": {}}),
    good("1.1 expirationPolicy: a shorter ttl shortens the retention", "PUT", NEW_S, new(expirationPolicy={"ttl": "86400s"}), {"messageRetentionDuration": "86400s"}),
    bad("1.3 expirationPolicy: less than a day", "PUT", NEW_S, new(expirationPolicy={"ttl": "3600s"}), "^The value for expiration duration is too small. You passed 1h in the request, but the minimum value is 24h.$"),
    bad("1.3 retention: less than ten minutes", "PUT", NEW_S, new(messageRetentionDuration="599s"), "You passed 9m59s in the request, but the value must be between 10m and 744h"),
    bad("1.3 ack deadline of a subscription: 9", "PUT", NEW_S, new(ackDeadlineSeconds=9), r"^Invalid ack deadline given \(ack_deadline=9\)"),
    bad("1.3 ack deadline of a subscription: 601", "PUT", NEW_S, new(ackDeadlineSeconds=601), r"^Invalid ack deadline given \(ack_deadline=601\)"),
    good("1.1 ack deadline of a subscription: 0 = 10", "PUT", NEW_S, new(ackDeadlineSeconds=0), {"ackDeadlineSeconds": 10}),
    bad("1.3 subscription: exists", "PUT", "subscriptions/ss-1", new(), THERE.format("ss-1"), "ALREADY_EXISTS"),
    bad("1.3 subscription: its topic is missing", "PUT", NEW_S, {"topic": "projects/P/topics/none"}, GONE, "NOT_FOUND"),
    bad("1.3 subscription: no topic", "PUT", NEW_S, {}, "topic|resource name"),
    bad("1.3 subscription: a topic that is none", "PUT", NEW_S, {"topic": "tt-1"}, "^Invalid resource name given"),
    bad("1.3 subscription: missing", "GET", "subscriptions/none", None, GONE, "NOT_FOUND"),
    bad("1.3 subscription: missing at a deletion", "DELETE", "subscriptions/none", None, GONE, "NOT_FOUND"),
    good("1.1 DeleteSubscription", "DELETE", "subscriptions/ss-1", None, {}),
    bad("1.1 exactly-once is not there", "PUT", NEW_S, new(enableExactlyOnceDelivery=True), "exactly", "UNIMPLEMENTED"),
    bad("1.1 BigQuery is not there", "PUT", NEW_S, new(bigqueryConfig={"table": "t"}), "bigquery", "UNIMPLEMENTED"),
    bad("1.1 transforms are not there", "PUT", NEW_S, new(messageTransforms=[{}]), "transform", "UNIMPLEMENTED"),
    good("1.1 retryPolicy: defaults", "PUT", NEW_S, new(retryPolicy={}), {"retryPolicy": {"minimumBackoff": "10s", "maximumBackoff": "600s"}}),
    bad("1.3 retryPolicy: more than 600 s", "PUT", NEW_S, new(retryPolicy={"maximumBackoff": "601s"}), "backoff|Backoff"),
    bad("1.3 retryPolicy: the least above the greatest", "PUT", NEW_S, new(retryPolicy={"minimumBackoff": "20s", "maximumBackoff": "10s"}), "backoff|Backoff"),
    good("1.1 deadLetterPolicy: 0 = 5", "PUT", NEW_S, new(deadLetterPolicy={"deadLetterTopic": DEAD}), {"deadLetterPolicy": {"deadLetterTopic": DEAD, "maxDeliveryAttempts": 5}}),
    Case("1.3 deadLetterPolicy: 4 attempts", "PUT", NEW_S, new(deadLetterPolicy={"deadLetterTopic": DEAD, "maxDeliveryAttempts": 4}), 400, "max_delivery_attempts"),
    Case("1.3 deadLetterPolicy: 101 attempts", "PUT", NEW_S, new(deadLetterPolicy={"deadLetterTopic": DEAD, "maxDeliveryAttempts": 101}), 400, "max_delivery_attempts"),
    bad("1.3 deadLetterPolicy: its topic is missing", "PUT", NEW_S, new(deadLetterPolicy={"deadLetterTopic": "projects/P/topics/none"}), GONE, "NOT_FOUND"),
    # --- push configs
    good("1.1 pushConfig: an endpoint", "PUT", NEW_S, new(pushConfig=PUSH), {"pushConfig": PUSH}),
    bad("1.3 push endpoint: http", "PUT", NEW_S, new(pushConfig={"pushEndpoint": "http://example.com/"}), r"^Invalid push endpoint given \(endpoint=http://example.com/\)"),
    bad("1.3 push endpoint: no URL", "PUT", NEW_S, new(pushConfig={"pushEndpoint": "example"}), r"^Invalid push endpoint given \(endpoint=example\)"),
    bad("2 push endpoint: 2,048 characters", "PUT", NEW_S, new(pushConfig={"pushEndpoint": "https://example.com/" + "x" * 2048}), "longer than 2048"),
    bad("1.3 oidcToken without an account", "PUT", NEW_S, new(pushConfig={**PUSH, "oidcToken": {"audience": "a"}}), r"\(argument=PushConfig::oidc_token::service_account_email\)"),
    good("1.1 oidcToken", "PUT", NEW_S, new(pushConfig={**PUSH, "oidcToken": {"serviceAccountEmail": "a@b.c"}}), {"pushConfig": {**PUSH, "oidcToken": {"serviceAccountEmail": "a@b.c"}}}),
    good("1.4 {} is set: noWrapper", "PUT", NEW_S, new(pushConfig={**PUSH, "noWrapper": {}}), {"pushConfig": {**PUSH, "noWrapper": {}}}),
    bad("1.1 two wrappers", "PUT", NEW_S, new(pushConfig={**PUSH, "noWrapper": {}, "pubsubWrapper": {}}), "wrapper|oneof"),
    good("1.1 attributes: the version", "PUT", NEW_S, new(pushConfig={**PUSH, "attributes": {"x-goog-version": "v1"}}), {"pushConfig": {**PUSH, "attributes": {"x-goog-version": "v1"}}}),
    bad("1.1 attributes: another version", "PUT", NEW_S, new(pushConfig={**PUSH, "attributes": {"x-goog-version": "v1beta1"}}), "x-goog-version"),
    bad("1.1 attributes: unknown", "PUT", NEW_S, new(pushConfig={**PUSH, "attributes": {"x": "y"}}), "Invalid push config attribute given"),
    good("4.3 attributes: signing keys", "PUT", NEW_S, new(pushConfig={**PUSH, "attributes": {"x-hub-signing-keys": "one"}}), {"state": "ACTIVE"}),
    bad("4.3 attributes: a signing key that is none", "PUT", NEW_S, new(pushConfig={**PUSH, "attributes": {"x-hub-signing-keys": "two"}}), "no signing key 'two'"),
    good("1.1 modifyPushConfig: {} = pull", "POST", "subscriptions/ss-1:modifyPushConfig", {}, {}),
    good("1.1 modifyPushConfig: an empty endpoint clears the rest", "POST", "subscriptions/ss-1:modifyPushConfig", {"pushConfig": {"attributes": {"x-goog-version": "v1"}}}, {}),
    bad("1.3 modifyPushConfig: an endpoint that is none", "POST", "subscriptions/ss-1:modifyPushConfig", {"pushConfig": {"pushEndpoint": "x"}}, "Invalid push endpoint given"),
    # --- masks
    good("1.2 a path in camel case", "PATCH", "subscriptions/ss-1", patch("ackDeadlineSeconds", ackDeadlineSeconds=20), {"ackDeadlineSeconds": 20}),
    good("1.2 a path in snake case", "PATCH", "subscriptions/ss-1", patch("ack_deadline_seconds", ackDeadlineSeconds=20), {"ackDeadlineSeconds": 20}),
    good("1.2 a mask in the query", "PATCH", "subscriptions/ss-1?updateMask=ackDeadlineSeconds", {"subscription": {"ackDeadlineSeconds": 20}}, {"ackDeadlineSeconds": 20}),
    good("1.2 in the mask, absent in the object", "PATCH", "subscriptions/ss-1", patch("messageRetentionDuration"), {"messageRetentionDuration": "604800s"}),
    good("1.2 in the object, not in the mask", "PATCH", "subscriptions/ss-1", patch("labels", ackDeadlineSeconds=60, labels={"a": "b"}), {"ackDeadlineSeconds": 10, "labels": {"a": "b"}}),
    good("1.2 a path below", "PATCH", "subscriptions/ss-1", patch("push_config.push_endpoint", pushConfig=PUSH), {"pushConfig": PUSH}),
    bad("1.3 an empty mask", "PATCH", "subscriptions/ss-1", patch("", labels={}), "^The update_mask in the UpdateSubscriptionRequest must be set, and must contain a non-empty paths list.$"),
    bad("1.3 an immutable path", "PATCH", "subscriptions/ss-1", patch("filter", filter="attributes:a"), "^Invalid update_mask provided in the UpdateSubscriptionRequest: the 'filter' field in the Subscription is not mutable.$"),
    bad("1.3 an unknown path", "PATCH", "subscriptions/ss-1", patch("nothing"), "the 'nothing' is not a known Subscription field|'nothing' is not a known Subscription field"),
    bad("1.2 a good path beside a bad one", "PATCH", "subscriptions/ss-1", patch("labels,nothing", labels={"a": "b"}), "'nothing'"),
    bad("1.2 another name in the object", "PATCH", "subscriptions/ss-1", patch("labels", name="projects/P/subscriptions/other"), "and that of the path"),
    # --- pages
    bad("1.2 pageSize: -1", "GET", "topics?pageSize=-1", None, "^The value for page_size is out of bounds. You passed -1 in the request, but the value must be between 0 and 1000.$"),
    bad("1.2 pageSize: 1001", "GET", "subscriptions?pageSize=1001", None, "You passed 1001 in the request"),
    bad("1.2 a token of others", "GET", "topics?pageToken=garbage", None, r"^Invalid page token given \(token=garbage\)\.$"),
    good("1.2 pages", "GET", "topics?pageSize=1", None, {"topics": [{"name": DEAD}]}),
    good("1.2 pageSize: 0 = default", "GET", "topics?pageSize=0", None, {"topics": [{"name": DEAD}, {"name": T}]}),
    good("1.2 the subscriptions of a topic", "GET", "topics/tt-1/subscriptions", None, {"subscriptions": [S]}),
    good("1.2 an empty list", "GET", "topics/dead/subscriptions", None, {}),
    # --- publishing
    good("1.1 publish", "POST", "topics/tt-1:publish", messages({"data": "YQ=="}), {}),
    good("1.4 base64 for URLs, without padding", "POST", "topics/tt-1:publish", messages({"data": "_-8"}), {}),
    good("1.1 publish: an attribute alone", "POST", "topics/tt-1:publish", messages({"attributes": {"a": ""}}), {}),
    good("1.1 publish: ids and times are ignored", "POST", "topics/tt-1:publish", messages({"data": "YQ==", "messageId": "7", "publishTime": "2020-01-01T00:00:00Z"}), {}),
    bad("1.4 base64 that is none", "POST", "topics/tt-1:publish", messages({"data": "%%%"}), "base64|data"),
    bad("1.1 publish: an empty message amid good ones", "POST", "topics/tt-1:publish", messages({"data": "YQ=="}, {}), r"messages\[1\]: a message needs data"),
    bad("1.1 publish: an ordering key alone", "POST", "topics/tt-1:publish", messages({"orderingKey": "k"}), "a message needs data"),
    bad("1.3 publish: no message", "POST", "topics/tt-1:publish", {}, "^The value for message_count is too small"),
    bad("1.3 publish: 1,001 messages", "POST", "topics/tt-1:publish", messages(*[{"data": "YQ=="}] * 1001), "^The value for message_count is too large. You passed 1001 in the request, but the maximum value is 1000.$"),
    good("2 publish: 1,000 messages", "POST", "topics/tt-1:publish", messages(*[{"data": "YQ=="}] * 1000), {}),
    bad("1.3 publish: more than 10,000,000 bytes", "POST", "topics/tt-1:publish", messages({"data": text(10_000_001)}), "^The value for request_size is too large."),
    Case("1.3 publish: two ordering keys", "POST", "topics/tt-1:publish", messages({"data": "YQ==", "orderingKey": "a"}, {"data": "YQ==", "orderingKey": "b"}), 400, "must have no ordering key or they must all have the same", "FAILED_PRECONDITION"),
    bad("2 publish: 101 attributes", "POST", "topics/tt-1:publish", messages({"attributes": {f"a{n}": "" for n in range(101)}}), "You passed 101"),
    bad("2 publish: an attribute key of 257 bytes", "POST", "topics/tt-1:publish", messages({"attributes": {"a" * 257: ""}}), "an attribute key has 257 bytes"),
    bad("2 publish: an attribute value of 1,025 bytes", "POST", "topics/tt-1:publish", messages({"attributes": {"a": "b" * 1025}}), "has 1025 bytes"),
    bad("2 publish: an attribute key with goog", "POST", "topics/tt-1:publish", messages({"attributes": {"googly": ""}}), "begins with goog"),
    bad("2 publish: an ordering key of 1,025 bytes", "POST", "topics/tt-1:publish", messages({"data": "YQ==", "orderingKey": "k" * 1025}), "the ordering key has 1025 bytes"),
    # --- pulls and acks
    bad("1.3 pull: no maxMessages", "POST", "subscriptions/ss-1:pull", {}, r"^You have passed an invalid argument to the service \(argument=max_messages\)\.$"),
    bad("1.3 pull: -1", "POST", "subscriptions/ss-1:pull", {"maxMessages": -1}, "argument=max_messages"),
    good("1.1 pull: returnImmediately", "POST", "subscriptions/ss-1:pull", {"maxMessages": 1, "returnImmediately": True}, {}),
    bad("1.3 pull: a missing subscription", "POST", "subscriptions/none:pull", {"maxMessages": 1}, GONE, "NOT_FOUND"),
    good("1.1 acknowledge", "POST", "subscriptions/ss-1:acknowledge", {"ackIds": ["ACK"]}, {}),
    good("8.17 acknowledge: the same id twice", "POST", "subscriptions/ss-1:acknowledge", {"ackIds": ["ACK", "ACK"]}, {}),
    bad("1.3 acknowledge: no id", "POST", "subscriptions/ss-1:acknowledge", {}, "^You have not specified an ack ID in the request.$"),
    bad("1.3 acknowledge: an id that is none refuses all", "POST", "subscriptions/ss-1:acknowledge", {"ackIds": ["ACK", "junk"]}, r"^You have passed an invalid ack ID to the service \(ack_id=junk\)"),
    bad("2 acknowledge: 512 KiB", "POST", "subscriptions/ss-1:acknowledge", {"ackIds": ["x" * 600_000]}, "The value for request_size is too large"),
    good("1.1 modifyAckDeadline: absent = 0", "POST", "subscriptions/ss-1:modifyAckDeadline", {"ackIds": ["ACK"]}, {}),
    good("1.1 modifyAckDeadline: 600", "POST", "subscriptions/ss-1:modifyAckDeadline", {"ackIds": ["ACK"], "ackDeadlineSeconds": 600}, {}),
    bad("8.18 modifyAckDeadline: -1", "POST", "subscriptions/ss-1:modifyAckDeadline", {"ackIds": ["ACK"], "ackDeadlineSeconds": -1}, r"\(ack_deadline=-1\)"),
    bad("8.18 modifyAckDeadline: 601", "POST", "subscriptions/ss-1:modifyAckDeadline", {"ackIds": ["ACK"], "ackDeadlineSeconds": 601}, r"^Invalid ack deadline given \(ack_deadline=601\). The ack deadline must be between 0 and 600 seconds.$"),
    # --- seek, detach
    good("8.19 seek: the past", "POST", "subscriptions/ss-1:seek", {"time": "2020-01-01T00:00:00Z"}, {}),
    good("8.19 seek: the future, with an offset", "POST", "subscriptions/ss-1:seek", {"time": "2100-01-01T02:00:00.123456789+02:00"}, {}),
    bad("1.3 seek: no target", "POST", "subscriptions/ss-1:seek", {}, "^No target was specified in the SeekRequest. Must specify either a time or a snapshot.$"),
    bad("1.3 seek: two targets", "POST", "subscriptions/ss-1:seek", {"time": "2020-01-01T00:00:00Z", "snapshot": "projects/P/snapshots/nn-1"}, "oneof field 'target' is already set. Cannot set 'snapshot'"),
    bad("1.1 seek: snapshots are not there", "POST", "subscriptions/ss-1:seek", {"snapshot": "projects/P/snapshots/nn-1"}, "no snapshots", "UNIMPLEMENTED"),
    bad("1.4 seek: a time that is none", "POST", "subscriptions/ss-1:seek", {"time": "yesterday"}, "time"),
    good("1.1 detach: without a body", "POST", "subscriptions/ss-1:detach", None, {}),
    bad("1.1 snapshots are not there", "PUT", "snapshots/nn-1", {"subscription": S}, "snapshots", "UNIMPLEMENTED"),
    bad("1.1 IAM is not there", "GET", "topics/tt-1:getIamPolicy", None, "rights|IAM|tokens", "UNIMPLEMENTED"),
    bad("1.1 schemas are not there", "GET", "schemas", None, "schemas", "UNIMPLEMENTED"),
    # --- filters
    *[
        good(f"3 filter: {source}", "PUT", NEW_S, new(filter=source), {"filter": source})
        for source in (
            "attributes:name", 'attributes.name = "com"', 'attributes.name != "com"', 'hasPrefix(attributes.name, "co")',
            "NOT attributes:a", "-attributes:a", 'attributes:"iana.org/language_tag"', 'attributes.ce-type = "x"',
            'attributes:"\\u307F"', "attributes:a AND (attributes:b OR attributes:c)",
        )
    ],
    *[
        bad(f"3 filter: {source}", "PUT", NEW_S, new(filter=source), "^Invalid filter expression|filter")
        for source in (
            "attributes:\\u307F", "attributes:a AND attributes:b OR attributes:c", "attributes.a = attributes.b",
            '"com" = attributes.a', "attributes.a = com", "attributes:a and attributes:b", 'attributes["a"] = "b"',
            'attributes.a == "b"', "attributes:" + "a" * 257, "attributes:a attributes:b", "   ",
        )
    ],
]  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site(SETTINGS) as site:
        yield site


class Project:
    """Project of a case, and its owner."""

    def __init__(self, session: aiohttp.ClientSession, site: HubSite) -> None:
        self.name = f"o{next(_projects)}"
        self.ack = ""
        self._session = session
        self._url = f"{site.url}/v1/projects/{self.name}/"
        self._headers = {"Authorization": f"Bearer {token(self.name)}", "Content-Type": "application/json"}

    async def ask(self, method: str, path: str, body: Any) -> tuple[int, str, str]:
        """Send a request; return status, media type and text of the answer."""
        data = None if body is None else body if isinstance(body, str | bytes) else json.dumps(body)
        if isinstance(data, str):
            data = re.sub(r"\bACK\b", self.ack, data.replace("projects/P/", f"projects/{self.name}/")).encode()
        url = URL(self._url + path, encoded=True)
        stream = None if data is None else io.BytesIO(data)
        async with self._session.request(method, url, data=stream, headers=self._headers) as answer:
            text = await answer.text()
            return answer.status, answer.headers["Content-Type"], text.replace(f"projects/{self.name}/", "projects/P/")

    async def fill(self) -> None:
        """Make its topics, and its subscription with a message under way."""
        for path, body in (("topics/tt-1", {}), ("topics/dead", {}), ("subscriptions/ss-1", new())):
            assert (await self.ask("PUT", path, body))[0] == 200
        assert (await self.ask("POST", "topics/tt-1:publish", messages({"data": "YQ=="})))[0] == 200
        # The first pull waits until the sender is there.
        _, _, text = await self.ask("POST", "subscriptions/ss-1:pull", {"maxMessages": 1})
        self.ack = json.loads(text)["receivedMessages"][0]["ackId"]

    async def state(self) -> list[str]:
        """Return all that a refused request must not change."""
        paths = ("topics", "subscriptions", "topics/tt-1", "subscriptions/ss-1")
        return [(await self.ask("GET", path, None))[2] for path in paths]


@pytest.fixture
async def project(site: HubSite) -> AsyncIterator[Project]:
    async with aiohttp.ClientSession() as session:
        project = Project(session, site)
        await project.fill()
        yield project


def test_there_are_a_hundred_cases_of_different_rules() -> None:
    assert len({case.rule for case in CASES}) == len(CASES) >= 100


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
async def test_case(project: Project, case: Case) -> None:
    before = await project.state()
    status, media_type, text = await project.ask(case.method, case.path, case.body)
    assert (status, media_type) == (case.status, "application/json; charset=UTF-8"), text
    document = json.loads(text)
    if status == 200:
        assert {name: document.get(name) for name in case.answer} == case.answer
        return
    error = document["error"]
    assert error["code"] == status
    assert re.search(case.answer, error["message"]), error["message"]
    if case.code:
        assert error["status"] == case.code
    # A refused request changes nothing.
    assert await project.state() == before
