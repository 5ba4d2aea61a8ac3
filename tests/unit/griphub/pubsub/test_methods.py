"""Methods by path, and parameters (scenarios 3, 4, 7, 12, 24, 25)."""

from __future__ import annotations

import pytest

from griphub.pubsub.methods import Paging, paging_of, parse_call, wants_numbers
from griphub.pubsub.names import ResourceName
from griphub.pubsub.status import ApiError

T, S = "/v1/projects/p/topics/tt-1", "/v1/projects/p/subscriptions/ss-1"


def refusal(method: str, path: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_call(method.encode(), path.encode())
    return caught.value


@pytest.mark.parametrize(
    ("request_line", "method"),
    [
        (f"PUT {T}", "CreateTopic"),
        (f"PATCH {T}", "UpdateTopic"),
        (f"GET {T}", "GetTopic"),
        (f"DELETE {T}", "DeleteTopic"),
        ("GET /v1/projects/p/topics", "ListTopics"),
        (f"GET {T}/subscriptions", "ListTopicSubscriptions"),
        (f"POST {T}:publish", "Publish"),
        (f"PUT {S}", "CreateSubscription"),
        (f"PATCH {S}", "UpdateSubscription"),
        (f"GET {S}", "GetSubscription"),
        (f"DELETE {S}", "DeleteSubscription"),
        ("GET /v1/projects/p/subscriptions", "ListSubscriptions"),
        (f"POST {S}:pull", "Pull"),
        (f"POST {S}:acknowledge", "Acknowledge"),
        (f"POST {S}:modifyAckDeadline", "ModifyAckDeadline"),
        (f"POST {S}:modifyPushConfig", "ModifyPushConfig"),
        (f"POST {S}:seek", "Seek"),
        (f"POST {S}:detach", "DetachSubscription"),
    ],
)
def test_methods(request_line: str, method: str) -> None:
    verb, path = request_line.split()
    call = parse_call(verb.encode(), path.encode())
    assert (call.method, call.project) == (method, "p")
    assert (call.name is None) == path.endswith(("/projects/p/topics", "/projects/p/subscriptions"))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/projects/example.com%3Ap/topics/tt-1:publish", ResourceName("example.com:p", "topics", "tt-1")),
        ("/v1/projects/example.com:p/topics/tt-1:publish", ResourceName("example.com:p", "topics", "tt-1")),
        ("/v1/projects/p/topics/a%2Bb%2520~c.d:publish", ResourceName("p", "topics", "a+b%20~c.d")),
        ("/v1/projects/p/topics/tt-1%3Apublish:publish", None),
    ],
)
def test_a_path_is_divided_and_then_decoded_once(path: str, name: ResourceName | None) -> None:
    if name is None:
        assert "Invalid resource name" in str(refusal("POST", path))
    else:
        assert parse_call(b"POST", path.encode()).name == name


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /v1",
        "GET /v2/projects/p/topics",
        "GET /v1/projects/p",
        "GET /v1/projects/p/things",
        "POST /v1/projects/p/topics",
        "GET /v1/projects/p/topics:list",
        f"POST {T}",
        f"POST {T}:pull",
        f"GET {T}:publish",
        f"POST {S}:publish",
        f"GET {T}/messages",
        f"GET {S}/subscriptions",
        f"POST {T}/subscriptions",
        f"GET {T}/subscriptions/x",
        f"HEAD {T}",
    ],
)
def test_other_paths_are_no_methods(request_line: str) -> None:
    verb, path = request_line.split()
    error = refusal(verb, path)
    assert (error.code, error.status) == ("NOT_FOUND", 404)
    assert "There is no such method" in str(error)


@pytest.mark.parametrize(
    ("request_line", "reason"),
    [
        ("PUT /v1/projects/p/snapshots/nn-1", "snapshots"),
        ("GET /v1/projects/p/snapshots", "snapshots"),
        (f"GET {T}/snapshots", "snapshots"),
        (f"GET {T}:getIamPolicy", "tokens"),
        (f"POST {S}:setIamPolicy", "tokens"),
        ("POST /v1/projects/p/snapshots/nn-1:testIamPermissions", "tokens"),
        ("GET /v1/projects/p/schemas", "schemas"),
        ("POST /v1/projects/p/schemas:validate", "schemas"),
    ],
)
def test_scenario_25_methods_that_are_not_served_say_why(request_line: str, reason: str) -> None:
    verb, path = request_line.split()
    error = refusal(verb, path)
    assert error.status == 501
    assert reason in str(error)


@pytest.mark.parametrize(
    "path",
    ["/v1/projects/P/topics", "/v1/projects/p/topics/ab", "/v1/projects/p/topics/%FF%FF%FF", "/v1/projects//topics"],
)
def test_names_are_checked(path: str) -> None:
    assert refusal("GET", path).code == "INVALID_ARGUMENT"


def test_enumerations_as_numbers() -> None:
    assert wants_numbers({"$alt": ["json;enum-encoding=int"]})
    assert not wants_numbers({"$alt": ["json"], "prettyPrint": ["false"], "key": ["K"]})
    assert not wants_numbers({})


@pytest.mark.parametrize("query", [{"alt": ["media"]}, {"$alt": ["proto"]}, {"alt": ["json"] * 2}, {"verbose": ["1"]}])
def test_other_parameters_are_refused(query: dict[str, list[str]]) -> None:
    with pytest.raises(ApiError) as caught:
        wants_numbers(query)
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("query", "paging"),
    [
        ({}, Paging(100, "")),
        ({"pageSize": ["0"]}, Paging(100, "")),
        ({"page_size": ["1"], "pageToken": ["x"]}, Paging(1, "x")),
        ({"pageSize": ["1000"], "page_token": ["y"]}, Paging(1000, "y")),
    ],
)
def test_pages(query: dict[str, list[str]], paging: Paging) -> None:
    assert paging_of(query) == paging


@pytest.mark.parametrize("size", ["-1", "1001"])
def test_sizes_out_of_bounds(size: str) -> None:
    with pytest.raises(ApiError) as caught:
        paging_of({"pageSize": [size]})
    assert str(caught.value) == (
        f"The value for page_size is out of bounds. You passed {size} in the request,"
        " but the value must be between 0 and 1000."
    )


@pytest.mark.parametrize("size", ["x", "1.5", "--1", "1" * 20])
def test_sizes_that_are_no_numbers(size: str) -> None:
    with pytest.raises(ApiError, match="TYPE_INT32"):
        paging_of({"pageSize": [size]})
